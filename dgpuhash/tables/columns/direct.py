"""Direct-address tables for dense integer keys: array[key - least] → row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.native import native
from dgpuhash.tables.cached import cached

# Slots for each key at most, and slots that are few whatever the number of keys.
_SLOTS_OF_A_KEY, _FEW_SLOTS = 4, 2**18
# Keys that are processed at once: what is computed of them stays in the cache.
_BATCH = 2**14
# One thread addresses keys directly in a third to a seventh of the time that it takes for a hash
# table, which all threads fill and search where there are many keys.
_MOST_THREADS, _SERIAL_ROWS = 4, 2**17
_SIGNED = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def addresses_directly(backend: Backend, rows: int) -> bool:
    """Return whether direct address is faster than hashing for dense keys of some rows."""
    if backend.name != "cpu":
        return False
    return rows <= _SERIAL_ROWS or bool(native().threads() <= _MOST_THREADS)


class DirectTable:
    """Direct-address table of integer keys: an array with a slot for each number.

    Keys need no hash there, and a lookup reads one slot. Keys are words, uint32 or uint64. There
    are at most four slots for each key, or 2**18 slots where as many keys will be looked up.

    Examples
    --------
    >>> table = DirectTable.rows_of(np.array([7, 9], np.uint32), probes=3)
    >>> table.find(np.array([9, 8, 7], np.uint32))
    array([ 1, -1,  0])
    """

    def __init__(self, least: Any, slots: Any) -> None:
        self._least, self._slots = least, slots

    @classmethod
    def first_rows_of(cls, keys: Any, probes: int, rows: Any = None) -> DirectTable | None:
        """Return the table of the first row of each key; None if keys are not dense.

        `probes` keys will be looked up. Without `rows`, rows are numbered from 0.
        """
        span = _span(keys, probes)
        if span is None:
            return None
        least, size = span
        last = len(keys) - 1 if rows is None else int(rows.max())
        slots: Any = np.full(size + 1, -1, _row_dtype(last))
        for start in reversed(range(0, len(keys), _BATCH)):
            # Of several rows of a key, NumPy keeps the one that it writes last: the first.
            backwards = _offsets(keys[start : start + _BATCH], least)[::-1]
            if rows is None:
                numbers = np.arange(start, start + len(backwards), dtype=slots.dtype)
            else:
                numbers = rows[start : start + _BATCH]
            slots[backwards] = numbers[::-1]
        return cls(least, slots)

    @classmethod
    def rows_of(cls, keys: Any, probes: int, rows: Any = None) -> DirectTable | None:
        """Return the table of `first_rows_of`; None also if keys repeat."""
        table = cls.first_rows_of(keys, probes, rows)
        return None if table is None or len(table) < len(keys) else table

    @classmethod
    def set_of(cls, keys: Any, probes: int) -> DirectTable | None:
        """Return the table of key presence; None if keys are not dense.

        Keys may repeat.
        """
        span = _span(keys, probes)
        if span is None:
            return None
        least, size = span
        slots = np.zeros(size + 1, bool)
        for start in range(0, len(keys), _BATCH):
            slots[_offsets(keys[start : start + _BATCH], least)] = True
        return cls(least, slots)

    def __len__(self) -> int:
        """Return the number of distinct keys."""
        return int(np.count_nonzero(self._slots >= 0))

    @property
    def rows(self) -> Any:
        """The rows in the order of their keys."""
        return self._slots[self._slots >= 0].astype(np.int64, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the table."""
        return int(self._slots.nbytes)

    def find(self, keys: Any, counts: Any = None) -> Any:
        """Return the row of each key, -1 for none; for a set, whether the key is present.

        `counts` receives how many keys are there of each batch of `batch_rows`.
        """
        slots, found = self._slots, np.empty(len(keys), self._slots.dtype)
        # The last slot is empty.
        last = keys.dtype.type(min(len(slots) - 1, np.iinfo(keys.dtype).max))
        for number, start in enumerate(range(0, len(keys), _BATCH)):
            batch = slice(start, start + _BATCH)
            offsets = keys[batch] - self._least
            np.minimum(offsets, last, out=offsets)
            slots.take(offsets.astype(np.intp, copy=False), out=found[batch], mode="clip")
            if counts is not None:
                counts[number] = np.count_nonzero(found[batch] >= 0)
        return found if found.dtype == bool else found.astype(np.int64, copy=False)

    def find_counted(self, keys: Any) -> tuple[Any, Any, int]:
        """Return the row of each key, and counts; see `GroupTable.find_counted`."""
        counts = np.empty(math.ceil(len(keys) / _BATCH), np.uint64)
        return self.find(keys, counts), counts, _BATCH


def _span(keys: Any, probes: int) -> tuple[Any, int] | None:
    """Return the least key and the number of slots; None for too many slots."""
    if not len(keys) or keys.dtype.itemsize not in _SIGNED:
        return None
    # Negative numbers are large words, which stand before the others.
    signed = keys.view(_SIGNED[keys.dtype.itemsize])
    most = max(_SLOTS_OF_A_KEY * len(keys), min(probes, _FEW_SLOTS))
    # Two keys are enough to see that most keys are not dense.
    if abs(signed.item(0) - signed.item(-1)) >= most:
        return None
    least = signed.min()
    size = int(signed.max()) - int(least) + 1
    return None if size > most else (least.view(keys.dtype), size)


def _offsets(keys: Any, least: Any) -> Any:
    return (keys - least).astype(np.intp, copy=False)


def _row_dtype(last: int) -> type[np.signedinteger[Any]]:
    return np.int32 if last < 2**31 else np.int64


