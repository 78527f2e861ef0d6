"""Broadcast join: join every partition of one side with the whole other side."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

from dgpuhash.distributed.cluster.dask_internals import (
    Expr,
    Task,
    TaskRef,
    tokenize_deterministic,
)
from dgpuhash.distributed.cluster.expressions import PartitionExpr
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.merge.held import (
    check_size,
    filtered,
    hold_rows,
    keys_of,
    known_keys,
    merge_with_copy,
)
from dgpuhash.distributed.merge.sides import raise_if_repeated
from dgpuhash.distributed.merge.steps import StoredRows
from dgpuhash.frames.keys.encoding import KeyColumns
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.rows import RowPairs
from dgpuhash.tables.memory_errors import memory_errors_of


def can_be_copied(plan: PartitionPlan, stored: Expr) -> bool:
    """Return whether the build side is one partition without unmatched rows in the result."""
    how = plan.arguments.how
    other = plan.has_tail or how == "cross" or how.endswith("_anti")
    return stored.npartitions == 1 and not other


class MergeTaskExpr(PartitionExpr):
    """Merge with tasks that depend on both sides alone, so that Dask can fuse them."""

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    @functools.cached_property
    def _pickled(self) -> CachedPickle[PartitionPlan]:
        return CachedPickle.of(self.plan)


class CopiedExpr(MergeTaskExpr):
    """Broadcast join with a single-partition side, which Dask sends to each task.

    There are no shards, so that no task waits for others, and a loss costs only what is lost.
    `stored` is a `WholeExpr`.
    """

    _parameters = ["frame", "stored", "plan"]  # noqa: RUF012

    def _divisions(self) -> tuple[Any, ...]:
        if self.plan.keeps_labels:
            return tuple(self.frame.divisions)
        return (None,) * (self.frame.npartitions + 1)

    def _broadcast_dep(self, dep: Expr) -> bool:
        return bool(dep._name == self.stored._name)

    @functools.cached_property
    def _rows(self) -> str:
        return tokenize_deterministic(StoredRows(self.plan))

    def _task(self, name: Any, index: int) -> Task:
        frame, (stored,) = TaskRef((self.frame._name, index)), self.stored.tasks
        return Task(name, merge_with_all, frame, stored, self._pickled, self._rows)


class HoldExpr(MergeTaskExpr):
    """Build-side rows of a frame's partitions, kept on the workers of their tasks.

    `stored` is the `StoredRows` of a plan.
    """

    _parameters = ["frame", "stored"]  # noqa: RUF012

    @property
    def plan(self) -> PartitionPlan:
        """The merge plan for partitions."""
        return self.stored.plan  # type: ignore[no-any-return]

    @property
    def _meta(self) -> Any:
        return self.plan.stored_meta

    def _task(self, name: Any, index: int) -> Task:
        return Task(name, hold_rows, TaskRef((self.frame._name, index)), self._pickled, index)


class ReplicatedExpr(CopiedExpr):
    """Broadcast join: merge each partition of a frame with copies of all of another.

    `stored` is a `WholeExpr` of a `HoldExpr`.
    """

    def _task(self, name: Any, index: int) -> Task:
        frame = TaskRef((self.frame._name, index))
        return Task(name, merge_with_copy, frame, self._pickled, *self.stored.tasks)


class WholeExpr(Expr):
    """The partitions of a frame under their own tasks, without new ones.

    Dask would read a small side once for each partition of the other, with which it fuses it.
    """

    _parameters = ["frame"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.frame.divisions)

    def _lower(self) -> None:
        return None

    @property
    def tasks(self) -> list[TaskRef]:
        """The tasks of the partitions."""
        return [TaskRef((self.frame._name, number)) for number in range(self.npartitions)]

    def _layer(self) -> dict[Any, Task]:
        return {}


class SingleExpr(MergeTaskExpr):
    """Merge of two single-partition frames in one task.

    `texts` tell what is wrong when keys of a side are not unique, and are empty where they may.
    """

    _parameters = ["left", "right", "plan", "texts"]  # noqa: RUF012

    def _divisions(self) -> tuple[Any, ...]:
        asking = self.left if self.plan.probing == "left" else self.right
        return tuple(asking.divisions) if self.plan.keeps_labels else (None, None)

    def _task(self, name: Any, index: int) -> Task:
        sides = (TaskRef((side._name, index)) for side in (self.left, self.right))
        return Task(name, merge_sides, *sides, self._pickled, self.texts)


def merge_with_all(frame: Any, stored: Any, plan: CachedPickle[PartitionPlan], rows: str) -> Any:
    """Return the merge of a partition with all rows of the build side.

    The name `rows` tells merges apart that store others of the same frame.
    """
    with raise_without_traceback(), memory_errors_of("merge"):
        # Not with Dask's own schedulers, where a client may be there as well.
        worker, opened = current_worker(), plan.opened()
        keys = known_keys.of(
            stored, rows, lambda: keys_of(opened.stored(stored), opened, len(frame))
        )
        if opened.is_filter:
            return filtered(frame, keys, opened)
        how = "inner" if opened.arguments.how == "inner" else "left"
        pairs = keys.pairs(KeyColumns.of(opened.asked(frame)), how)
        check_size(worker, pairs.size(len(frame)), frame, stored)
        left, right = frame, stored
        if opened.probing == "right":
            left, right, pairs = stored, frame, RowPairs(pairs.right, pairs.left)
        keyed = opened.arguments.keys(left, right)
        return opened.put_together(left, right, keyed, pairs, meets=len(left) and len(right))


def merge_sides(
    left: Any, right: Any, plan: CachedPickle[PartitionPlan], texts: tuple[str, str]
) -> Any:
    """Return the merge of two single-partition sides.

    Raises
    ------
    MergeError
        When keys are not unique where they should.
    """
    with raise_without_traceback(), memory_errors_of("merge"):
        opened, worker = plan.opened(), current_worker()
        raise_if_repeated(opened, left, right, texts)
        return opened.merged(left, right, partial(check_size, worker, frame=left, stored=right))
