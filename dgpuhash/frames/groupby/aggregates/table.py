"""Table of the aggregates: the states needed by each, and the result from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.frames.groupby.aggregates.options import Options, SpanRangeError
from dgpuhash.frames.groupby.aggregates.states import States


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of one column, for any library.

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


def _count(states: States, _: Options) -> Any:
    return states.values.counts(states.count)


def _size(states: States, _: Options) -> Any:
    return states.values.sizes(states.groups.sizes)


def _sum(states: States, options: Options) -> Any:
    values = states.values
    if values.kind in states.own.SUMS:
        return states.own.SUMS[values.kind](states, options)
    void = states.void(options.least(0), options)
    if values.kind == "timedelta":
        if not values.wraps:
            _check_range(states, void)
        return values.ticks(states.sum, void)
    if states.may_lose:
        states.check_digits("sum", "real")
    return _with_stray(states, values.narrowed(states.sum), void)


def _with_stray(states: States, results: Any, void: Any) -> Any:
    """Return results with NaN for groups that have a non-null NaN."""
    if states.stray is not None:
        results = states.xp.where(states.stray, results.dtype.type(np.nan), results)
    if states.groups.keeps_nan:
        return states.values.results(results, void)
    return states.results(results, void)


def _check_range(states: States, void: Any) -> None:
    """Raise SpanRangeError if a sum of durations overflows."""
    high, low = states.wide
    high = high + (low >> 32)
    wrong = high != high.astype(np.int32)
    wrong |= (states.sum == np.iinfo(np.int64).min) & (states.count > 0)
    if (wrong & ~void).any():
        raise SpanRangeError("overflow in timedelta operation")


def _mean(states: States, options: Options) -> Any:
    values = states.values
    if values.kind in states.own.MEANS:
        return states.own.MEANS[values.kind](states, options)
    void = states.void(1, options)
    if values.are_ticks:
        return values.ticks(states.whole_means(), void)
    if states.may_lose:
        states.check_digits("mean", "real")
    found = states.mean + values.origin
    groups = states.groups
    # pandas adds up NumPy's floats of few bits in float64 where groups follow each other.
    if values.storage != "numpy" or not (
        groups.of_parts or (values.nulls is None and groups.follow)
    ):
        found = values.cast(found)
    return _with_stray(states, found, void)


def _variance(states: States, options: Options, how: str) -> tuple[Any, Any]:
    """Return variances, and a mask of the groups with too few values."""
    if states.may_lose:
        states.check_digits(how, "moment")
    void = states.void(options.ddof + 1, options)
    freedom = states.count - options.ddof
    if void is not None:
        freedom = states.xp.where(void, 1, freedom)
    return states.xp.maximum(states.squares, 0) / freedom, void


def _var(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "var")
    return _with_stray(states, states.values.cast(found), void)


def _std(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "std")
    return _spread(states, np.sqrt(found), void)


def _sem(states: States, options: Options) -> Any:
    found, void = _variance(states, options, "sem")
    return _spread(states, np.sqrt(found / states.xp.maximum(states.count, 1)), void)


def _spread(states: States, found: Any, void: Any) -> Any:
    values = states.values
    if values.kind in {"datetime", "timedelta"}:
        if (found[~void] >= 2.0**63).any():
            raise SpanRangeError(
                f"a deviation of {values.dtype} exceeds the longest duration of its unit; "
                f"convert the column to a coarser unit, such as seconds"
            )
        return values.spans(found, void)
    return _with_stray(states, values.cast(found, wide=np.float64), void)


def _prod(states: States, options: Options) -> Any:
    values = states.values
    if values.kind == "object":
        return states.own.multiply_objects(states, options)
    found = values.narrowed(states.products)
    return _with_stray(states, found, states.void(options.least(0), options))


def _extreme(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        values = states.values
        void = states.void(max(options.least(-1), 1), options, states.ordered_count)
        if not values.is_number:
            return states.value_of(name, void)
        found = states.extreme(name)
        if values.are_ticks:
            return values.ticks(found, void)
        return values.results(found.astype(values.numbers_dtype, copy=False), void)

    return result


def _end(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        return states.end(name, options.least(-1), nulls=not options.skipna)

    return result


def _truth(name: str) -> Callable[[States, Options], Any]:
    def result(states: States, options: Options) -> Any:
        nulls = None if options.skipna else states.count < states.groups.sizes
        return states.values.decide(states.words[name] != 0, name, nulls)

    return result


def _position(name: str) -> Callable[[States, Options], Any]:
    return lambda states, _: states.rows_with(name)


def _own(name: str) -> Callable[[States, Options], Any]:
    """Return the library-specific implementation of an aggregate."""
    return lambda states, options: getattr(states.own, name)(states, options)


AGGREGATES: dict[str, Aggregate] = {
    "size": Aggregate(_size),
    "count": Aggregate(_count, ("count",)),
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
    "prod": Aggregate(_prod, ("count",), needs_rows=True, numbers=True),
    "nunique": Aggregate(_own("distinct"), ("count",), needs_rows=True),
    "median": Aggregate(_own("medians"), ("count",), needs_rows=True, numbers=True),
    "quantile": Aggregate(_own("quantiles"), ("count",), needs_rows=True),
    "idxmin": Aggregate(_position("least"), ("least", "count"), needs_rows=True, labels=True),
    "idxmax": Aggregate(_position("greatest"), ("greatest", "count"), needs_rows=True, labels=True),
    "list": Aggregate(_own("lists"), needs_rows=True),
    "unique": Aggregate(_own("distinct_values"), needs_rows=True),
}
"""Every aggregate by its name."""
