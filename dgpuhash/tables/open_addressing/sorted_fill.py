"""Slots that are filled with keys in the order of their hashes, some at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named
from dgpuhash.tables.open_addressing.slots import SETTLED_ROWS, Slots

# Keys of which those in the last bucket are looked for; it seldom has as many.
_LAST_KEYS = 2**6


class SortedFill:
    """Fills empty slots with distinct keys, each batch behind the one before; `finish` ends it.

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
        """Store pairs by ascending hash, none of which is below those before."""
        self.rows += len(keys)
        self._slots.taken_bound = self.rows
        join = self._backend.xp.concatenate
        keys, values = join([self._kept[0], keys]), join([self._kept[1], values])
        end = self._last_begin(keys)
        self._store(keys[:end], values[:end])
        self._kept = keys[end:].copy(), values[end:].copy()

    def finish(self) -> None:
        """Store what waits."""
        slots, join = self._slots, self._backend.xp.concatenate
        self._store(*self._kept)
        late = [join(column) for column in zip(*self._late, strict=True)]
        slots._state[0] = self.rows - (len(late[0]) if late else 0)
        slots._change()
        if late:
            slots.replace(*late)

    def _last_begin(self, keys: Any) -> int:
        """Return where the keys of the last bucket begin."""
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
