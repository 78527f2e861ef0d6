"""The aggregates: which states each needs, and how its result follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.frames.groupby.aggregates import decimals, ordered
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.refusals import SpanRangeError
from dgpuhash.frames.groupby.aggregates.states import States, codes_of
from dgpuhash.frames.groupby.aggregates.values import Values


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of one column.

    Attributes
    ----------
    result : function
        The values of the groups, from the states of a column and the options.
    states : tuple of str
        The states that it is computed from, beside the count; see `states`.
    needs_rows : bool
        Whether it needs the rows as well, so that states of parts do not suffice.
    labels : bool
        Whether the values are positions of rows, for which their labels are given.
    numbers : bool
        Whether objects that are numbers are aggregated as such.
    objects : bool
        Whether the results are objects then.
    """

    result: Callable[[States, Options], Any]
    states: tuple[str, ...] = ()
    needs_rows: bool = False
    labels: bool = False
    numbers: bool = False
    objects: bool = True


def _void(states: States, least: int, options: Options, counts: Any = None) -> Any:
    """Return a mask of the groups without a result: too few values, or a null that counts.

    `counts` are those of the values; by default of all that are not null.
    """
    void = (states.count if counts is None else counts) < least
    return void if options.skipna else void | (states.count < states.groups.sizes)


def _count(states: States, _: Options) -> Any:
    return states.values.results(states.count)


def _size(states: States, _: Options) -> Any:
    values, sizes = states.values, states.groups.sizes
    if values.kind == "text":
        return ordered.text_sizes(values, sizes)
    return values.results(sizes)


def _sum(states: States, options: Options) -> Any:
    values = states.values
    void = _void(states, options.least(0), options)
    if values.kind == "text":
        return ordered.joined(states, void)
    if values.kind == "object":
        return ordered.added(states, void)
    if values.kind == "timedelta":
        _check_range(states, void)
        return values.ticks(states.sum, void)
    if values.kind == "complex":
        return ordered.complex_sums(states, void)
    if values.kind == "decimal":
        return decimals.sums(states, void)
    states.check_digits("sum", "real")
    return _with_stray(states, _narrowed(states.sum, values), void)


def _with_stray(states: States, results: Any, void: Any) -> Any:
    """Return results, NaN for groups with a NaN that is no null."""
    if states.stray is not None:
        results = np.where(states.stray, results.dtype.type(np.nan), results)
    return states.results(results, void)


def _check_range(states: States, void: Any) -> None:
    """Raise SpanRangeError where a sum of spans is none."""
    high, low = states.wide
    high = high + (low >> 32)
    wrong = high != high.astype(np.int32)
    wrong |= (states.sum == np.iinfo(np.int64).min) & (states.count > 0)
    if (wrong & ~void).any():
        raise SpanRangeError("overflow in timedelta operation")


def _narrowed(sums: Any, values: Values) -> Any:
    """Return sums in the dtype of the values where that holds all of them, as pandas does."""
    if values.kind == "bool":
        return sums
    if values.kind == "float":
        return values.cast(sums)
    narrow = sums.astype(values.plain)
    return narrow if len(sums) == 0 or (narrow == sums).all() else sums


def _mean(states: States, options: Options) -> Any:
    values = states.values
    void = _void(states, 1, options)
    if values.kind == "complex":
        means = ordered.complex_sums(states, void) / np.maximum(states.count, 1)
        return means.astype(values.plain)
    if values.kind == "decimal":
        return decimals.means(states, void)
    if values.are_ticks:
        return values.ticks(states.whole_means(void), void)
    states.check_digits("mean", "real")
    found = states.mean + values.origin
    groups = states.groups
    # pandas adds up NumPy's floats of few bits in float64 where groups follow each other.
    wide = groups.of_parts or (values.nulls is None and groups.follow)
    if values.storage != "numpy" or not wide:
        found = values.cast(found)
    return _with_stray(states, found, void)


def _variance(states: States, options: Options, how: str) -> tuple[Any, Any]:
    """Return variances, and a mask of the groups with too few values."""
    states.check_digits(how, "moment")
    void = _void(states, options.ddof + 1, options)
    freedom = np.where(void, 1, states.count - options.ddof)
    return np.maximum(states.words["moment"], 0) / freedom, void


