"""Broadcast joins, early and late: send a small build side whole to every probe task."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dgpuhash import backend
from dgpuhash.distributed.cluster.dask_internals import (
    Expr,
    Task,
    TaskRef,
    memory_limit,
    tokenize_deterministic,
)
from dgpuhash.distributed.cluster.expressions import PartitionExpr
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.query.fetch import FINER, ResultLimit
from dgpuhash.distributed.runs.phases import BufferedRows
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of
from dgpuhash.frames.keys.encoding import KeyColumns
from dgpuhash.frames.merge.distinct import DistinctPlan
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.rows import RowPairs, StoredKeys
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables.memory_errors import memory_errors_of

# A copy of all rows for each worker takes at most this part of its memory.
COPY_SHARE = 4


class StoredRows:
    """The part of a plan that determines the build; its token identifies shareable builds."""

    def __init__(self, plan: PartitionPlan | DistinctPlan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        return f"columns {list(self.plan.stored_meta)!r}"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("dgpuhash-stored", self.plan.probing, *self.plan.stored_description)


def are_few(rows: Any, most_nbytes: int) -> bool:
    """Return whether build rows are within the limit for a late broadcast; 0: never."""
    return bool(most_nbytes) and frames_of(rows).nbytes(rows) <= most_nbytes


def all_held(buffered: Sequence[BufferedRows], like: Any) -> Any:
    """Return the rows of all partitions, as `like` has them.

    Raises ColumnError where those of one partition would be rounded beside those of another.
    """
    store = RowStore(like)
    for each in (store.conform(each.rows) for each in buffered):
        store.check_rounding(each)
        store.append(each)
    return store.frame()


class MergeTaskExpr(PartitionExpr):
    """Merge in tasks of both sides alone, for Dask to fuse them."""

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    @functools.cached_property
    def _pickled(self) -> CachedPickle[PartitionPlan]:
        return CachedPickle.of(self.plan)


class BroadcastExpr(MergeTaskExpr):
    """Broadcast join of a frame's partitions with a small side, which Dask sends to each task.

    There are no shards, so that no task waits for others, and a loss costs only what is lost.
    `stored` is a `WholeExpr`: of the other frame, if that is one partition, or of a `HoldExpr`.
    """

    _parameters = ["frame", "stored", "plan"]  # noqa: RUF012

    def _divisions(self) -> tuple[Any, ...]:
        if self.plan.keeps_labels:
            return tuple(self.frame.divisions)
        return (None,) * (self.frame.npartitions + 1)

    def _broadcast_dep(self, dep: Expr) -> bool:
        return bool(dep._name == self.stored._name)

    @property
    def holds(self) -> bool:
        """Whether the tasks get build-side rows in stored form, and not as they were read."""
        return isinstance(self.stored.frame, HoldExpr)

    @functools.cached_property
    def _rows(self) -> str:
        return tokenize_deterministic(StoredRows(self.plan))

    def _task(self, name: Any, index: int) -> Task:
        frame = TaskRef((self.frame._name, index))
        return Task(name, broadcast_join, frame, self._pickled, self._rows, *self.stored.tasks)


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


def broadcast(asking: Expr, stored: Expr, plan: PartitionPlan) -> BroadcastExpr:
    """Return the broadcast join of two sides, without unmatched rows of the build side."""
    how = plan.arguments.how
    if stored.npartitions > 1 or how == "cross" or how.endswith("_anti"):
        stored = HoldExpr(stored, StoredRows(plan))
    return BroadcastExpr(asking, WholeExpr(stored), plan)


def hold_rows(frame: Any, plan: CachedPickle[PartitionPlan], number: int) -> BufferedRows:
    """Return the build rows of a partition, for each worker to fetch a copy."""
    with raise_without_traceback(), memory_errors_of("merge"):
        return BufferedRows(number, plan.opened().stored(frame))


def broadcast_join(frame: Any, plan: CachedPickle[PartitionPlan], rows: str, *stored: Any) -> Any:
    """Return the merge of a partition with the build side: its only partition, or stored rows.

    The name `rows` tells merges apart that store others of the same frame.
    """
    with raise_without_traceback(), memory_errors_of("merge"):
        opened, first = plan.opened(), stored[0]
        if isinstance(first, BufferedRows):
            make = partial(_copy_of, stored, opened.stored_meta)
            return merge_with_rows(frame, known_keys.of(first.rows, "copy", make), opened)
        keys = known_keys.of(first, rows, lambda: keys_of(opened.stored(first), opened, len(frame)))
        return _join(frame, first, keys, opened, as_stored=False)


def merge_with_rows(frame: Any, stored: Any, plan: PartitionPlan) -> Any:
    """Return the merge of a partition with all build rows, in stored form."""
    keys = known_keys.of(stored, "", lambda: keys_of(stored, plan, len(frame)))
    return _join(frame, stored, keys, plan, as_stored=True)


def _join(
    frame: Any, stored: Any, keys: StoredKeys, plan: PartitionPlan, *, as_stored: bool
) -> Any:
    """Return the merge of a partition with build rows of these keys, stored or as read."""
    # Not with Dask's own schedulers, where a client may be there as well.
    worker, how = current_worker(), plan.arguments.how
    if plan.is_filter:
        return _filter_rows(frame, keys, plan)
    pairs = keys.pairs(
        KeyColumns.of(plan.asked(frame)), "inner" if as_stored or how == "inner" else "left"
    )
    check_size(worker, pairs.size(len(frame)), frame, stored)
    if as_stored:
        found = frames_of(stored).take(stored[plan.fetched], pairs.rows("right", len(stored)))
        return plan.result(frame, pairs.rows("left", len(frame)), found, void=not len(stored))
    left, right = frame, stored
    if plan.probing == "right":
        left, right, pairs = stored, frame, RowPairs(pairs.right, pairs.left)
    keyed = plan.arguments.keys(left, right)
    return plan.put_together(left, right, keyed, pairs, meets=len(left) and len(right))


def _filter_rows(frame: Any, keys: StoredKeys, plan: PartitionPlan) -> Any:
    """Return the rows of a partition that a semi or anti join keeps."""
    xp = frames_of(frame).xp
    partners, pairs = keys.find_matches(KeyColumns.of(plan.asked(frame)))
    if partners is None:
        there = xp.zeros(len(frame), bool)
        there[pairs[0]] = True
    else:
        there = partners >= 0
    wanted = ~there if plan.query_how == "anti" else there
    return plan.result(frame, xp.flatnonzero(wanted), None)


def _copy_of(held: Sequence[BufferedRows], like: Any) -> Any:
    """Return the rows of all partitions, concatenated once on each worker.

    Raises OutOfMemoryError when they are too large for this worker or its GPU.
    """
    worker, frames = current_worker(), frames_of(like)
    nbytes = sum(frames.nbytes(each.rows) for each in held)
    limit = memory_limit(worker) if frames.device == "cpu" else backend.get("cuda").memory()[1]
    if limit and nbytes > limit // COPY_SHARE:
        raise OutOfMemoryError(
            f"each worker would get a copy of {nbytes:,} bytes, and {worker.address} takes at most "
            f"{limit // COPY_SHARE:,}, a fourth of its {limit:,}; leave build= out to distribute "
            "the rows, or merge fewer rows and columns"
        )
    return all_held(held, like)


def check_size(worker: Any, rows: int, frame: Any, stored: Any) -> None:
    """Raise OutOfMemoryError if the result's rows exceed the memory."""
    if rows > len(frame):
        each = [frames_of(side).rows_nbytes(side) / max(1, len(side)) for side in (frame, stored)]
        ResultLimit(worker, each[0], FINER).expect(rows, each[1])


def keys_of(stored: Any, plan: PartitionPlan, asked: int) -> StoredKeys:
    """Return a hash table of build rows, sized for a number of lookups."""
    names = plan.key_labels
    stored = frames_of(stored).conform(stored[names], plan.stored_meta[names])
    return StoredKeys(KeyColumns.of(stored), plan.encoder(), asked)


class KnownKeys:
    """Hash tables of frames for merges in this process, freed with their frames.

    And of the first of several frames all of these together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str], tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, frame: Any, rows: str, make: Callable[[], Any]) -> Any:
        """Return the hash table of a frame, built once; `rows` names one of several per frame."""
        key = id(frame), rows
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[0]() is frame:
                return known[1]
            keys = make()
            gone = weakref.ref(frame, lambda _: self._known.pop(key, None))
            self._known[key] = gone, keys
            return keys


known_keys = KnownKeys()
