"""Exact sums and means of Arrow decimals by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash import backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.aggregates.states import States

_HALF = 2**32 - 1
_DIGITS = 38


class DecimalRangeError(KeyTypeError, OverflowError):
    """A sum of decimals with more digits than Arrow's widest type of 128 bits."""


def sums(states: States, options: Options) -> Any:
    """Return the sum of each group's decimals, with 38 digits.

    Raises
    ------
    DecimalRangeError
        When a sum has more digits.
    """
    scale = states.values.dtype.pyarrow_dtype.scale
    void = states.void(options.least(0), options)
    return _decimals(_totals(states), void, pa.decimal128(_DIGITS, scale))


def means(states: States, options: Options) -> Any:
    """Return the mean of each group's decimals in their own type, halves rounded away from zero."""
    totals, counts = _totals(states), np.maximum(states.count, 1)
    low, high = totals
    if (high == low.view(np.int64) >> 63).all():
        words = low.view(np.int64)
        size = np.abs(words).view(np.uint64)
        whole, rest = np.divmod(size, counts.astype(np.uint64))
        whole += rest * np.uint64(2) >= counts.astype(np.uint64)
        signed = np.where(words < 0, -whole.view(np.int64), whole.view(np.int64))
        made = signed.view(np.uint64), signed >> 63
    else:
        exact = [
            _round(total, int(count))
            for total, count in zip(_integers(totals), counts, strict=True)
        ]
        made = (
            np.array([each & (2**64 - 1) for each in exact], np.uint64),
            np.array([each >> 64 for each in exact], np.int64),
        )
    return _decimals(made, states.void(1, options), states.values.dtype.pyarrow_dtype)


def _round(total: int, count: int) -> int:
    whole, rest = divmod(abs(total), count)
    whole += 2 * rest >= count
    return -whole if total < 0 else whole


def part_sums(values: Values, codes: Any, groups: int) -> tuple[Any, ...]:
    """Return sums of unscaled decimals as four 32-bit limbs, lowest first, in int64.

    The parts of the sums of several parts of the rows can be added up. `codes` are the groups of
    the values that are not null.
    """
    array = pa.chunked_array(pa.array(values.series, from_pandas=True))
    words = np.concatenate([_words(chunk) for chunk in array.chunks] or [np.empty((0, 2), "<u8")])
    if values.read is not None:
        words = words[values.read]
    low, high = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]).view(np.int64)
    narrow = low.view(np.int64)
    if (high == narrow >> 63).all() and _sum_fits(narrow):
        (total,) = _add(codes, groups, [narrow])
        sign = total >> 63
        return total & _HALF, (total >> 32) & _HALF, sign & _HALF, sign
    halves = [low & _HALF, low >> np.uint64(32), high & _HALF, high >> 32]
    parts = _add(codes, groups, [each.view(np.int64) for each in halves])
    return _carry(parts)


def _carry(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return limbs after carrying, all but the last below 2^32."""
    parts = [each.copy() for each in parts]
    for place in range(3):
        parts[place + 1] += parts[place] >> 32
        parts[place] &= _HALF
    return tuple(parts)


def _totals(states: States) -> tuple[Any, Any]:
    """Return the low and high words of the unscaled sums."""
    parts = _carry(states.decimal_parts)
    over = parts[3] != parts[3].astype(np.int32)
    totals = (parts[0] | parts[1] << 32).view(np.uint64), parts[2] | parts[3] << 32
    if over.any() or _too_long(totals):
        raise DecimalRangeError(
            f"a sum of decimals has more than {_DIGITS} digits; divide the column by a power of "
            "ten, or convert it with .astype('float64')"
        )
    return totals


def _words(array: Any) -> Any:
    """Return the two words of each decimal in an Arrow array; undefined for nulls."""
    words = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def _sum_fits(values: Any) -> bool:
    """Return whether no sum of these integers can leave int64."""
    if not len(values):
        return True
    return max(int(values.max()), -int(values.min())) * len(values) < 2**63


def _add(codes: Any, groups: int, columns: list[Any]) -> list[Any]:
    reductions = [ColumnReduction(column, "i8", "integer", "sum") for column in columns]
    words = reduce_groups(backend.get("cpu"), codes, groups, reductions)
    return [each.view(np.int64) for each in words]


def _too_long(totals: tuple[Any, Any]) -> bool:
    """Return whether a sum has more than 38 digits."""
    most = 10**_DIGITS
    high = totals[1]
    near = (high >= most >> 64) | (high <= -(most >> 64) - 1)
    return any(
        abs(total) >= most for total in _integers((totals[0][near], high[near]))
    )  # fmt: skip


def _integers(totals: tuple[Any, Any]) -> list[int]:
    low, high = totals
    return [(above << 64) | below for below, above in zip(low.tolist(), high.tolist(), strict=True)]


def _decimals(totals: tuple[Any, Any], void: Any, dtype: Any) -> Any:
    """Return unscaled values as an array of decimals, null where a mask is set."""
    low, high = totals
    words = np.stack([low, high.view(np.uint64)], axis=1)
    there = pa.array(~np.asarray(void, bool)).buffers()[1] if np.any(void) else None
    made = pa.Array.from_buffers(dtype, len(low), [there, pa.py_buffer(words)])
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([made]))
