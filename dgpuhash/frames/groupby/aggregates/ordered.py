"""Aggregates over contiguous or sorted rows of each group, such as medians."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.frames.dataframes.order import sorted_rows, values_in_order
from dgpuhash.frames.groupby.aggregates import decimals
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import numbered
from dgpuhash.tables.columns.direct import DenseKeys

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.aggregates.states import States


def _by_group(states: States) -> tuple[Any, Any]:
    """Return positions of the non-null values by group, and the groups' offsets."""
    codes, there = states.groups.kept_codes, states.values.there
    codes = codes if there is None else codes[there]
    order = sorted_rows([codes]) if len(codes) else codes
    starts = np.concatenate([[0], np.cumsum(states.count)])
    return order if there is None else there[order], starts


# Groups of so many rows on average are sorted one by one, smaller ones with those of their size.
_ROWS_OF_GROUPS = 2**6
# Places of an array for each row, with which different values are counted without a hash.
_PLACES_OF_A_PAIR = 16


def join_text(states: States, options: Options) -> Any:
    """Return the concatenated text of each group."""
    values, void = states.values, states.void(options.least(0), options)
    order, starts = _by_group(states)
    texts = pa.array(values.series, type=pa.large_string(), from_pandas=True)
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    parts = pa.LargeListArray.from_arrays(pa.array(starts), texts.take(pa.array(order)))
    found = pc.binary_join(parts, pa.scalar("", pa.large_string()))
    found = pc.if_else(pa.array(void), pa.scalar(None, pa.large_string()), found)
    if isinstance(values.dtype, pd.ArrowDtype):
        cast = found.cast(values.dtype.pyarrow_dtype)
        return pd.arrays.ArrowExtensionArray(pa.chunked_array([cast]))
    return pd.Series(found.to_pandas(), dtype=values.dtype).array


def sum_objects(states: States, options: Options) -> Any:
    """Return the sum of the objects of each group, added by Python."""
    return _reduced_by_python(states, options, operator.add, 0)


def multiply_objects(states: States, options: Options) -> Any:
    """Return the product of the objects of each group by Python, with nulls as 1."""
    return _reduced_by_python(states, options, operator.mul, 1, states.groups.sizes > states.count)


def _reduced_by_python(
    states: States, options: Options, function: Callable[[Any, Any], Any], none: int,
    more: Any = None,
) -> Any:  # fmt: skip
    """Return a function's value for the objects of each group; `none` for no objects.

    It begins with `none` where a mask is set.
    """
    order, starts = _by_group(states)
    void: Any = states.void(options.least(0), options)
    # NumPy's integers would wrap.
    objects = [
        each.item() if isinstance(each, np.number | np.bool_) else each
        for each in states.values.series.to_numpy()[order]
    ]
    made = np.empty(len(states.groups), object)
    for group, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
        if void[group]:
            made[group] = np.nan
        elif start == end or (more is not None and more[group]):
            made[group] = functools.reduce(function, objects[start:end], none)
        else:
            made[group] = functools.reduce(function, objects[start:end])
    return made


def complex_sums(states: States, options: Options) -> Any:
    """Return the sums of complex numbers."""
    return _complex_sums(states, states.void(options.least(0), options))


def complex_means(states: States, options: Options) -> Any:
    """Return the means of complex numbers."""
    means = _complex_sums(states, states.void(1, options)) / np.maximum(states.count, 1)
    return means.astype(states.values.numbers_dtype)


def _complex_sums(states: States, void: Any) -> Any:
    order, starts = _by_group(states)
    made = _reduce(
        np.add, states.values.numbers[order], starts, states.values.numbers_dtype.type(0)
    )
    return np.where(void, np.nan, made)


def products(states: States) -> Any:
    """Return the product of each group's values, 1 for none: int64, uint64 or float64."""
    values = states.values
    order, starts = _by_group(states)
    wide = {"float": np.float64, "uint": np.uint64}.get(values.kind, np.int64)
    numbers = values.numbers[order].astype(wide)
    with np.errstate(over="ignore", invalid="ignore"):
        return _reduce(np.multiply, numbers, starts, wide(1))


