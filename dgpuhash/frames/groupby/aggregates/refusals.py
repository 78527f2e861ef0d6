"""Aggregates that values of some dtype do not have, refused in pandas' words."""

from __future__ import annotations

import pandas as pd

from dgpuhash.errors import KeyTypeError, UnsupportedError
from dgpuhash.frames.groupby.aggregates.values import Values


class AggregateTypeError(KeyTypeError):
    """An aggregate that values of this dtype do not have."""


class SpanRangeError(AggregateTypeError, pd.errors.OutOfBoundsTimedelta):
    """A sum or deviation of spans that is longer than any of their unit."""


class NoNumberError(AggregateTypeError, ValueError):
    """Objects that are no numbers."""


_NUMBERS_ONLY = frozenset({"prod", "mean", "median", "std", "sem", "var", "quantile"})
_ORDERED = frozenset({"min", "max", "idxmin", "idxmax"})
_ANYTHING = frozenset({"count", "size", "first", "last", "nunique", "list", "unique"})
_DIALECT = {
    "datetime": ({"sum", "prod", "var"}, "datetime64 type does not support operation '{how}'"),
    "timedelta": ({"prod", "var"}, "timedelta64 type does not support {how} operations"),
    "period": ({"sum", "prod", "var"}, "Period type does not support {how} operations"),
    "text": (_NUMBERS_ONLY, "dtype '{dtype}' does not support operation '{how}'"),
    "category": ({"sum", "prod"}, "{dtype} type does not support {how} operations"),
    "complex": (_ORDERED | {"var"}, "{how} of complex numbers: No matching signature found"),
}
_TRUTH = {
    "datetime": "'{how}' with datetime64 dtypes is not supported. Use (obj != pd.Timestamp(0))."
    "{how}() instead.",
    "period": "'{how}' with PeriodDtype is no longer supported. Use "
    "(obj != pd.Period(ordinal=0, freq=freq)).{how}() instead.",
}
# What is there of complex numbers, of decimals and other dtypes of Arrow, and of all the rest.
_OFFERED = {
    "complex": _ANYTHING | {"sum", "mean", "any", "all"},
    "decimal": _ANYTHING | {"min", "max", "sum", "mean"},
    "arrow": _ANYTHING | {"min", "max"},
    "other": _ANYTHING | {"min", "max"},
}


def check_aggregate(values: Values, how: str) -> None:
    """Raise AggregateTypeError or UnsupportedError unless values have an aggregate."""
    if values.kind == "object" and how in {"std", "sem"}:
        words = [each for each in values.series if isinstance(each, str)]
        if words:
            raise NoNumberError(f"could not convert string to float: {words[0]!r}")
    message = _message(values, how)
    if message is not None:
        raise AggregateTypeError(message.format(how=how, dtype=values.dtype))
    if how not in _OFFERED.get(values.kind, {how}):
        raise UnsupportedError(
            f"{how} of {values.dtype}; there is {', '.join(sorted(_OFFERED[values.kind]))}, and "
            "more of numbers: convert it with .astype"
        )


def _message(values: Values, how: str) -> str | None:
    kind = values.kind
    refused, message = _DIALECT.get(kind, (frozenset(), ""))
    if how in refused:
        return message
    if how in {"any", "all"} and kind in _TRUTH:
        return _TRUTH[kind]
    if kind == "period" and how in {"std", "sem"}:
        return "'std' and 'sem' are not valid for PeriodDtype"
    if kind == "category" and how in _ORDERED and not values.series.cat.ordered:
        return "Cannot perform {how} with non-ordered Categorical"
    if kind == "category" and how in _NUMBERS_ONLY:
        return "{dtype} dtype does not support aggregation '{how}'"
    if kind == "bool" and how == "quantile" and values.storage == "numpy":
        return "Cannot use quantile with bool dtype"
    if kind == "object" and how == "quantile":
        return "dtype '{dtype}' does not support operation 'quantile'"
    if kind == "object" and how in _NUMBERS_ONLY and not (how == "prod" and values.are_numbers):
        return "agg function failed [how->{how},dtype->{dtype}]"
    return None
