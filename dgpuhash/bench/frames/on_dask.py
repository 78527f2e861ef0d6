"""Benchmark joins and groupbys of Dask frames against Dask's own on a process cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, ClassVar

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from distributed import futures_of, wait

import dgpuhash
from dgpuhash.bench.frames.groupings import GROUPINGS
from dgpuhash.bench.peers import OURS, Grouping, Join, Pandas, Work, same_words
from dgpuhash.bench.peers.ours import group_ours
from dgpuhash.bench.peers.pandas import by_groups
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.errors import UnsupportedError

_PARTITIONS_OF_A_WORKER = 4
_UPDATES = 10


class Dask(Pandas):
    """Dask's merges and groupbys of persisted frames, with results on the workers.

    Parameters
    ----------
    crew : Workers
        The cluster.
    """

    package = "dask"
    hows: ClassVar[dict[str, str]] = {
        **same_words("inner", "left", "right", "outer"),
        "semi": "leftsemi",
        **same_words("groupby", "nunique", "drop_duplicates", "value_counts", "transform"),
    }

    def __init__(self, crew: BenchWorkers) -> None:
        self._crew = crew
        self.workers: int = len(crew)
        self.name: str = f"Dask {dask.__version__}"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Work:
        partitions = _PARTITIONS_OF_A_WORKER * self.workers
        lefts = self._persist(left, partitions)
        rights = self._persist(right, partitions if join.right == "big" else 1)
        return lambda: self._finish(
            lambda: self._merge(lefts, rights, self.hows[join.how], join.on)
        )

    def of_parts(self, made: Any, function: Callable[[Any], Any]) -> list[Any]:
        client = self._crew.client
        return list(client.gather(client.map(function, futures_of(made), pure=False)))

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Work:
        rows = self._persist(frame, _PARTITIONS_OF_A_WORKER * self.workers)
        work = self._grouped(grouping, rows)
        return lambda: self._finish(work)

    def grouped(self, grouping: Grouping, made: Any, frame: pd.DataFrame) -> pa.Table:
        with self._crew.client.as_current():
            found = made.compute()
        if grouping.how == "transform":
            # Dask's own comes in another order.
            found = found.sort_index()
        return super().grouped(grouping, found, frame)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the workers and of this process.

        The scheduler is in this process.
        """
        theirs = self._crew.client.run(time.process_time)
        return time.process_time() + sum(theirs.values())

    def _merge(self, left: Any, right: Any, how: Any, on: str) -> Any:
        return left.merge(right, how=how, on=on)

    def _grouped(self, grouping: Grouping, rows: Any) -> Work:
        """Return the groupby of a Dask frame.

        Raises
        ------
        UnsupportedError
            When Dask has no such aggregate.
        """
        key, column = grouping.by[0], grouping.columns[-1]

        def groupby(by: Any, *, as_index: bool = True, **options: Any) -> Any:
            # Keys are an index there, which every answer is compared with.
            return rows.groupby(by, **options)

        match grouping.how:
            case "drop_duplicates":
                return rows.drop_duplicates  # type: ignore[no-any-return]
            case "value_counts":
                return lambda: rows[key].value_counts(sort=False)
            case "transform":
                meta = (column, "float64")
                return lambda: groupby(key, sort=False)[column].transform("mean", meta=meta)
            case "groupby" | "nunique":
                return by_groups(grouping, groupby)
        raise UnsupportedError(
            f"Dask does not support the aggregate {grouping.how} by group; measure another library"
        )

    def _persist(self, frame: pd.DataFrame, partitions: int) -> Any:
        """Return a persisted Dask frame."""
        cuts = np.linspace(0, len(frame), partitions + 1).astype(int)
        parts = [frame.iloc[first:end] for first, end in itertools.pairwise(cuts)]
        client = self._crew.client
        held = client.scatter(parts, direct=True)
        with client.as_current():
            return _settle(dd.from_delayed(held, meta=frame.iloc[:0], verify_meta=False))

    def _finish(self, work: Work) -> Any:
        """Return a lazy frame after computing it on the workers."""
        # There may be the clients of other libraries' clusters.
        with self._crew.client.as_current():
            return _settle(work())


class OursOnDask(Dask):
    """``dgpuhash.merge`` and ``dgpuhash.groupby`` of persisted Dask frames."""

    package = "dgpuhash"
    hows: ClassVar[dict[str, str]] = {
        **same_words("inner", "left", "right", "outer", "semi", "anti"),
        **same_words(*(grouping.how for grouping in GROUPINGS.values())),
    }
    ours = True

    def __init__(self, crew: BenchWorkers) -> None:
        super().__init__(crew)
        self.name = f"{OURS} on Dask"

    def group(self, grouping: Grouping, frame: pd.DataFrame) -> Work:
        if grouping.how != "updates":
            return super().group(grouping, frame)
        rows = self._persist(frame, _UPDATES * self.workers)
        batches = [
            rows.partitions[self.workers * each : self.workers * (each + 1)]
            for each in range(_UPDATES)
        ]
        with self._crew.client.as_current():
            groups = DistributedGroupBy.build(
                frame.iloc[:0], list(grouping.by),
                dict(zip(grouping.names, grouping.aggregates, strict=True)),
            )  # fmt: skip

        def updated() -> Any:
            with self._crew.client.as_current():
                for batch in batches:
                    groups.update(batch)
            return groups.result()

        return updated

    def _merge(self, left: Any, right: Any, how: Any, on: str) -> Any:
        return dgpuhash.merge(left, right, how=how, on=on)

    def _grouped(self, grouping: Grouping, rows: Any) -> Work:
        if grouping.how == "value_counts":
            # In any order, as Dask's.
            key = grouping.by[0]
            return lambda: rows[key].dgpuhash.value_counts(sort=False)
        if grouping.how == "corr":
            by, columns = list(grouping.by), [name for name, _ in grouping.aggregates]
            groups = dgpuhash.groupby(rows, by, sort=False)[columns]
            return lambda: groups.corr()[columns[-1]].map_partitions(_squared_correlations)
        return group_ours(grouping, rows)


def _squared_correlations(correlations: pd.Series) -> pd.Series:
    """Return squared correlations of two columns, for groups of two rows each."""
    squares: pd.Series = correlations.iloc[::2] ** 2
    return squares


def _settle(frame: Any) -> Any:
    made = frame.persist()
    wait(made)
    return made


ENGINES_ON_DASK: dict[str, type[Dask]] = {"dask": Dask, "dgpuhash-dask": OursOnDask}
