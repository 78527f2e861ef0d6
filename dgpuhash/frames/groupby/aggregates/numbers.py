"""Compensated sums: a float and its rounding error, as a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups

_LOW = np.int64(2**32 - 1)

Pair = tuple[Any, Any]


def _two_sum(a: Any, b: Any) -> Pair:
    """Return the sum of two floats and its rounding error (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _settle(high: Any, low: Any) -> Pair:
    total = high + low
    return total, low - (total - high)


def _finite(total: Any, rest: Any) -> Pair:
    """Return a pair with error 0 if the sum is not finite."""
    return total, np.where(np.isfinite(total), rest, 0.0)


def add_pairs(ours: Pair, theirs: Pair) -> Pair:
    """Return the sums of pairs.

    Examples
    --------
    >>> total, rest = add_pairs((1e16, 1.0), (1.0, 0.0))
    >>> float(total), float(rest)
    (1.0000000000000002e+16, 0.0)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        high, error = _two_sum(ours[0], theirs[0])
        low, rest = _two_sum(ours[1], theirs[1])
        total, error = _settle(high, error + low)
        total, error = _settle(total, error + rest)
        return _finite(np.where(np.isfinite(high), total, high), error)


def difference(ours: Pair, theirs: Pair) -> Any:
    """Return the differences of pairs as floats."""
    return add_pairs(ours, (-theirs[0], -theirs[1]))[0]


def apart(left: Any, right: Any) -> Any:
    """Return differences of int64 numbers as float64, rounded once.

    Examples
    --------
    >>> apart(np.array([2**63 - 1]), np.array([-(2**63)])).tolist() == [2.0**64]
    True
    """
    high = (left >> 32) - (right >> 32)
    return high.astype(np.float64) * 2.0**32 + ((left & _LOW) - (right & _LOW))


def _split(value: Any) -> Pair:
    """Return two floats of half the digits that sum to a float (Veltkamp)."""
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


def times(pair: Pair, factor: Any) -> Pair:
    """Return pairs multiplied by integers of less than 54 bits."""
    n = _floats(factor)
    product = pair[0] * n
    (a, b), (c, d) = _split(pair[0]), _split(n)
    return _settle(product, ((a * c - product) + a * d + b * c) + b * d + pair[1] * n)


def _floats(numbers: Any) -> Any:
    """Return numbers, or an array of them on any device, as float64."""
    return numbers.astype(np.float64) if hasattr(numbers, "astype") else np.float64(numbers)


def mean_of(total: Pair, count: Any) -> Pair:
    """Return means from sums as pairs and counts; NaN for count 0."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        n = _floats(count)
        mean = total[0] / n
        product = mean * n
        (a, b), (c, d) = _split(mean), _split(n)
        error = ((a * c - product) + a * d + b * c) + b * d
        rest = ((total[0] - product) - error + total[1]) / n
        rest = np.where(np.isfinite(rest), rest, 0.0)
        return _finite(*_settle(mean, rest))


def of_integers(values: Any) -> Pair:
    """Return int64 or uint64 numbers as pairs.

    Examples
    --------
    >>> [float(each[0]) for each in of_integers(np.array([2**53 + 1]))]
    [9007199254740992.0, 1.0]
    """
    high = (values >> 32).astype(np.float64) * 2.0**32
    low = (values & values.dtype.type(2**32 - 1)).astype(np.float64)
    return _two_sum(high, low)


def of_words(high: Any, low: Any) -> Pair:
    """Return ``high * 2**32 + low`` of int64 numbers as pairs."""
    above, below = of_integers(high)
    return add_pairs((above * 2.0**32, below * 2.0**32), of_integers(low))


def real_sums(codes: Any, groups: int, values: Any) -> Pair:
    """Return the sum of each group's values as pairs, without NaNs.

    What each addition rounds off is added up beside the sum (Ogita, Rump and Oishi, 2005).

    Parameters
    ----------
    codes : int64 array
        The group of each value; on any device.
    groups : int
        The number of groups.
    values : float64 array
    """
    device = backend.get(None, codes)
    column = ColumnReduction(device.xp.ascontiguousarray(values), "f8", "real", "pair")
    (words,) = reduce_groups(device, codes, groups, [column])
    return pairs_of(words)


def pairs_of(words: Any) -> Pair:
    """Return the sums of the kernels' fold ``pair`` as pairs."""
    sums, excess = words.view(np.float64).T
    with np.errstate(invalid="ignore", over="ignore"):
        total, rest = _settle(sums, -excess)
        return _finite(np.where(np.isfinite(sums), total, sums), rest)


def _integer_sums(codes: Any, groups: int, columns: list[Any]) -> tuple[Any, ...]:
    """Return the sums of int64 columns by group, on their device."""
    reductions = [ColumnReduction(column, "i8", "integer", "sum") for column in columns]
    words = reduce_groups(backend.get(None, codes), codes, groups, reductions)
    return tuple(each.view(np.int64) for each in words)


def wide_sums(codes: Any, groups: int, values: Any) -> tuple[Any, Any]:
    """Return sums of integers by group in two words: ``high * 2**32 + low``, both int64.

    Examples
    --------
    >>> high, low = wide_sums(np.zeros(4, np.int64), 1, np.full(4, 2**62))
    >>> int(high[0]) * 2**32 + int(low[0]) == 2**64
    True
    """
    bound = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
    if bound * len(values) < 2**63:
        (whole,) = _integer_sums(codes, groups, [values.astype(np.int64, copy=False)])
        return whole >> 32, whole & _LOW
    high = (values >> 32).astype(np.int64)
    low = (values & values.dtype.type(_LOW)).astype(np.int64)
    return _integer_sums(codes, groups, [high, low])  # type: ignore[return-value]


def whole_means(high: Any, low: Any, counts: Any) -> Any:
    """Return ``(high * 2**32 + low) / counts`` of int64, truncated to zero; 0 for count 0.

    Parameters
    ----------
    high, low : int64 array
        Sums in two words as `wide_sums` gives them, or sums and differences of such.
    counts : int64 array
        How many numbers were added up, fewer than 2**31; on the same device.

    Examples
    --------
    >>> whole_means(np.array([-1]), np.array([2**32 - 7]), np.array([2])).tolist()
    [-3]
    """
    n = counts + (counts < 1)
    high, low = high + (low >> 32), low & _LOW
    above = high // n
    below = ((high - above * n) << np.int64(32)) + low
    more = below // n
    made = (above << np.int64(32)) + more
    return made + ((made < 0) & (below > more * n))
