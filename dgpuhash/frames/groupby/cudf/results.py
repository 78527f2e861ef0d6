"""The aggregates of cuDF columns: which states each needs, and how its result follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import numbered, take_series
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.cudf import decimals, ranked
from dgpuhash.frames.groupby.cudf.states import CudfStates
from dgpuhash.frames.groupby.cudf.values import as_dtype, list_column

_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of one column.

    Attributes
    ----------
    result : function
        A column or Series of the values of the groups, from the states of a column and the options.
    states : function
        The states that it is computed from, from those of a column.
    numbers : function
        Whether it needs the numbers of the rows' groups: these are found first then.
    """

    result: Callable[[CudfStates, Options], Any]
    states: Callable[[CudfStates], tuple[str, ...]] = lambda _: ()
    numbers: Callable[[CudfStates], bool] = lambda _: False


def _named(*names: str) -> Callable[[CudfStates], tuple[str, ...]]:
    return lambda _: names


def _with_count(states: CudfStates, *names: str) -> tuple[str, ...]:
    """Return names of states, and that of the count where there are nulls."""
    return names if states.values.nulls is None else (*names, "count")


def _counted(*names: str) -> Callable[[CudfStates], tuple[str, ...]]:
    return lambda states: _with_count(states, *names)


def _void(states: CudfStates, least: int, options: Options) -> Any | None:
    """Return a mask of the groups without a result: too few values, or a null that counts.

    None where all have one.
    """
    if least <= 1 and states.values.nulls is None:
        return None
    void = states.count < max(least, 1)
    return void if options.skipna else void | (states.count < states.groups.sizes)


def _count(states: CudfStates, _: Options) -> Any:
    return _sizes(states, states.count)


def _size(states: CudfStates, _: Options) -> Any:
    found, dtype = _sizes(states, states.groups.sizes), states.values.dtype
    masked = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
    return as_dtype(found, "Int64") if masked and dtype.storage == "pyarrow" else found


def _sizes(states: CudfStates, sizes: Any) -> Any:
    values = states.values
    return values.plain(sizes) if values.kind in {"text", "other"} else values.results(sizes)


def _sum_states(states: CudfStates) -> tuple[str, ...]:
    kind = states.values.kind
    if kind in {"text", "decimal"}:
        return ("count",)
    return _with_count(states, "total" if kind == "float" else "sum")


def _sum(states: CudfStates, options: Options) -> Any:
    values = states.values
    if values.kind == "text":
        return _joined(states, options)
    void = _void(states, options.least(0), options)
    if values.kind == "decimal":
        return decimals.sums(states, void)
    if values.kind == "float":
        with np.errstate(over="ignore"):
            sums = _with_stray(states, states.total).astype(values.numbers.dtype, copy=False)
        return values.results(sums, void)
    sums = states.word("sum").view(np.int64)
    return values.ticks(sums, void) if values.kind == "timedelta" else values.results(sums, void)


def _with_stray(states: CudfStates, numbers: Any) -> Any:
    """Return numbers, NaN where a value of the group is NaN."""
    return numbers if states.stray is None else states.xp.where(states.stray, np.nan, numbers)


def _joined(states: CudfStates, options: Options) -> Any:
    """Return the texts of each group, one behind the other."""
    import pylibcudf as plc

    values, groups = states.values, states.groups
    rows = groups.rows_by_group
    texts = take_series(values.series, rows)
    lists = list_column(texts.fillna("") if values.nulls is not None else texts, groups.starts)
    empty = plc.Scalar.from_py("")
    joined = plc.strings.combine.join_list_elements(
        lists.to_pylibcudf()[0], empty, empty, empty,
        plc.strings.combine.SeparatorOnNulls.YES,
        plc.strings.combine.OutputIfEmptyList.EMPTY_STRING,
    )  # fmt: skip
    made = type(values.series).from_pylibcudf(joined)
    made = made if made.dtype == values.dtype else made.astype(values.dtype)
    void = states.count < options.least(0)
    if not options.skipna:
        void |= states.count < groups.sizes
    return made.where(groups.frames.series(~void)) if bool(void.any()) else made


