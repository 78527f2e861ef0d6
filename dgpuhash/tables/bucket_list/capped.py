"""Value lists that keep the smallest values only."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.arguments.encoding import values_of
from dgpuhash.tables.bucket_list.grouping import GroupedBatch
from dgpuhash.tables.bucket_list.pool import NO_VALUES, ValueLists, list_numbers
from dgpuhash.tables.bucket_list.table import OpenedBatch


class Cap:
    """How many values of each key stay: the smallest ones.

    Parameters
    ----------
    backend : Backend
    most : int
    dtype : dtype
        The integers that words of values stand for.
    """

    def __init__(self, backend: Backend, most: int, dtype: np.dtype[Any]) -> None:
        self._backend = backend
        self.most: int = most
        self._dtype = dtype

    def cut(self, batch: GroupedBatch) -> GroupedBatch:
        """Return a batch without the values that have no place beside others of the batch."""
        if batch.starts is None:
            return batch
        lengths = batch.starts[1:] - batch.starts[:-1]
        over = self._backend.xp.flatnonzero(lengths > self.most)
        if not len(over):
            return batch
        return self._cut(batch, lengths, over)

    def _cut(self, batch: GroupedBatch, lengths: Any, over: Any) -> GroupedBatch:
        backend, xp = self._backend, self._backend.xp
        places, offsets = _places(backend, batch.starts[over], lengths[over])
        words = batch.values[places]
        ordered, ranks, _ = self._smallest_first(words, offsets)
        stays = ranks < self.most
        # Those that stay take the first places of their run.
        values, kept = batch.values.copy(), xp.ones(len(batch.values), bool)
        values[places] = words[ordered]
        kept[places] = stays
        return GroupedBatch(
            batch.keys, _sums(backend, xp.minimum(lengths, self.most)), values[kept], batch.by_hash
        )

    def beside(self, lists: ValueLists, opened: OpenedBatch) -> OpenedBatch:
        """Return what is left of a batch that was cut, where the keys' lists have values."""
        xp, batch = self._backend.xp, opened.batch
        starts, handles, entries = batch.starts, opened.handles, opened.entries
        lengths, counts = starts[1:] - starts[:-1], lists.count(handles)
        is_over = (counts > 0) & (counts + lengths > self.most)
        over, rest = xp.flatnonzero(is_over), xp.flatnonzero(~is_over)
        if not len(over):
            return opened
        stored, _ = lists.gather(handles[over], entries)
        merged, n_stored = self._merged(batch, stored, counts[over], lengths[over], over)
        changed = xp.flatnonzero(n_stored < self.most)
        places, offsets = _places(self._backend, starts[rest], lengths[rest])
        rows = xp.concatenate([rest, over[changed]])
        ends = offsets[-1] + self.most * xp.arange(1, len(changed) + 1, dtype=np.int64)
        whole = merged.reshape(-1, self.most)[changed]
        found = handles[rows] != np.uint64(NO_VALUES)
        found[len(rest) :] = False
        # Handles of only values are numbers of rows.
        left_entries = entries[rows]
        made = lists.open(left_entries, found.astype(np.uint8))
        left = GroupedBatch(
            batch.keys[rows],
            xp.concatenate([offsets, ends]),
            xp.concatenate([batch.values[places], whole.ravel()]),
        )
        replaced = int(counts[over[changed]].sum())
        return OpenedBatch(left, made, left_entries, opened.new, replaced)

    def _merged(
        self, batch: GroupedBatch, stored: Any, counts: Any, lengths: Any, over: Any
    ) -> tuple[Any, Any]:
        """Return the smallest values of some keys, one key after another.

        And how many of each key's are stored ones.
        """
        backend, xp = self._backend, self._backend.xp
        places, _ = _places(backend, batch.starts[over], lengths)
        offsets = _sums(backend, counts + lengths)
        # Stored values come first: of equal ones they stay.
        words = backend.empty(int(offsets[-1]), stored.dtype)
        of_stored, _ = _places(backend, offsets[:-1], counts)
        of_new, _ = _places(backend, offsets[:-1] + counts, lengths)
        words[of_stored], words[of_new] = stored, batch.values[places]
        is_stored = xp.zeros(len(words), bool)
        is_stored[of_stored] = True
        ordered, ranks, owners = self._smallest_first(words, offsets)
        stays = ranks < self.most
        n_stored = xp.bincount(owners[stays & is_stored[ordered]], minlength=len(counts))
        return words[ordered][stays], n_stored

    def _smallest_first(self, words: Any, offsets: Any) -> tuple[Any, Any, Any]:
        """Return the order of all runs by value, each place's rank in its run, and its run."""
        backend, xp = self._backend, self._backend.xp
        owners = list_numbers(backend, offsets, len(words))
        values = values_of(backend, words, self._dtype)
        wide = values.astype(np.int64 if self._dtype.kind == "i" else np.uint64)
        ranks = xp.arange(len(words), dtype=np.int64) - offsets[owners]
        is_ascending = (wide[1:] >= wide[:-1]) | (owners[1:] != owners[:-1])
        if bool(is_ascending.all()):
            return xp.arange(len(words)), ranks, owners
        order = backend.stable_order(wide)
        return order[backend.stable_order(owners[order])], ranks, owners


def _places(backend: Backend, starts: Any, lengths: Any) -> tuple[Any, Any]:
    """Return the places of runs, one run after another, and where each run's begin.

    No run is empty.
    """
    xp = backend.xp
    offsets = _sums(backend, lengths)
    n = int(offsets[-1])
    return (starts - offsets[:-1])[list_numbers(backend, offsets, n)] + xp.arange(n), offsets


def _sums(backend: Backend, sizes: Any) -> Any:
    """Return where each of these sizes begins, and the last one's end (int64)."""
    sums = backend.zeros(len(sizes) + 1, np.int64)
    backend.xp.cumsum(sizes, dtype=np.int64, out=sums[1:])
    return sums
