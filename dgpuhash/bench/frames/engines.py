"""Libraries that join and group frames in this process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

import dgpuhash
from dgpuhash.bench.frames import verbs
from dgpuhash.bench.frames.checksum import Checksum, checksum_of_frame
from dgpuhash.bench.frames.groupings import GROUPINGS, Grouping
from dgpuhash.bench.frames.joins import Join
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.peers.cudf import share_pool
from dgpuhash.errors import UnsupportedError

# Groups that stand, and are updated, lie on workers.
_VERBS = [each.how for each in GROUPINGS.values() if each.how != "updates"]
_JOINS = ("inner", "left", "right", "outer", "semi", "anti")
_HOWS = {how: how for how in (*_JOINS, *_VERBS, "aggregate")}


class Engine(ABC):
    """Library that answers questions of frames.

    Attributes
    ----------
    name : str
        The library's name and version.
    package : str
        What has to be installed.
    hows : dict
        The library's own word for each join that it has, and verbs of groups.
    ours : bool
        Whether it is this package.
    workers : int
        Processes of the cluster that it runs on; 0 for this process alone.
    """

    name: str
    package: ClassVar[str] = "dgpuhash"
    hows: ClassVar[dict[str, Any]] = _HOWS
    ours: ClassVar[bool] = False
    workers: int = 0

    @abstractmethod
    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        """Return the work to measure, with both sides in the library's own form."""

    def checksum(self, made: Any) -> Checksum:
        """Return the checksum of what the work returned."""
        return checksum_of_frame(made)

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
        """Return the work to measure, with the frame in the library's own form."""
        raise UnsupportedError(f"{self.name} of {grouping.name}; take another library")

    def grouped(self, grouping: Grouping, made: Any, frame: pd.DataFrame) -> pa.Table:
        """Return the keys and aggregates of what the work returned."""
        return verbs.grouped_by_frames(grouping, made, frame)

    def flat(self, made: Any) -> Any:
        """Return what the work returned as a frame of pandas or cuDF, with keys as columns."""
        return made if list(made.index.names) == [None] else made.reset_index()

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all processes that the work may run in."""
        return time.process_time()


class Pandas(Engine):
    """pandas on one core; semi-joins by ``isin``."""

    package = "pandas"

    def __init__(self) -> None:
        self.name: str = f"pandas {pd.__version__}"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        if join.how == "semi":
            return lambda: left[left[join.on].isin(right[join.on])]
        if join.how == "anti":
            return lambda: left[~left[join.on].isin(right[join.on])]
        return lambda: left.merge(right, how=join.how, on=join.on)  # type: ignore[arg-type]

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
        return verbs.pandas_of(grouping, frame)


class CuDF(Pandas):
    """cuDF; every library of the process allocates from its memory pool."""

    package = "cudf"

    def __init__(self) -> None:
        self.name = share_pool()

    def join(self, join: Join, left: Any, right: Any) -> Callable[[], Any]:
        how = {"semi": "leftsemi", "anti": "leftanti"}.get(join.how, join.how)
        return lambda: left.merge(right, how=how, on=join.on)


class Polars(Engine):
    """Polars on all cores, with eager frames."""

    package = "polars"
    hows: ClassVar[dict[str, Any]] = {**_HOWS, "outer": "full"}

    def __init__(self) -> None:
        import polars

        self._polars: Any = polars
        self.name: str = f"polars {polars.__version__}"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        lefts, rights = (self._polars.from_arrow(_arrow(side)) for side in (left, right))
        how, keys = self.hows[join.how], join.on
        coalesced = {"coalesce": True} if how == "full" else {}
        return lambda: lefts.join(rights, on=keys, how=how, **coalesced)

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
        return verbs.polars_of(self._polars, grouping, self._polars.from_arrow(_arrow(frame)))

    def grouped(self, grouping: Grouping, made: Any, frame: pd.DataFrame) -> pa.Table:
        table: pa.Table = made.to_arrow()
        return table

    def flat(self, made: Any) -> Any:
        return made.to_pandas()


class DuckDB(Engine):
    """DuckDB on all cores, from and to Arrow tables; groups of its own tables."""

    package = "duckdb"
    hows: ClassVar[dict[str, Any]] = {**_HOWS, "outer": "full"}

    def __init__(self) -> None:
        import duckdb

        self._duckdb = duckdb
        self.name: str = f"DuckDB {duckdb.__version__}"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        connection = self._duckdb.connect()
        connection.execute("set preserve_insertion_order = false")
        connection.register("l", _arrow(left))
        connection.register("r", _arrow(right))
        query = f"select * from l {self.hows[join.how]} join r using ({join.on})"
        return lambda: connection.sql(query).to_arrow_table()

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
        connection = self._duckdb.connect()
        connection.execute("set preserve_insertion_order = false")
        connection.register("given", _arrow(frame))
        connection.execute("create table f as select * from given")
        query = verbs.sql_of(grouping)
        return lambda: connection.sql(query).to_arrow_table()

    def grouped(self, grouping: Grouping, made: Any, frame: pd.DataFrame) -> pa.Table:
        table: pa.Table = made
        return table


class Ours(Engine):
    """``dgpuhash.merge`` of two frames and ``dgpuhash.groupby`` of one, on all cores."""

    ours = True

    def __init__(self) -> None:
        self.name = OURS

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        return lambda: dgpuhash.merge(left, right, how=self.hows[join.how], on=join.on)

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Callable[[], Any]:
        return verbs.ours_of(grouping, frame)


class Standing(Ours):
    """Merges with a `FrameIndex` of the right side, built outside the time."""

    hows: ClassVar[dict[str, Any]] = {how: how for how in ("inner", "left", "semi", "anti")}

    def __init__(self) -> None:
        self.name = f"{OURS} standing"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        index = dgpuhash.FrameIndex.build(right, on=join.on)
        return lambda: index.merge(left, how=self.hows[join.how])


def _arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


ENGINES: dict[str, type[Engine]] = {
    "pandas": Pandas,
    "polars": Polars,
    "duckdb": DuckDB,
    "dgpuhash": Ours,
    "standing": Standing,
}

# By device: those whose answers are compared, first that library whose frames are joined.
COMPARED: dict[str, tuple[type[Engine], ...]] = {
    "cuda": (CuDF, Ours, Standing),
    "cpu": (Pandas, Polars, Ours, Standing),
}