def _mean_states(states: CudfStates) -> tuple[str, ...]:
    values = states.values
    if values.kind == "timedelta":
        return ("sum", "count") if values.sums_fit else ("high", "low", "count")
    small = values.kind in {"bool", "int", "uint"} and values.numbers.dtype.itemsize < 8
    return ("sum", "count") if small else ("total", "count")


def _mean(states: CudfStates, options: Options) -> Any:
    values, void = states.values, _void(states, 1, options)
    if values.kind == "timedelta":
        return values.ticks(states.whole_means(void), void)
    with np.errstate(invalid="ignore", divide="ignore"):
        if "sum" in _mean_states(states):
            made = states.word("sum").view(np.int64) / states.count
        else:
            made = states.mean
    if values.origin:
        made += float(values.origin)
    return values.results(_with_stray(states, made), void)


def _always(_: CudfStates) -> bool:
    return True


def _in_two_passes(states: CudfStates) -> bool:
    """Return whether squared deviations need the means first."""
    return not states.squares_add_up


def _variance_states(states: CudfStates) -> tuple[str, ...]:
    return ("sum", "square", "count") if states.squares_add_up else ("total", "count")


def _variance(states: CudfStates, options: Options) -> tuple[Any, Any]:
    """Return the variances, and which groups have none."""
    degrees = states.count - options.ddof
    with np.errstate(invalid="ignore", divide="ignore"):
        made = _with_stray(states, states.squares() / degrees)
    void, lacking = _void(states, 1, options), degrees <= 0
    return made, lacking if void is None else void | lacking


def _var(states: CudfStates, options: Options) -> Any:
    return states.values.results(*_variance(states, options))


def _std(states: CudfStates, options: Options) -> Any:
    made, void = _variance(states, options)
    return states.values.results(states.xp.sqrt(made), void)


def _sem(states: CudfStates, options: Options) -> Any:
    made, void = _variance(states, options)
    return states.values.results(states.xp.sqrt(made / states.count), void)


def _extreme(name: str) -> Callable[[CudfStates, Options], Any]:
    def result(states: CudfStates, options: Options) -> Any:
        values = states.values
        void = _void(states, options.least(-1), options)
        if not values.is_number:
            return states.value_of(name, void)
        found = states.extreme(name)
        if values.kind in {"datetime", "timedelta"}:
            return values.ticks(found, void)
        return values.results(found, void)

    return result


def _first_states(states: CudfStates) -> tuple[str, ...]:
    # Without nulls it is the first row of all, which groups have.
    return ("count",) if states.values.nulls is None else ("first", "count")


def _end(name: str) -> Callable[[CudfStates, Options], Any]:
    def result(states: CudfStates, options: Options) -> Any:
        return states.end(name, options.least(-1), nulls=not options.skipna)

    return result


def _truth(name: str) -> Callable[[CudfStates, Options], Any]:
    def result(states: CudfStates, options: Options) -> Any:
        found = states.word(name) != 0
        if name == "any" and not options.skipna:
            found |= states.count < states.groups.sizes
        values = states.values
        return values.plain(found) if values.kind == "text" else values.results(found)

    return result


def _prod(states: CudfStates, options: Options) -> Any:
    values, dtype = states.values, states.values.numbers.dtype
    with np.errstate(over="ignore"):
        made = states.products().astype(dtype if dtype.kind == "f" else np.int64, copy=False)
    return values.results(made, _void(states, options.least(0), options))


def _median(states: CudfStates, options: Options) -> Any:
    return states.values.results(*ranked.medians(states, options))


