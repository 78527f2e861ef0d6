"""Late broadcast: send a small build side whole to every probe task, without shards."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dgpuhash import backend, config
from dgpuhash.distributed.cluster.dask_internals import memory_limit
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.mode import REPLICATED
from dgpuhash.distributed.query.fetch import FINER, ResultLimit
from dgpuhash.distributed.runs.phases import BufferedRows
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of
from dgpuhash.frames.keys.encoding import KeyColumns
from dgpuhash.frames.merge.distinct import DistinctPlan
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.rows import StoredKeys
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables.memory_errors import memory_errors_of

# A copy of all rows for each worker takes at most this part of its memory.
COPY_SHARE = 4


def needs_shards(plan: PartitionPlan | DistinctPlan, unique: str) -> bool:
    """Return whether the result has unmatched build rows, or build keys must be unique."""
    return bool(unique) or (isinstance(plan, PartitionPlan) and plan.has_tail)


def most_held_nbytes(plan: PartitionPlan | DistinctPlan, unique: str) -> int:
    """Return the limit in bytes of build-side rows without shards; 0 for always shards."""
    return 0 if needs_shards(plan, unique) else config.nbytes(REPLICATED)


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


def hold_rows(frame: Any, plan: CachedPickle[PartitionPlan], number: int) -> BufferedRows:
    """Return the build rows of a partition, for each worker to fetch a copy."""
    with raise_without_traceback(), memory_errors_of("merge"):
        return BufferedRows(number, plan.opened().stored(frame))


def merge_with_copy(frame: Any, plan: CachedPickle[PartitionPlan], *held: BufferedRows) -> Any:
    """Return the merge of a partition with a copy of all build rows."""
    with raise_without_traceback(), memory_errors_of("merge"):
        opened = plan.opened()
        make = partial(_copy_of, held, opened.stored_meta)
        return merge_with_rows(frame, known_keys.of(held[0].rows, "copy", make), opened)


def _copy_of(held: Sequence[BufferedRows], like: Any) -> Any:
    """Return the rows of all partitions, concatenated once on each worker.

    Raises OutOfMemoryError when they are too large for this worker or its GPU.
    """
    worker, frames = current_worker(), frames_of(like)
    nbytes = sum(frames.nbytes(each.rows) for each in held)
    limit = memory_limit(worker) if frames.device == "cpu" else backend.get("cuda").memory()[1]
    if limit and nbytes > limit // COPY_SHARE:
        raise OutOfMemoryError(
            f"a copy of {nbytes:,} bytes for each worker, of which {worker.address} has memory for "
            f"{limit // COPY_SHARE:,}, a fourth of its {limit:,} bytes; leave build= out, and the "
            "rows are distributed, or merge fewer rows and columns"
        )
    return all_held(held, like)


def merge_with_rows(frame: Any, stored: Any, plan: PartitionPlan) -> Any:
    """Return the merge of a partition with all build rows, in stored form."""
    keys = known_keys.of(stored, "", lambda: keys_of(stored, plan, len(frame)))
    if plan.is_filter:
        return filtered(frame, keys, plan)
    pairs = keys.pairs(KeyColumns.of(plan.asked(frame)), "inner")
    check_size(current_worker(), pairs.size(len(frame)), frame, stored)
    found = frames_of(stored).take(stored[plan.fetched], pairs.rows("right", len(stored)))
    return plan.result(frame, pairs.rows("left", len(frame)), found, void=not len(stored))


def filtered(frame: Any, keys: StoredKeys, plan: PartitionPlan) -> Any:
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
