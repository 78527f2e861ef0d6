"""Build value lists part by part, with keys in slot order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.tables.bucket_list.grouping import GroupedBatch
from dgpuhash.tables.bucket_list.pool import LONGEST_RUN, ListNumberRange, ValueLists, check_slots
from dgpuhash.tables.bucket_list.streaming import select_keys
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.open_addressing.slots import SETTLED_ROWS, Slots

# Keys of which those in the last bucket are looked for; it seldom has as many.
_LAST_KEYS = 2**6


class SortedFill:
    """Fill empty slots with distinct keys in ascending batches; `finish` ends it.

    Keys whose first bucket is full wait until then, as their places may be anywhere.

    Parameters
    ----------
    slots : Slots
        With room for all keys.

    Attributes
    ----------
    rows : int
        Keys that were added.
    """

    def __init__(self, slots: Slots) -> None:
        assert slots.value is not None
        slots.fill()
        self._slots, self._backend = slots, slots._backend
        empty = self._backend.empty
        # Keys of the last bucket, of which more may come.
        self._kept = empty(0, slots.key), empty(0, slots.value)
        self._late: list[tuple[Any, Any]] = []
        self.rows: int = 0

    def add(self, keys: Any, values: Any) -> None:
        """Store pairs sorted by hash, all after the earlier ones."""
        self.rows += len(keys)
        self._slots.taken_bound = self.rows
        join = self._backend.xp.concatenate
        keys, values = join([self._kept[0], keys]), join([self._kept[1], values])
        end = self._last_begin(keys)
        self._store(keys[:end], values[:end])
        self._kept = keys[end:].copy(), values[end:].copy()

    def finish(self) -> None:
        """Store the remaining pairs."""
        slots, join = self._slots, self._backend.xp.concatenate
        self._store(*self._kept)
        late = [join(column) for column in zip(*self._late, strict=True)]
        slots._state[0] = self.rows - (len(late[0]) if late else 0)
        slots._change()
        if late:
            slots.replace(*late)

    def _last_begin(self, keys: Any) -> int:
        """Return the first row of the last bucket's keys."""
        slots, size = self._slots, _LAST_KEYS
        while True:
            first = max(len(keys) - size, 0)
            hashes = self._backend.to_host(self._backend.hash_keys(keys[first:], slots.seed))
            buckets = [each * slots.buckets >> 64 for each in hashes.tolist()]
            begin = first + (buckets.index(buckets[-1]) if buckets else 0)
            if begin > first or first == 0:
                return begin
            size *= 2

    def _store(self, keys: Any, values: Any) -> None:
        slots, backend, rows = self._slots, self._backend, len(keys)
        segments = -(-rows // SETTLED_ROWS)
        later = backend.empty(segments * SETTLED_ROWS, np.uint64)
        late = backend.empty(segments, np.uint64)
        backend.run(
            kernel_named("open_settle", slots.key, slots.value), segments,
            table=slots.storage, keys=keys, values=values, later=later, late=late,
            rows=rows, segment_rows=SETTLED_ROWS,
        )  # fmt: skip
        some = backend.xp.flatnonzero(late)
        if len(some):
            is_late = backend.xp.arange(SETTLED_ROWS, dtype=np.uint64) < late[some][:, None]
            chosen = later.reshape(segments, SETTLED_ROWS)[some][is_late].view(np.int64)
            self._late.append((keys[chosen], values[chosen]))


# Values of the parts by which the number of all keys is estimated: within a percent.
_SAMPLED_VALUES = {"cpu": 2**19, "cuda": 2**24}
# By so many standard deviations the number of keys exceeds the estimate once in a million tables.
_DEVIATIONS = 5


def settle_parts(
    store: Storage, lists: ValueLists, parts: Iterable[GroupedBatch], n_parts: int, rows: int
) -> tuple[Storage, list[GroupedBatch]]:
    """Replace the lists' content by grouped parts; return a table of entries.

    And keys whose runs are too long. Parts are stored one after another: beside the table there are
    only a few of them.

    Parameters
    ----------
    store : Storage
        It has no keys, and is the table if the entries fit.
    lists : ValueLists
    parts : iterable of GroupedBatch
        Each has the keys of an equal range of hashes by ascending hash, or none.
    n_parts, rows : int
        How many there are, and their values or more.
    """
    backend = store.backend
    long: list[GroupedBatch] = []
    filled: PartLists | None = None
    fill: SortedFill | None = None
    for batches, share in _sample_parts(parts, n_parts, _SAMPLED_VALUES[backend.name]):
        if filled is None:
            if not batches:
                break
            sample = backend.xp.concatenate([batch.values for batch in batches])
            filled = PartLists(backend, lists, sample, rows)
            keys = sum(len(batch.keys) for batch in batches)
            if share < 1:
                keys = math.ceil((keys + _DEVIATIONS * math.sqrt(keys)) / share)
            store = store.emptied(filled.entry, keys)
            fill = SortedFill(store.slots)
        while batches:
            batch = _with_short_runs(backend, batches.pop(0), long)
            entries = filled.add(batch)
            if fill is not None and fill.rows + len(batch.keys) > store.capacity:
                # More than estimated.
                fill.finish()
                fill = None
            if fill is not None:
                fill.add(batch.keys, entries)
            else:
                store.make_room(len(batch.keys))
                store.commit(store.replacing(batch.keys, entries))
    if fill is not None:
        fill.finish()
    if filled is not None:
        filled.finish()
    return store, long


def _sample_parts(
    parts: Iterable[GroupedBatch], n_parts: int, least: int
) -> Iterator[tuple[list[GroupedBatch], float]]:
    """Yield a sample of parts with its share of all, then part by part."""
    waiting: list[GroupedBatch] = []
    size = 0
    for number, batch in enumerate(parts, 1):
        waiting.append(batch)
        size += len(batch.values)
        if size >= least or number == n_parts:
            yield [each for each in waiting if len(each.keys)], number / n_parts
            waiting = []


def _with_short_runs(
    backend: Backend, batch: GroupedBatch, long: list[GroupedBatch]
) -> GroupedBatch:
    """Return a batch without its longest runs, which are appended to `long`."""
    if batch.starts is None or len(batch.values) <= LONGEST_RUN:
        return batch
    lengths = batch.starts[1:] - batch.starts[:-1]
    for row in backend.to_host(backend.xp.flatnonzero(lengths > LONGEST_RUN)).tolist():
        first, end = backend.to_host(batch.starts[row : row + 2]).tolist()
        long.append(GroupedBatch(batch.keys[row : row + 1], None, batch.values[first:end]))
    return select_keys(backend, batch, lambda _, lengths: lengths <= LONGEST_RUN)


class PartLists:
    """Build empty lists from runs of values in steps; `finish` makes them usable.

    Parameters
    ----------
    backend : Backend
    lists : ValueLists
    sample : array
        Some of the values.
    rows : int
        Values of all parts, or more.
    """

    def __init__(self, backend: Backend, lists: ValueLists, sample: Any, rows: int) -> None:
        check_slots(rows)
        lists.clear()
        self._backend, self._lists, self._rows = backend, lists, rows
        lists._numbering = ListNumberRange.beside(backend, sample, rows)
        # What is not written takes no memory on a CPU.
        self._pool = backend.empty(rows, lists._value)
        self._starts = backend.empty(rows + 1, np.uint32 if rows < 2**32 else np.uint64)
        self._used = self._settled = self._added = 0

    @property
    def entry(self) -> np.dtype[Any]:
        """Dtype of entries."""
        return self._lists._numbering.entry

    def add(self, batch: GroupedBatch) -> Any:
        """Add the runs of some keys, at most `LONGEST_RUN` each; return their entries."""
        backend, lists, numbering = self._backend, self._lists, self._lists._numbering
        runs, values = len(batch.keys), batch.values
        self._added += len(values)
        firsts, places = lists._count_lists(values, batch.starts, runs)
        listed, size = int(firsts[-1]), int(places[-1])
        if not listed and self.entry == values.dtype:
            return values
        entries = backend.empty(runs, self.entry)
        begins, stretches = backend.empty(listed + 1, np.int64), backend.empty(listed, np.uint64)
        begins[listed:] = size
        lists._number(
            values, batch.starts, entries,
            lists=firsts, places=places, begins=begins, stretches=stretches,
        )  # fmt: skip
        end = self._used + size
        lists._pool = values
        lists._move(
            kernel_named("list_gather", values.dtype),
            begins, stretches, self._pool[self._used : end],
        )  # fmt: skip
        starts = begins[:listed].astype(self._starts.dtype)
        starts += self._starts.dtype.type(self._used)
        self._starts[self._settled : self._settled + listed] = starts
        if self._settled:
            # Numbers are those of this part.
            word = self.entry.type
            is_listed = entries - word(numbering.base) < word(numbering.span)
            entries += is_listed * word(self._settled)
        self._settled, self._used = self._settled + listed, end
        return entries

    def finish(self) -> None:
        """Give the lists all added runs."""
        lists, backend = self._lists, self._backend
        self._starts[self._settled] = self._used
        lists._pool = self._pool[: self._used]
        lists._starts = self._starts[: self._settled + 1]
        if backend.name != "cpu":
            lists._pool, lists._starts = lists._pool.copy(), lists._starts.copy()
        lists._used, lists._settled, lists.appended = self._used, self._settled, self._added
