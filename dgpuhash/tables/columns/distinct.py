"""Find and number the distinct keys of a batch, with a compacting hash table.

The table is that of Alcantara's thesis (2011), §6.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.kernel import WIDE_WORD
from dgpuhash.seeds import draw_seed, seed_of_generation
from dgpuhash.tables.arguments.combine import change_of
from dgpuhash.tables.columns.direct import DirectKeys, DirectTable, addresses_directly
from dgpuhash.tables.columns.group_table import GroupTable
from dgpuhash.tables.open_addressing.growth import Storage

# Load factor of a table in which each row may have a key of its own.
_MAX_LOAD = 0.6
# Sampled rows for the estimate; smaller batches get a table with room for as many keys as rows.
_ROW = np.dtype(np.uint64)
_SAMPLE_ROWS = {"cpu": 2**16, "cuda": 2**20}
# Batches that one thread of a CPU numbers in the order of rows, in a third of the time: its table
# begins with room for few keys, and grows. Where there is one thread it takes all of them, 8 * 10^6
# rows in 55 to 85 percent of the time.
_IN_ORDER_ROWS = {"cpu": 2**17, "cuda": 0}
_FIRST_KEYS, _GROWTH = 2**14, 8
# Fewer keys are numbered faster by this table's one kernel than directly, by NumPy's many calls.
_FEWEST_DIRECT = 2**12
# A table of estimated size counts as full when a probe passes this many cache lines. In a table
# with room for all rows, a probe is this long only when someone has chosen the keys for its seed.
_GUESSED_LINES, _CLOSE_LINES = 2**6, 2**8


@dataclass(frozen=True, slots=True)
class DistinctEstimate:
    """Estimated number of distinct keys in a batch."""

    least: int
    """Distinct keys seen, a lower bound."""
    expected: int

    @staticmethod
    def of(backend: Backend, bits: Any) -> DistinctEstimate:
        """Return an estimate from equidistant sample rows."""
        rows, most = len(bits), _SAMPLE_ROWS[backend.name]
        if rows <= most:
            return DistinctEstimate(min(rows, 1), rows)
        sample = backend.asarray(bits[:: rows // most])
        slots = backend.empty(len(sample), np.int64)
        for seed, most_lines in _tries(draw_seed()):
            table = GroupTable(
                backend, bits.dtype, 2 * len(sample), seed=seed, most_lines=most_lines
            )
            seen = table.place(sample, slots, repeats=True)
            if seen is not None:
                break
        assert seen is not None, "every row of the sample has room"
        return DistinctEstimate(seen, min(rows, estimate_distinct(seen, len(sample))))


def _tries(seed: int) -> Iterator[tuple[int, int | None]]:
    """Yield seeds to try in turn, and a bound of the cache lines per probe.

    The tables have room for all rows; the last try has no bound (None).
    """
    for generation, most_lines in enumerate((_CLOSE_LINES, _CLOSE_LINES, None)):
        yield seed_of_generation(seed, generation), most_lines


def build_group_table(
    backend: Backend,
    bits: Any,
    estimate: DistinctEstimate,
    work: Callable[[GroupTable, bool], Any],
    folds: Sequence[str] = (),
    *,
    seed: int | None = None,
) -> tuple[GroupTable, Any]:
    """Return a table filled by `work` with the keys, and its result.

    `work` gets an empty table and whether most keys are expected to repeat; it returns None when a
    key found no place. Without `seed`, a random one is drawn; other seeds follow when the keys
    collide as if they had been chosen for the seed.
    """
    seed = draw_seed() if seed is None else seed
    rows = len(bits)
    surely = math.ceil(rows / _MAX_LOAD) + 1
    # A few frequent keys can hide many keys that the sample misses.
    guessed = 2 * max(estimate.expected, min(_SAMPLE_ROWS[backend.name], rows))
    repeats = 2 * estimate.expected <= rows
    if guessed < surely:
        table = GroupTable(
            backend, bits.dtype, guessed, seed=seed, most_lines=_GUESSED_LINES, folds=folds
        )
        given = work(table, repeats)
        if given is not None:
            return table, given
        del table
    for each, most_lines in _tries(seed):
        table = GroupTable(
            backend, bits.dtype, surely, seed=each, most_lines=most_lines, folds=folds
        )
        given = work(table, repeats)
        if given is not None or most_lines is None:
            return table, given
        del table
    raise AssertionError("the last try has no bound")


def _number_in_order(
    backend: Backend, bits: Any, codes: Any, seed: int | None
) -> tuple[GroupTable, Any]:
    """Return a table with the numbers of keys, and their first rows; write the rows' `codes`.

    The table begins small, and grows with the keys.
    """
    rows = len(bits)
    most = min(rows, _FIRST_KEYS)
    first_rows, reached = backend.empty(rows, np.int64), backend.zeros(2, np.uint64)
    tries = _tries(draw_seed() if seed is None else seed)
    each, most_lines = next(tries)
    while True:
        table = GroupTable(
            backend, bits.dtype, math.ceil(most / _MAX_LOAD) + 1, seed=each, most_lines=most_lines
        )
        if numbered := int(reached[1]):
            again = backend.zeros(2, np.uint64)
            table.number_in_order(bits[first_rows[:numbered]], None, None, again, rows + 1)
            if int(again[1]) < numbered:
                each, most_lines = next(tries)
                continue
        table.number_in_order(bits, codes, first_rows, reached, most)
        done, numbered = (int(number) for number in reached)
        if done == rows:
            few = 2 * numbered <= rows
            return table, first_rows[:numbered].copy() if few else first_rows[:numbered]
        if numbered == most:
            most = min(rows, _GROWTH * most)
        else:
            each, most_lines = next(tries)


class DistinctKeys:
    """Distinct keys of a batch, each with its first row.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    bits : array of uint32 or uint64
        Canonical key words.
    numbered, grouped : bool
        Whether `numbers`, or `grouped`, will be called.
    """

    def __init__(
        self,
        backend: Backend,
        bits: Any,
        estimate: DistinctEstimate | None = None,
        *,
        numbered: bool = True,
        grouped: bool = False,
        seed: int | None = None,
    ) -> None:
        self._backend, self._rows = backend, len(bits)
        self._first_rows: Any = None
        in_order = len(bits) <= _IN_ORDER_ROWS[backend.name] or backend.is_serial
        # `grouped` looks keys up that several threads have placed.
        noted = numbered or (grouped and in_order)
        self._slots: Any = backend.empty(len(bits), np.int64) if noted else None
        if in_order:
            self._table, self._first_rows = _number_in_order(backend, bits, self._slots, seed)
            self._count = len(self._first_rows)
            return
        self._table, self._count = build_group_table(
            backend,
            bits,
            estimate or DistinctEstimate.of(backend, bits),
            lambda table, repeats: table.place(bits, self._slots, repeats=repeats),
            seed=seed,
        )

    def __len__(self) -> int:
        return self._count

    def find(self, bits: Any) -> tuple[Any, Any, int]:
        """Return the first rows of keys; see `GroupTable.find_counted`."""
        words, counts, segment_rows = self._table.find_counted(bits)
        if self._first_rows is not None and self._count < self._rows:
            # Words are numbers; number -1 (no key) indexes the last element.
            none = self._backend.full(1, -1, np.int64)
            words = self._backend.xp.concatenate([self._first_rows, none])[words]
        return words, counts, segment_rows

    def first_rows(self) -> Any:
        """Return the first row (int64) of each key, in order."""
        if self._first_rows is not None:
            return self._first_rows
        return self._table.first_rows(self._rows)

    def numbers(self) -> tuple[GroupTable, Any, Any]:
        """Return the table with numbers for first rows, the first rows, and codes.

        This object cannot be used afterwards.
        """
        if self._first_rows is not None:
            return self._table, self._first_rows, self._slots
        rows = self._rows
        if len(self) < rows:
            first_rows = self._table.number(rows)
            self._table.codes(self._slots)
            return self._table, first_rows, self._slots
        # Without duplicates each row is a first row, and its number is the row number.
        numbers = self._backend.xp.arange(rows, dtype=np.int64)
        return self._table, numbers, numbers.copy()

    def grouped(self, bits: Any) -> tuple[GroupTable, Any]:
        """Return the table with numbers for first rows, in any order, and codes.

        `bits` are the same keys. This object cannot be used afterwards.
        """
        if self._slots is not None or len(self) == self._rows:
            return self.numbers()[::2]
        self._table.enumerate()
        return self._table, self._table.find(bits)


def distinct_keys(
    backend: Backend, bits: Any, estimate: DistinctEstimate | None = None, **calls: bool
) -> DistinctKeys | DirectKeys:
    """Return the distinct keys of a batch, by direct address for dense integers.

    See `DistinctKeys` for the parameters.
    """
    if len(bits) >= _FEWEST_DIRECT and addresses_directly(backend, len(bits)):
        direct = DirectKeys.of(bits)
        if direct is not None:
            return direct
    return DistinctKeys(backend, bits, estimate, **calls)


class Factorization:
    """Distinct keys of a batch, numbered in order of first appearance.

    Numbers begin with 0.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    bits : array of uint32 or uint64
        Canonical key words.
    estimate : Estimate, optional
        Estimate of the number of distinct keys, if known.

    Attributes
    ----------
    codes : array of int64
        The number of each row's key.
    first_rows : array of int64
        The first row of each key, ascending with the key's number.
    table : GroupTable or DirectTable
        The keys with their numbers.
    """

    def __init__(
        self, backend: Backend, bits: Any, estimate: DistinctEstimate | None = None
    ) -> None:
        self.table: GroupTable | DirectTable
        self.first_rows: Any
        self.codes: Any
        self.table, self.first_rows, self.codes = distinct_keys(backend, bits, estimate).numbers()

    def __len__(self) -> int:
        return len(self.first_rows)

    def find(self, bits: Any) -> Any:
        """Return the numbers (int64) of keys, -1 for keys outside the batch."""
        return self.table.find(bits)


def estimate_distinct(distinct: int, drawn: int) -> int:
    """Estimate the number of distinct keys from a sample, if equally frequent.

    The sample has `distinct` different keys in `drawn` draws.

    Examples
    --------
    >>> estimate_distinct(100, 100_000), 900 < estimate_distinct(632, 1000) < 1100
    (100, True)
    """
    if distinct >= drawn:
        return 2**62
    low, high = float(distinct), float(distinct)
    while high * -math.expm1(-drawn / high) < distinct and high < 2**62:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < distinct:
            low = middle
        else:
            high = middle
    return math.ceil(low)


def deduplicated_rows(backend: Backend, bits: Any, *, last: bool) -> Any | None:
    """Return the first or last row (int64) of each key, None if all differ.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> import numpy as np
    >>> deduplicated_rows(backend.get("cpu"), np.array([5, 7, 5], np.uint32), last=True).tolist()
    [1, 2]
    """
    if len(bits) < 2:
        return None
    if bits.dtype == WIDE_WORD:
        return _deduplicated_records(backend, bits, "max" if last else "min")
    placed = distinct_keys(backend, backend.asarray(bits[::-1]) if last else bits, numbered=False)
    if len(placed) == len(bits):
        return None
    rows = placed.first_rows()
    return len(bits) - 1 - rows[::-1] if last else rows


def _deduplicated_records(backend: Backend, bits: Any, combine: str) -> Any | None:
    """Return the first ("min") or last ("max") row of each key of 16 bytes, None if all differ."""
    rows = len(bits)
    numbers = backend.xp.arange(rows, dtype=_ROW)
    table = Storage(backend, bits.dtype, _ROW, seed=draw_seed(), capacity=rows)
    table.combine(bits, numbers, change_of(combine, _ROW))
    if len(table) == rows:
        return None
    return backend.xp.flatnonzero(table.find(bits)[0] == numbers)