class DenseKeys:
    """Integer keys of one or several columns, with a slot for each combination of values.

    Parameters
    ----------
    columns : list of arrays
        Of integers or booleans, the first of which counts most.
    leasts : list of int
        The least value of each column.
    spans : list of int
        How many values there may be in each column from the least one on.

    Examples
    --------
    >>> keys = DenseKeys.of([np.array([7, 9, 7, 9]), np.array([1, 1, 1, 2])])
    >>> keys.numbers()
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    >>> keys.counts()
    array([1, 0, 2])
    """

    def __init__(self, columns: Sequence[Any], leasts: list[int], spans: list[int]) -> None:
        self._columns, self._leasts, self._spans = columns, leasts, spans
        self._size = math.prod(spans)

    @classmethod
    def of(cls, columns: Sequence[Any], slots: int = _SLOTS_OF_A_KEY) -> DenseKeys | None:
        """Return the keys of columns; None if they are not integers or not dense.

        There are at most so many `slots` for each row.
        """
        rows = len(columns[0])
        if not rows or any(
            not isinstance(each, np.ndarray) or each.dtype.kind not in "iub" for each in columns
        ):
            return None
        numbers, leasts, spans = [], [], []
        for column in columns:
            column = column.view(np.uint8) if column.dtype.kind == "b" else column
            least = int(column.min())
            numbers.append(column)
            leasts.append(least)
            spans.append(int(column.max()) - least + 1)
            if math.prod(spans) > slots * rows:
                return None
        return cls(numbers, leasts, spans)

    def numbers(self, *, of_rows: bool = True) -> tuple[Any, Any]:
        """Return the number of each row's key, and the first row of each key.

        Keys are numbered in order of first appearance. Without `of_rows` the first is None.
        """
        return self.numbered_slots(of_rows=of_rows)[1:]

    def numbered_slots(self, *, of_rows: bool) -> tuple[Any, Any, Any]:
        """Return a slot for each key with its number, and the result of `numbers`.

        Slots without a key are -1, and so is one more slot at the end.
        """
        rows = len(self._columns[0])
        slots = np.full(self._size + 1, -1, _row_dtype(rows))
        numbers = np.empty(rows, np.int64) if of_rows else None
        first = [np.empty(0, np.int64)]
        found = 0
        for start, at in self._batches():
            if found < self._size:
                known: Any = slots.take(at) if found else None
                new = np.arange(len(at)) if known is None else np.flatnonzero(known < 0)
                if len(new):
                    fresh = at if known is None else at[new]
                    # Of several rows of a key the one written last stays: the first.
                    slots[fresh[::-1]] = new[::-1]
                    new = new[slots.take(fresh) == new]
                    slots[at[new]] = np.arange(found, found + len(new), dtype=slots.dtype)
                    first.append(start + new)
                    found += len(new)
                elif numbers is not None:
                    numbers[start : start + len(at)] = known
                    continue
            elif numbers is None:
                break
            if numbers is not None:
                numbers[start : start + len(at)] = slots.take(at)
        return slots, numbers, np.concatenate(first)

    def counts(self) -> Any:
        """Return the number of keys for each value of the first column, from the least on."""
        there = np.zeros(self._size, bool)
        for _, at in self._batches():
            there[at] = True
        return np.count_nonzero(there.reshape(self._spans[0], -1), axis=1)

    def _batches(self) -> Iterator[tuple[int, Any]]:
        """Yield the first row of each batch, and the slots of its rows' keys."""
        for start in range(0, len(self._columns[0]), _BATCH):
            total: Any = None
            for column, least, span in zip(self._columns, self._leasts, self._spans, strict=True):
                batch = column[start : start + _BATCH]
                above = (batch - batch.dtype.type(least)).view(f"u{batch.dtype.itemsize}")
                above = above.astype(np.intp, copy=False)
                total = above if total is None else total * span + above
            yield start, total


class DirectKeys:
    """Distinct dense keys of a batch, with first rows; see `DistinctKeys`.

    Parameters
    ----------
    words : array of uint32 or uint64
        Canonical key words.
    least, size
        The least word, and the number of slots from it on.

    Examples
    --------
    >>> keys = DirectKeys.of(np.array([9, 7, 9], np.uint32))
    >>> len(keys), keys.first_rows()
    (2, array([0, 1]))
    """

    def __init__(self, words: Any, least: Any, size: int) -> None:
        self._words, self._least = words, least
        signed = words.view(_SIGNED[words.dtype.itemsize])
        self._dense = DenseKeys([signed], [int(least.view(signed.dtype))], [size])

    @classmethod
    def of(cls, words: Any) -> DirectKeys | None:
        """Return the distinct keys of words; None if they are not dense."""
        span = _span(words, len(words))
        return None if span is None else cls(words, *span)

    @cached
    def _table(self) -> DirectTable:
        table = DirectTable.first_rows_of(self._words, len(self._words))
        assert table is not None, "the keys are dense"
        return table

    @cached
    def _count(self) -> int:
        return len(self._table)

    def __len__(self) -> int:
        return self._count

    def find(self, words: Any) -> tuple[Any, Any, int]:
        """Return the first rows of keys; see `GroupTable.find_counted`."""
        return self._table.find_counted(words)

    def first_rows(self) -> Any:
        """Return the first row (int64) of each key, in order."""
        return self._dense.numbers(of_rows=False)[1]

    def numbers(self) -> tuple[DirectTable, Any, Any]:
        """Return the table of the keys' numbers, the first rows, and the rows' numbers."""
        slots, numbers, first_rows = self._dense.numbered_slots(of_rows=True)
        return DirectTable(self._least, slots), first_rows, numbers

    def grouped(self, words: Any) -> tuple[DirectTable, Any]:
        """Return the table of the keys' numbers, and the rows' numbers."""
        return self.numbers()[::2]
