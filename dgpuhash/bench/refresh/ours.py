"""Answers kept by deltas, in this process or on the workers of a Dask cluster."""

from __future__ import annotations

import time
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from distributed import wait

from dgpuhash import DistributedGroupBy, DistributedIndex, FrameIndex
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.refresh.anew import Anew, Answers
from dgpuhash.bench.refresh.frames import rows_of
from dgpuhash.bench.refresh.kept import Groups, Kept, Query
from dgpuhash.bench.refresh.tables import Change, Frames
from dgpuhash.bench.workers.cluster import Workers


class GroupsOnWorkers(Groups):
    """Sums of weighted rows by group on workers; groups that pass a condition are here."""

    def __init__(self, query: Query, rows: Any) -> None:
        self.query = query
        sums = {name: (name, "sum") for name in [*query.sums, "weight"]}
        self.state = DistributedGroupBy.build(rows, query.by, sums)
        self.passing: Any = FrameIndex.build(rows, on=query.by) if query.having else self

    def update(self, rows: Any) -> None:
        """Add rows of weight 1 to their groups, and take rows of weight -1 off."""
        before, by, having = self.state.epoch, self.query.by, self.query.having
        gone = rows[rows["weight"] < 0]
        # What was added has the opposite sign.
        gone = gone.assign(**{name: -gone[name] for name in [*self.query.sums, "weight"]})
        self.state.update(rows[rows["weight"] > 0])
        self.state.retract(gone)
        if having:
            groups = self.state.changed(since=before).compute().reset_index()
            self.passing.erase(rows[by].drop_duplicates().compute())
            self.passing.insert(groups[having(groups)])

    def frame(self) -> Any:
        """Return all groups."""
        return self.state.result().compute().reset_index()


class KeptOnWorkers(Kept):
    """Indexes of the tables and groups of each query on the workers of the current client."""

    build: Any = staticmethod(DistributedIndex.build)
    build_groups = GroupsOnWorkers


class Ours(Anew):
    """Answers kept by deltas."""

    name = OURS

    kept = Kept

    def __init__(self, tables: dict[str, pa.Table], library: Any = pd, batch: int = 10**5) -> None:
        self._frames = Frames(tables, library)
        frames = {name: self._frames.frame(table) for name, table in tables.items()}
        self._kept: Any = self.kept(frames, batch)

    def prepare(self, change: Change) -> Any:
        return [self._frames.frame(each) for each in (change.orders, change.lineitem, change.keys)]

    def change(self, change: Any) -> None:
        self._kept.refresh(*change)

    def answers(self) -> Answers:
        return {number: rows_of(answer) for number, answer in self._kept.answers().items()}

    @property
    def standing_bytes(self) -> int:
        groups = [each.index.nbytes for each in self._kept.groups.values()]
        return sum(groups) + sum(each.stats().table_nbytes for each in self._kept.sides.values())


class OursOnWorkers(Ours):
    """Answers kept on workers, which get the rows of a round outside its time.

    Parameters
    ----------
    tables : dict
    crew : Workers
    library : module
        pandas or cuDF.
    batch : int
        Orders whose lines are added at once where the answers begin.
    """

    kept = KeptOnWorkers

    def __init__(
        self, tables: dict[str, pa.Table], crew: Workers, library: Any, batch: int
    ) -> None:
        self._crew, self.name = crew, f"{OURS} on {len(crew)} workers"
        super().__init__(tables, library, batch)

    def prepare(self, change: Change) -> Any:
        several = len(self._crew)
        rows = [
            dd.from_pandas(frame, npartitions=several, sort=False).persist()
            for frame in super().prepare(change)
        ]
        wait(rows)
        return rows

    def cpu_seconds(self) -> float:
        theirs = self._crew.client.run(time.process_time)
        return super().cpu_seconds() + sum(theirs.values())

    @property
    def standing_bytes(self) -> int:
        states = [each.state.stats() for each in self._kept.groups.values()]
        sides = [each.stats()["table_nbytes"] for each in self._kept.sides.values()]
        return sum(int(each.sum()) for each in sides) + sum(
            int((each["row_nbytes"] + each["table_nbytes"]).sum()) for each in states
        )