def _quantile(states: CudfStates, options: Options) -> Any:
    values = states.values
    made, void = ranked.quantiles(states, options)
    kind = values.numbers.dtype.kind
    flavoured = not isinstance(values.dtype, np.dtype) and hasattr(values.dtype, "numpy_dtype")
    masked = flavoured and not hasattr(values.dtype, "pyarrow_dtype")
    if masked and kind == "f":
        return values.results(made.astype(values.numbers.dtype), void)
    if masked:
        exact = options.interpolation in {"lower", "higher", "nearest"}
        return values.results(made.astype(values.numbers.dtype if exact else _FLOAT64), void)
    exact = kind != "f" and options.interpolation in {"lower", "higher", "nearest"}
    return values.plain(made.astype(np.int64 if exact else _FLOAT64), void)


def _nunique(states: CudfStates, options: Options) -> Any:
    return states.values.plain(ranked.distinct(states, options))


def _unique(states: CudfStates, _: Options) -> Any:
    groups, xp = states.groups, states.xp
    heads = ranked.distinct_rows(states)
    codes = groups.codes[heads]
    order = groups.backend.stable_order(codes)
    heads, codes = heads[order], codes[order]
    kept = xp.flatnonzero(codes >= 0)
    ends = xp.zeros(len(groups) + 1, np.int64)
    ends[1:] = xp.cumsum(xp.bincount(codes[kept], minlength=len(groups)))
    return list_column(take_series(_of_values(states), heads[kept]), ends)


def _list(states: CudfStates, _: Options) -> Any:
    groups = states.groups
    return list_column(take_series(_of_values(states), groups.rows_by_group), groups.starts)


def _of_values(states: CudfStates) -> Any:
    series = states.values.series
    categories = getattr(series.dtype, "categories", None)
    return series if categories is None else series.astype(categories.dtype)


def _position(name: str) -> Callable[[CudfStates, Options], Any]:
    def result(states: CudfStates, options: Options) -> Any:
        how = "idxmin" if name == "least" else "idxmax"
        if not options.skipna:
            raise SpecError(f"{how} with skipna=False")
        rows, index = states.labels_of(name)
        if len(rows) and int(rows.min()) < 0:
            raise SpecError(f"{how} with skipna=True encountered all NA values in a group.")
        if index is None:
            raise UnsupportedError(f"{how} of a column without labels")
        if index.nlevels > 1:
            return states.values.plain(rows)
        return take_series(numbered(index), rows, nulls=True)

    return result


AGGREGATES: dict[str, Aggregate] = {
    "size": Aggregate(_size),
    "count": Aggregate(_count, _named("count")),
    "sum": Aggregate(_sum, _sum_states),
    "mean": Aggregate(_mean, _mean_states),
    "min": Aggregate(_extreme("least"), _counted("least")),
    "max": Aggregate(_extreme("greatest"), _counted("greatest")),
    "first": Aggregate(_end("first"), _first_states),
    "last": Aggregate(_end("last"), _counted("last")),
    "any": Aggregate(_truth("any"), _named("any", "count")),
    "all": Aggregate(_truth("all"), _named("all")),
    "var": Aggregate(_var, _variance_states, numbers=_in_two_passes),
    "std": Aggregate(_std, _variance_states, numbers=_in_two_passes),
    "sem": Aggregate(_sem, _variance_states, numbers=_in_two_passes),
    "prod": Aggregate(_prod, _named("count"), numbers=_always),
    "nunique": Aggregate(_nunique, _named("count"), numbers=_always),
    "median": Aggregate(_median, _named("count"), numbers=_always),
    "quantile": Aggregate(_quantile, _named("count"), numbers=_always),
    "idxmin": Aggregate(_position("least"), _named("least", "count"), numbers=_always),
    "idxmax": Aggregate(_position("greatest"), _named("greatest", "count"), numbers=_always),
    "list": Aggregate(_list, numbers=_always),
    "unique": Aggregate(_unique, numbers=_always),
}
"""Every aggregate by its name."""
