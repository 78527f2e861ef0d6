"""Answers of TPC-H kept on the workers of a Dask cluster, by the same joins."""

from __future__ import annotations

from typing import Any

from dgpuhash import DistributedGroupBy, DistributedIndex, FrameIndex
from dgpuhash.bench.refresh.kept import Groups, Kept, Query


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
