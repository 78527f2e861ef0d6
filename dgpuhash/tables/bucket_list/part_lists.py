"""Value lists that are settled part by part, of keys that are in one part each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.tables.bucket_list.grouping import GroupedBatch
from dgpuhash.tables.bucket_list.pool import LONGEST_RUN, ValueLists, check_slots
from dgpuhash.tables.bucket_list.streaming import kept
from dgpuhash.tables.bucket_list.tags import ListNumberRange
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.open_addressing.sorted_fill import SortedFill

# Values of the parts by which the number of all keys is estimated: within a percent.
_SAMPLED_VALUES = {"cpu": 2**19, "cuda": 2**24}
# By so many standard deviations the number of keys exceeds the estimate once in a million tables.
_DEVIATIONS = 5


def settle_parts(
    store: Storage, lists: ValueLists, parts: Iterable[GroupedBatch], n_parts: int, rows: int
) -> tuple[Storage, list[GroupedBatch]]:
    """Replace the content of the lists by grouped parts; return a table of entries.

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
    for batches, share in _sampled(parts, n_parts, _SAMPLED_VALUES[backend.name]):
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


def _sampled(
    parts: Iterable[GroupedBatch], n_parts: int, least: int
) -> Iterator[tuple[list[GroupedBatch], float]]:
    """Yield parts with so many values or all first, and their share of all; then part by part."""
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
    """Return a batch without its longest runs, which go to `long`."""
    if batch.starts is None or len(batch.values) <= LONGEST_RUN:
        return batch
    lengths = batch.starts[1:] - batch.starts[:-1]
    for row in backend.to_host(backend.xp.flatnonzero(lengths > LONGEST_RUN)).tolist():
        first, end = backend.to_host(batch.starts[row : row + 2]).tolist()
        long.append(GroupedBatch(batch.keys[row : row + 1], None, batch.values[first:end]))
    return kept(backend, batch, lambda _, lengths: lengths <= LONGEST_RUN)


class PartLists:
    """Runs of values that go to empty lists, some at a time; `finish` makes the lists usable.

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
        """Take the runs of some keys, none longer than `LONGEST_RUN`; return their entries."""
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
        """Give the lists what was added."""
        lists, backend = self._lists, self._backend
        self._starts[self._settled] = self._used
        lists._pool = self._pool[: self._used]
        lists._starts = self._starts[: self._settled + 1]
        if backend.name != "cpu":
            lists._pool, lists._starts = lists._pool.copy(), lists._starts.copy()
        lists._used, lists._settled, lists.appended = self._used, self._settled, self._added
