"""Group pairs from a stream of batches, by partitions of the key hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.partition import Partitioned, digits_of, run_pass
from dgpuhash.backend.unnamed_file import UnnamedFile
from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.pool import list_numbers

Keep = Callable[[Any, Any], Any]
"""Takes distinct keys, and how many values each has (int64); returns a mask."""

# Log2 of the parts to which batches are dealt out.
_PARTS_BITS = {"cpu": 10, "cuda": 6}
# Rows for which memory is asked at once: so much of it goes back to the system when it is free.
_BLOCK_ROWS = {"cpu": 2**23, "cuda": 0}
# Neighbouring parts are grouped together: about so many rows, on a CPU what lies in the caches.
_PART_ROWS = {"cpu": 2**19, "cuda": 2**24}
# Rows that are grouped at once, where values may be left out: keys of more rows are folded.
_MOST_ROWS = {"cpu": 2**21, "cuda": 2**27}


class _Held(NamedTuple):
    """Batch in partition order, with the partitions' offsets."""

    keys: Any
    values: Any
    bounds: np.ndarray


class _Written(NamedTuple):
    """Rows of each partition in a file: offsets of keys and values, and their number."""

    keys: np.ndarray
    values: np.ndarray
    sizes: np.ndarray


class DealtPairs:
    """Pairs of key and value words, partitioned by the highest hash bits.

    What is more than `memory` bytes goes to an `UnnamedFile`.

    Parameters
    ----------
    backend : Backend
        Where the pairs are.
    seed : int
        Of the hash.
    memory : int or None
        Bytes; None: all stay in memory.

    Attributes
    ----------
    rows : int
    """

    def __init__(self, backend: Backend, seed: int, memory: int | None = None) -> None:
        self._backend, self._seed, self._memory = backend, seed, memory
        self._bits = _PARTS_BITS[backend.name]
        self._held: list[_Held] = []
        self._held_nbytes = 0
        # What `_held` is in; the last one has room for some rows more.
        self._blocks: list[Partitioned] = []
        self._spare: list[Partitioned] = []
        self._free = 0
        self._file = UnnamedFile("pairs of keys and values")
        self._written: list[_Written] = []
        self._dtypes: tuple[Any, Any] = (None, None)
        self.rows: int = 0

    def append(self, keys: Any, values: Any) -> None:
        """Add a batch, keeping the order of its rows."""
        backend, parts = self._backend, 2**self._bits
        (digit,) = digits_of(backend, parts, self._seed, spread=parts)
        room = self._room(len(keys), keys.dtype, values.dtype)
        moved, bounds = run_pass(backend, keys, values, digit, to=room)
        bounds = backend.to_host(bounds).astype(np.int64)
        self._held.append(_Held(moved.keys, moved.values, bounds))
        self._dtypes = keys.dtype, values.dtype
        self.rows += len(keys)
        self._held_nbytes += keys.nbytes + values.nbytes
        if self._memory is not None and self._held_nbytes > self._memory:
            self._spill()

    def _room(self, rows: int, key: np.dtype[Any], value: np.dtype[Any]) -> Partitioned:
        """Return arrays for a batch."""
        if self._free < rows:
            n, empty = max(rows, _BLOCK_ROWS[self._backend.name]), self._backend.empty
            if self._spare and len(self._spare[-1].keys) >= rows:
                block = self._spare.pop()
            else:
                block = Partitioned(empty(n, key), empty(n, value), None)
            self._blocks.append(block)
            self._free = len(block.keys)
        block = self._blocks[-1]
        first = len(block.keys) - self._free
        self._free -= rows
        span = slice(first, first + rows)
        return Partitioned(block.keys[span], block.values[span], None)

    @property
    def bits(self) -> int:
        """Log2 of the number of parts to group separately."""
        parts = -(-self.rows // _PART_ROWS[self._backend.name])
        return min(max(parts - 1, 0).bit_length(), self._bits)

    def parts(self, most: int | None) -> Iterator[Iterator[tuple[Any, Any]]]:
        """Yield for each part, in hash order, an iterator of its pairs in order.

        They come about `most` rows at a time, or the share of one batch; None: all at once.
        """
        width = 2 ** (self._bits - self.bits)
        for first in range(0, 2**self._bits, width):
            yield self._pieces(self._shares(first, first + width), most)

    def close(self) -> None:
        """Free the memory and the file."""
        self._held, self._blocks, self._spare, self._written = [], [], [], []
        self._file.close()

    def _shares(self, first: int, last: int) -> Iterator[tuple[Any, Any]]:
        """Yield each write's, or each batch's, rows of the parts [first, last)."""
        key, value = self._dtypes
        for written in self._written:
            for part in range(first, last):
                n = int(written.sizes[part])
                if n:
                    keys = self._file.read(int(written.keys[part]), n, key)
                    values = self._file.read(int(written.values[part]), n, value)
                    yield self._backend.from_host(keys), self._backend.from_host(values)
        for held in self._held:
            start, end = held.bounds[[first, last]].tolist()
            if end > start:
                yield held.keys[start:end], held.values[start:end]

    def _pieces(
        self, shares: Iterator[tuple[Any, Any]], most: int | None
    ) -> Iterator[tuple[Any, Any]]:
        """Yield shares joined to about `most` rows."""
        gathered: list[tuple[Any, Any]] = []
        size = 0
        for keys, values in shares:
            if gathered and most is not None and size + len(keys) > most:
                yield self._join(gathered)
                gathered, size = [], 0
            gathered.append((keys, values))
            size += len(keys)
        if gathered:
            yield self._join(gathered)

    def _join(self, shares: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        if len(shares) == 1:
            return shares[0]
        keys, values = zip(*shares, strict=True)
        join = self._backend.xp.concatenate
        return join(keys), join(values)

    def _spill(self) -> None:
        """Write the buffered batches to the file."""
        backend, written = self._backend, self._written
        made: list[_Written] = []
        self._written = []
        for part in range(2**self._bits):
            pieces = self._pieces(self._shares(part, part + 1), _MOST_ROWS[backend.name])
            for number, piece in enumerate(pieces):
                if number == len(made):
                    made.append(_Written(*np.zeros((3, 2**self._bits), np.int64)))
                places = (self._file.append(backend.to_host(each)) for each in piece)
                to = made[number]
                to.keys[part], to.values[part], to.sizes[part] = *places, len(piece[0])
        self._written = written + made
        self._held, self._held_nbytes = [], 0
        self._blocks, self._spare, self._free = [], self._blocks, 0


def grouped_parts(
    backend: Backend,
    dealt: DealtPairs,
    seed: int,
    cut: Callable[[GroupedBatch], GroupedBatch] | None,
) -> Iterator[GroupedBatch]:
    """Yield the pairs of each part grouped by key, in arrival order within a key.

    The keys are in the order of ascending hash.

    Parameters
    ----------
    backend : Backend
    dealt : DealtPairs
    seed : int
        Of the hash.
    cut : callable or None
        Takes out of a grouped batch the values that have no place beside others, whatever the
        order in which they come.
    """
    bits, (key, value) = dealt.bits, dealt._dtypes
    none = GroupedBatch(backend.empty(0, key), None, backend.empty(0, value))
    for part in dealt.parts(None if cut is None else _MOST_ROWS[backend.name]):
        made = none
        for keys, values in part:
            if len(made.keys):
                before = _pairs(backend, made)
                keys, values = map(backend.xp.concatenate, zip(before, (keys, values), strict=True))
            made = group_by_key(backend, keys, values, seed, None, bits)
            if cut is not None:
                made = cut(made)
        yield _in_order(backend, made, seed)


def _in_order(backend: Backend, batch: GroupedBatch, seed: int) -> GroupedBatch:
    """Return a batch with its keys sorted by hash."""
    if batch.by_hash or not len(batch.keys):
        return batch
    xp, starts = backend.xp, batch.starts
    order = backend.stable_order(backend.hash_keys(batch.keys, seed))
    if starts is None:
        return GroupedBatch(batch.keys[order], None, batch.values[order], by_hash=True)
    sizes = (starts[1:] - starts[:-1])[order]
    ends = backend.zeros(len(sizes) + 1, np.int64)
    xp.cumsum(sizes, out=ends[1:])
    owners = list_numbers(backend, ends, len(batch.values))
    places = xp.arange(len(batch.values)) + (starts[:-1][order] - ends[:-1])[owners]
    return GroupedBatch(batch.keys[order], ends, batch.values[places], by_hash=True)


def select_keys(backend: Backend, batch: GroupedBatch, keep: Keep) -> GroupedBatch:
    """Return a batch with the keys selected by `keep`."""
    xp, starts = backend.xp, batch.starts
    if not len(batch.keys):
        return batch
    if starts is None:
        starts = xp.arange(len(batch.keys) + 1, dtype=np.int64)
    lengths = starts[1:] - starts[:-1]
    stays = keep(batch.keys, lengths)
    if bool(stays.all()):
        return batch
    left = backend.zeros(int(stays.sum()) + 1, np.int64)
    xp.cumsum(lengths[stays], out=left[1:])
    rows = stays[list_numbers(backend, starts, len(batch.values))]
    return GroupedBatch(batch.keys[stays], left, batch.values[rows], batch.by_hash)


def _pairs(backend: Backend, batch: GroupedBatch) -> tuple[Any, Any]:
    if batch.starts is None:
        return batch.keys, batch.values
    return batch.keys[list_numbers(backend, batch.starts, len(batch.values))], batch.values
