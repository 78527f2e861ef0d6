"""Sort rows by their keys, in linear time for numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.backend.batch.partition import sort_by_word
from dgpuhash.tables.columns.direct import DirectTable

# Fewer rows are compared with each other.
_FEW_ROWS = 2**12
# Bits that are sorted by at once, and of numbers that may lie close together.
_WORD, _MOST_BITS = 32, 48
_SIGN = {4: np.uint32(1 << 31), 8: np.uint64(1 << 63)}


def sorted_rows(columns: Sequence[Any]) -> Any:
    """Return the sort order of rows by several columns, the first one most significant.

    Rows that are equal in all columns stay in order, as by ``numpy.lexsort(columns[::-1])``.

    Examples
    --------
    >>> sorted_rows([np.array([2, 1, 2, 1]), np.array([0.5, 7, 0.25, 7])])
    array([1, 3, 2, 0])
    """
    if len(columns[0]) < _FEW_ROWS:
        return np.lexsort(columns[::-1])
    if len(columns) == 1:
        found = _order_by_address(columns[0])
        if found is not None:
            return found
    order = None
    for column in reversed(columns):
        numbers = _as_unsigned(column)
        if numbers is None:
            step = np.argsort(column if order is None else column.take(order), kind="stable")
            order = step if order is None else order.take(step)
            continue
        for word, bits in _words(numbers):
            rows = np.arange(len(word)) if order is None else order
            word = word if order is None else word.take(order)
            _, moved = sort_by_word(backend.get("cpu"), word, rows.view(np.uint64), bits=bits)
            order = moved.view(np.int64)
    return np.arange(len(columns[0])) if order is None else order


def values_in_order(codes: Any, values: Any) -> Any:
    """Return values sorted by their non-negative codes.

    Values of one code stay in order.

    Examples
    --------
    >>> values_in_order(np.array([2, 0, 2]), np.array([0.5, 7, 0.25]))
    array([7.  , 0.5 , 0.25])
    """
    bits = int(codes.max(initial=0)).bit_length()
    if len(codes) < _FEW_ROWS or bits > _WORD or values.itemsize not in _SIGN:
        return values.take(sorted_rows([codes])) if len(codes) else values
    if bits == 0:
        return values.copy()
    words = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    _, moved = sort_by_word(backend.get("cpu"), codes.astype(np.uint32), words, bits=bits)
    return moved.view(values.dtype)


def _order_by_address(column: Any) -> Any | None:
    """Return the sort order of distinct, dense integers by address; None for others."""
    if column.dtype.kind not in "iu" or column.dtype.itemsize < 4:
        return None
    offsets = _above_least(column)
    most = int(offsets.max())
    if most >> _MOST_BITS or most + 1 < len(column):
        return None
    table = DirectTable.rows_of(offsets, probes=0)
    return None if table is None else table.rows


def _above_least(column: Any) -> Any:
    """Return integers minus their minimum."""
    return (column - column.min()).view(np.dtype(f"u{column.dtype.itemsize}"))


def _as_unsigned(column: Any) -> Any | None:
    """Return unsigned integers in the order of a column; None if NumPy must compare."""
    kind, nbytes = column.dtype.kind, column.dtype.itemsize
    if kind == "b":
        return column.view(np.uint8)
    if kind in "iu":
        return _above_least(column)
    if kind != "f" or nbytes not in _SIGN:
        return None
    made = _bits_in_order(column)
    made -= made.min()
    return made


def _bits_in_order(floats: Any) -> Any:
    """Return unsigned integers in the order of floats, with NaN last."""
    nbytes = floats.dtype.itemsize
    # Adding zero turns -0.0 into 0.0.
    made = (floats + floats.dtype.type(0)).view(f"u{nbytes}")
    flipped = made.view(f"i{nbytes}") >> (8 * nbytes - 1)
    made ^= flipped.view(made.dtype) | _SIGN[nbytes]
    nan = np.isnan(floats)
    if nan.any():
        made[nan] = ~made.dtype.type(0)
    return made


def words_of_numbers(numbers: Any) -> Any:
    """Return uint64 words in the order of numbers of one dtype, on the same device.

    NaN is the last of all.

    Examples
    --------
    >>> words = words_of_numbers(np.array([2, -1, 0]))
    >>> np.argsort(words), numbers_of_words(words, np.dtype("int64"))
    (array([1, 2, 0]), array([ 2, -1,  0]))
    """
    if numbers.dtype.kind == "f":
        return _bits_in_order(numbers).astype(np.uint64)
    if numbers.dtype.kind == "i":
        return numbers.astype(np.int64).view(np.uint64) ^ _SIGN[8]
    return numbers.astype(np.uint64)


def numbers_of_words(words: Any, dtype: np.dtype[Any]) -> Any:
    """Return the numbers of a dtype from `words_of_numbers`; -0.0 becomes 0.0."""
    if dtype.kind == "f":
        bits = words.astype(f"u{dtype.itemsize}")
        sign = _SIGN[dtype.itemsize]
        return np.where(bits & sign, bits ^ sign, ~bits).view(dtype)
    if dtype.kind == "i":
        return (words ^ _SIGN[8]).view(np.int64).astype(dtype)
    return words.astype(dtype)


def _words(numbers: Any) -> Iterator[tuple[Any, int]]:
    """Yield words to sort unsigned numbers by, the last most significant, and their bits."""
    bits = int(numbers.max()).bit_length()
    for shift in range(0, bits, _WORD):
        word = numbers if shift == 0 else numbers >> numbers.dtype.type(shift)
        yield word.astype(np.uint32), min(_WORD, bits - shift)