def _reduce(ufunc: Any, numbers: Any, starts: Any, empty: Any) -> Any:
    made = np.full(len(starts) - 1, empty, numbers.dtype)
    there = starts[1:] > starts[:-1]
    if there.any():
        made[there] = ufunc.reduceat(numbers, starts[:-1][there])
    return made


def distinct(states: States, options: Options) -> Any:
    """Return the number of distinct values of each group."""
    values, codes = states.values, states.groups.kept_codes
    there = values.there
    if values.is_number and values.kind != "float" and (there is None or options.dropna):
        numbers = values.numbers if there is None else values.numbers[there]
        held = codes if there is None else codes[there]
        close = DenseKeys.of([held, numbers], _PLACES_OF_A_PAIR)
        if close is not None:
            made = np.zeros(len(states.groups), np.int64)
            least, counts = int(held.min()), close.counts()
            made[least : least + len(counts)] = counts
            return made
    codes, rows = _distinct(states, with_nulls=not options.dropna)
    return np.bincount(codes[rows], minlength=len(states.groups)).astype(np.int64)


def _distinct(states: States, *, with_nulls: bool) -> tuple[Any, Any]:
    """Return the groups of all rows, and the first row of each distinct value of each group."""
    values, codes = states.values, states.groups.kept_codes
    nulls = [] if values.nulls is None else [values.nulls]
    _, heads = numbered([values.series, codes, *nulls])
    if with_nulls or values.nulls is None:
        return codes, heads
    return codes, heads[~values.nulls[heads]]


def distinct_values(states: States, _: Options) -> Any:
    """Return an array of each group's distinct values, in order of appearance."""
    codes, rows = _distinct(states, with_nulls=True)
    return _parts(states, rows[np.argsort(codes[rows], kind="stable")], codes[rows], arrays=True)


def lists(states: States, _: Options) -> Any:
    """Return a list of all values of each group, in order."""
    codes = states.groups.kept_codes
    order = sorted_rows([codes]) if len(codes) else codes
    return _parts(states, order, codes, arrays=False)


def _parts(states: States, order: Any, codes: Any, *, arrays: bool) -> Any:
    column = states.values.series.iloc[order]
    plain = isinstance(column.dtype, np.dtype) and column.dtype.kind not in "mM"
    values = column.to_numpy() if plain else column.array
    made = np.empty(len(states.groups), object)
    ends_of = np.cumsum(np.bincount(codes, minlength=len(states.groups)))
    for group, end in enumerate(ends_of):
        start = ends_of[group - 1] if group else 0
        made[group] = values[start:end] if arrays else column.iloc[start:end].to_list()
    return made


def _select(states: States, places: Callable[[Any], tuple[Any, ...]]) -> Callable[..., Any]:
    """Return a function that selects order statistics by group and rank.

    It does so for the `places` of a group of some size.
    """
    if states.ranked is not None:
        return states.ranked
    values = states.values
    codes, numbers, unordered = states.groups.kept_codes, values.numbers, values.unordered
    if unordered is not None:
        codes, numbers = codes[~unordered], numbers[~unordered]
    if values.kind == "bool":
        numbers = numbers.astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(states.ordered_count)])
    ordered = values_in_order(codes, numbers)
    if len(states.groups) * _ROWS_OF_GROUPS <= len(codes):
        for start, end in itertools.pairwise(starts):
            if end > start:
                ordered[start:end].partition(places(end - start))
    else:
        sizes = states.ordered_count
        by_size = sorted_rows([sizes])
        edges = np.flatnonzero(np.diff(sizes[by_size], prepend=-1, append=-1))
        for first, end in itertools.pairwise(edges):
            alike = by_size[first:end]
            if (size := int(sizes[alike[0]])) > 1:
                rows = starts[alike, None] + np.arange(size)
                ordered[rows] = np.partition(ordered[rows], places(size), axis=1)
    last = len(ordered) - 1

    def at(groups: Any, where: Any) -> Any:
        if last < 0:
            return np.zeros(len(groups))
        return ordered[np.minimum(starts[groups] + where, last)]

    return at


