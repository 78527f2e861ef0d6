"""Merges with a side of one partition: each partition of the other is merged with all of it."""

from __future__ import annotations

from typing import Any

from dgpuhash.distributed.cluster.dask_internals import Expr, Task, TaskRef, tokenize_deterministic
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.merge.held import check_size, keys_of, known_keys
from dgpuhash.distributed.merge.steps import StoredRows
from dgpuhash.frames import frames_of
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.rows import RowPairs
from dgpuhash.tables.memory_errors import memory_errors_of

__all__ = ["CopiedExpr", "can_be_copied"]


def can_be_copied(plan: PartitionPlan, stored: Expr) -> bool:
    """Return whether a stored side is one partition, of which only rows that are found matter."""
    how = plan.arguments.how
    other = plan.has_tail or plan.is_filter or how == "cross" or how.endswith("_anti")
    return stored.npartitions == 1 and not other and frames_of(plan.left).name == "pandas"


class CopiedExpr(Expr):
    """Merge of each partition of a frame with the only one of another, which Dask sends around.

    There are no shards, so that no task waits for others, and a loss costs only what is lost.
    """

    _parameters = ["frame", "stored", "plan"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    def _divisions(self) -> tuple[Any, ...]:
        if self.plan.keeps_labels:
            return tuple(self.frame.divisions)
        return (None,) * (self.frame.npartitions + 1)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        plan, stored = CachedPickle.of(self.plan), TaskRef((self.stored._name, 0))
        rows = tokenize_deterministic(StoredRows(self.plan))
        graph: dict[Any, Task] = {}
        for number in range(self.frame.npartitions):
            key = (self._name, number)
            frame = TaskRef((self.frame._name, number))
            graph[key] = Task(key, merge_with_all, frame, stored, plan, rows)
        return graph


def merge_with_all(frame: Any, stored: Any, plan: CachedPickle[PartitionPlan], rows: str) -> Any:
    """Return the merge of a partition with all rows of the stored side.

    The name `rows` tells merges apart that store others of the same frame.
    """
    with raise_without_traceback(), memory_errors_of("merge"):
        # Not with Dask's own schedulers, where a client may be there as well.
        worker, opened = current_worker(), plan.opened()
        keys = known_keys.of(
            stored, rows, lambda: keys_of(opened.stored(stored), opened, len(frame))
        )
        how = "inner" if opened.arguments.how == "inner" else "left"
        pairs = keys.pairs(opened.asked(frame), how)
        check_size(worker, pairs, frame, stored)
        left, right = frame, stored
        if opened.probing == "right":
            left, right, pairs = stored, frame, RowPairs(pairs.right, pairs.left)
        return opened.put_together(left, right, opened.arguments.keys(left, right), pairs)