def _var(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "var")
    return _with_stray(states, states.values.cast(found), void)


def _std(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "std")
    return _spread(states, np.sqrt(found), void)


def _sem(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "sem")
    return _spread(states, np.sqrt(found / np.maximum(states.count, 1)), void)


def _spread(states: States, found: Any, void: Any) -> Any:
    values = states.values
    if values.kind in {"datetime", "timedelta"}:
        if (found[~void] >= 2.0**63).any():
            raise SpanRangeError(
                f"a deviation of {values.dtype} is longer than the longest span of its unit; give "
                "the column a longer one, such as seconds"
            )
        return values.spans(found, void)
    return _with_stray(states, values.cast(found, wide=np.float64), void)


def _prod(states: States, options: Options) -> Any:
    values = states.values
    void = _void(states, options.least(0), options)
    if values.kind == "object":
        return ordered.multiplied(states, void)
    return _with_stray(states, _narrowed(ordered.products(states), values), void)


def _extreme(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        values = states.values
        void = _void(states, max(options.least(-1), 1), options, states.ordered_count)
        if not values.is_number:
            return states.value_of(name, void)
        found = states.extreme(name)
        if values.are_ticks:
            return values.ticks(found, void)
        return values.results(found.astype(values.plain), void)

    return result


def _end(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        found, void = states.end(name, options.least(-1), nulls=not options.skipna)
        if states.values.kind == "object":
            found[void] = None
        return found

    return result


def _truth(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        found = states.words[name] != 0
        values, nulls = states.values, states.count < states.groups.sizes
        if values.kind == "timedelta" and values.storage == "arrow":
            return found
        if options.skipna or not nulls.any():
            return values.results(found)
        if values.kind == "object":
            # pandas.NA is neither true nor false.
            for each in values.series[values.nulls]:
                bool(each)
        decided = found if name == "any" else ~found
        if states.values.storage == "numpy":
            return found | nulls if name == "any" else found
        return states.values.results(found, nulls & ~decided)

    return result


def _position(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, _: Options) -> Any:
        values, codes = states.values, codes_of(states)
        column = values.sortable if values.read is None else values.sortable[values.read]
        wanted = states.extreme(name).astype(column.dtype)
        hits = np.flatnonzero(column == wanted[codes])
        rows = np.full(len(states.groups), -1, np.int64)
        # Of several rows of a group the one written last stays: the first.
        rows[codes[hits[::-1]]] = hits[::-1]
        return states.rows_of(rows)

    return result


AGGREGATES: dict[str, Aggregate] = {
    "size": Aggregate(_size),
    "count": Aggregate(_count),
    "sum": Aggregate(_sum, ("sum",), numbers=True),
    "mean": Aggregate(_mean, ("total",), numbers=True),
    "min": Aggregate(_extreme("least"), ("least",), numbers=True),
    "max": Aggregate(_extreme("greatest"), ("greatest",), numbers=True),
    "first": Aggregate(_end("first"), ("first",)),
    "last": Aggregate(_end("last"), ("last",)),
    "any": Aggregate(_truth("any"), ("any",)),
    "all": Aggregate(_truth("all"), ("all",)),
    "var": Aggregate(_var, ("moment",), numbers=True),
    "std": Aggregate(_std, ("moment",), numbers=True, objects=False),
    "sem": Aggregate(_sem, ("moment",), numbers=True, objects=False),
    "prod": Aggregate(_prod, needs_rows=True, numbers=True),
    "nunique": Aggregate(ordered.distinct, needs_rows=True),
    "median": Aggregate(ordered.medians, needs_rows=True, numbers=True),
    "quantile": Aggregate(ordered.quantiles, needs_rows=True),
    "idxmin": Aggregate(_position("least"), ("least",), needs_rows=True, labels=True),
    "idxmax": Aggregate(_position("greatest"), ("greatest",), needs_rows=True, labels=True),
    "list": Aggregate(ordered.lists, needs_rows=True),
    "unique": Aggregate(ordered.distinct_values, needs_rows=True),
}
"""Every aggregate by its name."""