def medians(states: States, options: Options) -> Any:
    """Return the median of each group's values."""
    values = states.values
    count = states.ordered_count
    void = states.void(1, options, count)
    at = _select(states, lambda size: ((size - 1) // 2, size // 2))
    low, high = (np.maximum(count, 1) - 1) // 2, count // 2
    groups = np.arange(len(low))
    below, above = (at(groups, place) for place in (low, high))
    made = _between(values, below, above, np.where(low < high, 0.5, 0), middle=True)
    return _result(states, made, void)


def _between(values: Values, below: Any, above: Any, share: Any, *, middle: bool) -> Any:
    """Return interpolated numbers between pairs of numbers, as float64.

    Of datetimes and spans whole ones, cut off towards zero: halves are exact. Beside infinities
    they are pandas': the mean of both in the `middle`, and otherwise a share of the way to the
    second.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if values.are_ticks:
            gap = above.view(np.uint64) - below.view(np.uint64)
            step = gap.astype(np.float64) * share
            whole = np.where(share == 0.5, gap >> np.uint64(1), step.astype(np.uint64))
            rest = np.where(share == 0.5, gap % np.uint64(2) > 0, step > whole)
            made = below + np.minimum(whole, gap).view(np.int64)
            return made + ((made < 0) & rest)
        apart = _apart(below, above)
        step = np.where(share > 0, apart * share, 0)
        made = np.where(below == above, 0, step) + below.astype(np.float64)
        if values.kind != "float" or not (beyond := (share > 0) & ~np.isfinite(apart)).any():
            return made
        endless = np.isinf(below) | np.isinf(above)
        ends = below + above if middle else below + (above - below) * share
        made = np.where(beyond & endless, ends, made)
        # Finite ones that are further apart than a float64 holds.
        return np.where(beyond & ~endless, below * (1 - share) + above * share, made)


def _apart(below: Any, above: Any) -> Any:
    """Return differences of numbers as float64, for integers of any size."""
    kind = below.dtype.kind
    if kind in "iu":
        words = (each.astype(f"{kind}8").view(np.uint64) for each in (above, below))
        return operator.sub(*words).astype(np.float64)
    return above.astype(np.float64, copy=False) - below.astype(np.float64, copy=False)


def _result(states: States, made: Any, void: Any) -> Any:
    """Return float results of groups in the dtype of the result."""
    values = states.values
    if values.are_ticks:
        return values.ticks(made, void)
    return states.results(values.cast(made, wide=np.float64), void)


def quantiles(states: States, options: Options) -> Any:
    """Return the quantiles of each group's values, concatenated for several q."""
    values, how, wanted = states.values, options.interpolation, options.shares()
    count = np.repeat(states.ordered_count, len(wanted))
    void = count < 1

    @functools.cache
    def around(size: int) -> tuple[int, ...]:
        low = np.floor(wanted * (size - 1)).astype(np.int64)
        return *low.tolist(), *np.minimum(low + 1, size - 1).tolist()

    at = _select(states, around)
    exact = np.tile(wanted, len(states.count)) * np.maximum(count - 1, 0)
    low = np.floor(exact).astype(np.int64)
    part = exact - low
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    groups = np.repeat(np.arange(len(states.count)), len(wanted))
    below, above = (at(groups, place) for place in (low, high))
    if how == "lower":
        made = below
    elif how == "higher":
        made = np.where(part > 0, above, below)
    elif how == "nearest":
        made = np.where((part > 0.5) | ((part == 0.5) & (low % 2 == 1)), above, below)
    else:
        share = np.where(part > 0, 0.5, 0) if how == "midpoint" else part
        made = _between(values, below, above, share, middle=how == "midpoint")
    return _quantiles(states, made, void, how)


def _quantiles(states: States, made: Any, void: Any, how: str) -> Any:
    values = states.values
    if values.kind == "float" and values.storage == "numpy":
        return values.results(made.astype(np.float64), void)
    if values.kind not in {"int", "uint", "bool"} or how in {"linear", "midpoint"}:
        return _result(states, made, void)
    if values.storage == "numpy":
        return values.results(np.where(void, 0, made).astype(np.int64), void)
    return values.results(made.astype(values.numbers_dtype), void)


# Sums and means of values that kernels do not read, by their kind.
SUMS = {"text": join_text, "object": sum_objects, "complex": complex_sums, "decimal": decimals.sums}
MEANS = {"complex": complex_means, "decimal": decimals.means}
