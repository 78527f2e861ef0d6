"""What merges and aggregates are, by plain Python over plain values.

Merges are nested loops, and aggregates are computed from integers and fractions: nothing is rounded
before a result is. Where a dtype or an order is asked for, pandas is.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from suites.generated.columns import NAN, NULL, Value, read

__all__ = [
    "aggregate", "difference", "exact_in_float", "in_order", "is_float", "merged_rows",
    "nullable_dtype", "pairs", "same_dtype",
]  # fmt: skip

Row = tuple[Value, ...]


def pairs(
    left: Sequence[pd.Series], right: Sequence[pd.Series], how: str, *, nulls_equal: bool
) -> list[tuple[int, int]]:
    """Return the rows of both sides that a merge puts side by side, -1 for none.

    Parameters
    ----------
    left, right : sequence of Series
        The keys of each side.
    """
    keys = [_keys(ours, theirs) for ours, theirs in zip(left, right, strict=True)]
    ours = list(zip(*[pair[0] for pair in keys], strict=True))
    theirs = list(zip(*[pair[1] for pair in keys], strict=True))
    void = ("null", None)

    def match(one: Any, other: Any) -> bool:
        return one == other and (nulls_equal or void not in one)

    found = [(i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs)
             if match(one, other)]  # fmt: skip
    met = {i for i, _ in found}, {j for _, j in found}
    alone = (
        [(i, -1) for i in range(len(ours)) if i not in met[0]],
        [(-1, j) for j in range(len(theirs)) if j not in met[1]],
    )
    return {
        "inner": found,
        "left": found + alone[0],
        "right": found + alone[1],
        "outer": found + alone[0] + alone[1],
        "semi": [(i, -1) for i in sorted(met[0])],
        "anti": alone[0],
        "left_anti": alone[0],
        "right_anti": alone[1],
    }[how]


def _keys(left: pd.Series, right: pd.Series) -> tuple[list[Any], list[Any]]:
    sides = [[value.key for value in read(column)] for column in (left, right)]
    if _nan_is_null(left.dtype, right.dtype):
        sides = [[("null", None) if key == ("number", NAN) else key for key in keys]
                 for keys in sides]  # fmt: skip
    return sides[0], sides[1]


def _nan_is_null(*dtypes: Any) -> bool:
    """Return whether NaN matches null, as in pandas where a masked dtype meets another one.

    That is one of Arrow or a category.
    """
    arrow = [isinstance(dtype, pd.ArrowDtype | pd.CategoricalDtype) for dtype in dtypes]
    masked = [hasattr(dtype, "numpy_dtype") and not one
              for dtype, one in zip(dtypes, arrow, strict=True)]  # fmt: skip
    return any(arrow) and any(masked)


def merged_rows(
    columns: Sequence[tuple[list[Value], list[Value]]], found: Any, *, right_first: bool
) -> list[Row]:
    """Return the rows of a merge.

    Parameters
    ----------
    columns : sequence of pair of list
        For each column of the result its values on the left and on the right side; an empty list
        where a side has none.
    found : sequence of pair of int
        Rows of both sides, as `pairs` returns them.
    right_first : bool
        Whether of two values the right one is taken, where there is a row of it.
    """
    rows = []
    for i, j in found:
        row = []
        for ours, theirs in columns:
            both = [values[at] for values, at in ((ours, i), (theirs, j)) if values and at >= 0]
            row.append(NULL if not both else both[-1 if right_first else 0])
        rows.append(tuple(row))
    return rows


def nullable_dtype(dtype: Any) -> Any:
    """Return the dtype of a column on Dask that may lack rows: integers and booleans get nulls."""
    if isinstance(dtype, np.dtype) and dtype.kind in "iub":
        return pd.array([], dtype=dtype.name.replace("int", "Int").replace("u", "U")
                        if dtype.kind != "b" else "boolean").dtype  # fmt: skip
    return dtype


def same_dtype(found: Any, wanted: Any) -> bool:
    """Return whether two dtypes are the same one; of categories, whether both are."""
    if isinstance(found, pd.CategoricalDtype) and isinstance(wanted, pd.CategoricalDtype):
        return True
    return bool(found == wanted)


def is_float(dtype: Any) -> bool:
    """Return whether values of a dtype are floats of 64 or 32 bits."""
    if isinstance(dtype, pd.CategoricalDtype):
        return is_float(dtype.categories.dtype)
    return bool(getattr(dtype, "kind", "O") == "f")


def exact_in_float(value: Value) -> bool:
    """Return whether a value is one of float64."""
    if value.domain != "number" or value.value is NAN or value.type == "float":
        return True
    return bool(value.value == float(value.value))


def difference(
    found: Iterable[Row], wanted: Iterable[Row], floats: Sequence[bool], *, near: float = 0.0,
    tick: int | None = None,
) -> str:  # fmt: skip
    """Return how rows differ from others, in any order; empty where they do not.

    Parameters
    ----------
    floats : sequence of bool
        Which columns are floats: there an integer may stand as the float of the same value.
    near : float
        How far floats may be off, as a share of them.
    tick : int, optional
        Where moments and spans may be off by a rounding, that of a float, or to nanoseconds of this
        number.
    """
    counts = [Counter(_seen(row, floats) for row in rows) for rows in (found, wanted)]
    if counts[0] == counts[1]:
        return ""
    more, fewer = (counts[0] - counts[1]).elements(), (counts[1] - counts[0]).elements()
    more, fewer = list(more), list(fewer)
    if near and _are_near(more, fewer, near, tick):
        return ""
    return f"{sum(counts[0].values())} rows, not {sum(counts[1].values())}: has {_told(more)} in " \
           f"place of {_told(fewer)}"  # fmt: skip


def in_order(rows: Sequence[Row], others: Sequence[Row], floats: Sequence[bool]) -> bool:
    """Return whether rows are the same ones in the same order."""
    return [_seen(row, floats) for row in rows] == [_seen(row, floats) for row in others]


def _seen(row: Row, floats: Sequence[bool]) -> Row:
    return tuple(
        value._replace(type="float") if one and value.domain == "number" else value
        for value, one in zip(row, floats, strict=True)
    )


def _told(rows: list[Any]) -> str:
    told = [
        "(" + ", ".join(f"{v.type} {v.value!r}" if v != NULL else "null" for v in row) + ")"
        for row in sorted(rows, key=str)[:2]
    ]
    return " ".join(told) or "nothing"


def _are_near(more: list[Row], fewer: list[Row], near: float, tick: int | None) -> bool:
    """Return whether each row has one in the other list, with floats close by."""
    left = list(fewer)
    for row in more:
        for other in left:
            if all(_near(one, two, near, tick) for one, two in zip(row, other, strict=True)):
                left.remove(other)
                break
        else:
            return False
    return not left


def _near(one: Value, two: Value, near: float, tick: int | None) -> bool:
    if one == two:
        return True
    if one.domain != two.domain:
        return False
    if one.domain in ("naive", "zoned", "span"):
        far = tick and max(tick, abs(one.value) / 10**15)
        return tick is not None and abs(one.value - two.value) <= far
    if one.domain not in ("number", "list"):
        return False
    if one.domain == "list":
        return len(one.value) == len(two.value) and all(
            _near(a, b, near, tick) for a, b in zip(one.value, two.value, strict=True)
        )
    if NAN in (one.value, two.value) or {one.type, two.type} != {"float"}:
        return False
    return math.isclose(one.value, two.value, rel_tol=near, abs_tol=near)


# Aggregates.


def aggregate(how: str, values: Sequence[Value]) -> Any:
    """Return an aggregate of the values of a group, or `NotImplemented` where there is no rule.

    A `Value`, with a float where the exact result is a fraction.
    """
    rule = _RULES.get(how)
    return NotImplemented if rule is None else rule(list(values))


def _there(values: list[Value]) -> list[Value]:
    return [value for value in values if value != NULL]


def _ordered(values: list[Value]) -> list[Value]:
    return [value for value in _there(values) if value.value is not NAN]


def _number(value: Any, kind: str) -> Value:
    return Value("number", value, kind)


def _count(values: list[Value]) -> Value:
    return _number(len(_there(values)), "int")


def _size(values: list[Value]) -> Value:
    return _number(len(values), "int")


def _nunique(values: list[Value]) -> Value:
    return _number(len({value.key for value in _there(values)}), "int")


def _first(values: list[Value]) -> Value:
    return next(iter(_there(values)), NULL)


def _last(values: list[Value]) -> Value:
    return _first(values[::-1])


def _extreme(least: bool) -> Callable[[list[Value]], Any]:
    def rule(values: list[Value]) -> Any:
        found = _ordered(values)
        if len({value.domain for value in found}) > 1:
            return NotImplemented
        if not found:
            return NULL
        return (min if least else max)(found, key=lambda value: value.value)

    return rule


def _exact(values: list[Value]) -> list[Fraction] | None:
    """Return the numbers of a group, None where these are not all numbers, or infinite."""
    found = _ordered(values)
    if not all(value.domain == "number" for value in found):
        return None
    if any(isinstance(value.value, float) and math.isinf(value.value) for value in found):
        return None
    return [Fraction(value.value) for value in found]


def _rounded(exact: Fraction) -> Value:
    try:
        return _number(float(exact), "float")
    except OverflowError:
        return _number(math.inf if exact > 0 else -math.inf, "float")


def _has_nan(values: list[Value]) -> bool:
    return any(value.value is NAN for value in values)


def _mean(values: list[Value]) -> Any:
    found = _there(values)
    domains = {value.domain for value in found}
    if domains and domains <= {"naive", "zoned", "span"} and len(domains) == 1:
        # Cut towards zero by the caller, who knows the unit.
        (domain,) = domains
        return Value(domain, Fraction(sum(value.value for value in found), len(found)), domain)
    if any(isinstance(value.value, Decimal) for value in found):
        return NotImplemented
    exact = _exact(values)
    if exact is None:
        return NotImplemented
    return _rounded(sum(exact) / len(exact)) if exact and not _has_nan(values) else NULL


def _variance(values: list[Value]) -> Fraction | None:
    exact = _exact(values)
    if exact is None or len(exact) < 2:
        return None
    mean = sum(exact) / len(exact)
    return Fraction(sum((each - mean) ** 2 for each in exact)) / (len(exact) - 1)


def _moment(root: bool, of_mean: bool = False) -> Callable[[list[Value]], Any]:
    def rule(values: list[Value]) -> Any:
        if _exact(values) is None or any(isinstance(v.value, Decimal) for v in values):
            return NotImplemented
        found = _variance(values)
        if found is None or _has_nan(values):
            return NULL
        made = _rounded(found / len(_there(values)) if of_mean else found).value
        return _number(math.sqrt(made) if root else made, "float")

    return rule


def _median(values: list[Value]) -> Any:
    exact = _exact(values)
    if exact is None or any(isinstance(value.value, Decimal) for value in values):
        return NotImplemented
    if not exact:
        return NULL
    exact.sort()
    middle = len(exact) // 2
    return _rounded(exact[middle] if len(exact) % 2 else (exact[middle - 1] + exact[middle]) / 2)


def _sum(values: list[Value]) -> Any:
    found = _there(values)
    if not found or _has_nan(values) or {value.type for value in found} != {"float"}:
        # Integers wrap as the dtype of the result does, which is pandas'.
        return NotImplemented
    exact = _exact(values)
    return NotImplemented if exact is None else _rounded(Fraction(sum(exact)))


def _place(least: bool) -> Callable[[list[Value]], Any]:
    """Return the rule of the place of the first value with an extreme, which is no `Value`."""

    def rule(values: list[Value]) -> Any:
        extreme = _extreme(least)(values)
        return NotImplemented if extreme in (NotImplemented, NULL) else [
            value.key for value in values
        ].index(extreme.key)  # fmt: skip

    return rule


def _by_python(function: Callable[[Any, Any], Any], none: int) -> Callable[[list[Value]], Any]:
    """Return the rule of sums and products of objects; in products nulls are 1."""

    def rule(values: list[Value]) -> Any:
        found = [value.value for value in _ordered(values)]
        if not all(value.domain == "number" for value in _ordered(values)):
            return NotImplemented
        if not found or (none and len(found) < len(values)):
            found.insert(0, none)
        made = functools.reduce(function, found)
        if isinstance(made, float) and not math.isfinite(made):
            return NotImplemented
        return _number(made, type(made).__name__.lower())

    return rule


def _list(values: list[Value]) -> Value:
    # Within a list NaN is a null.
    return Value("list", tuple(NULL if each.value is NAN else each for each in values), "list")


def _unique(values: list[Value]) -> Value:
    found: dict[Any, Value] = {}
    for value in values:
        found.setdefault(value.key, value)
    return _list(list(found.values()))


_RULES: dict[str, Callable[[list[Value]], Any]] = {
    "count": _count,
    "size": _size,
    "nunique": _nunique,
    "first": _first,
    "last": _last,
    "min": _extreme(True),
    "max": _extreme(False),
    "mean": _mean,
    "median": _median,
    "sum": _sum,
    "sum of objects": _by_python(operator.add, 0),
    "prod of objects": _by_python(operator.mul, 1),
    "idxmin": _place(True),
    "idxmax": _place(False),
    "var": _moment(False),
    "std": _moment(True),
    "sem": _moment(True, of_mean=True),
    "agg": _list,
    "unique": _unique,
}
