"""Options of aggregates under pandas' names, and errors for unsupported dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError, SpecError, UnsupportedError
from dgpuhash.frames.groupby.aggregates.values import Values

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "sum": ("numeric_only", "min_count", "skipna"),
    "prod": ("numeric_only", "min_count", "skipna"),
    "min": ("numeric_only", "min_count", "skipna"),
    "max": ("numeric_only", "min_count", "skipna"),
    "first": ("numeric_only", "min_count", "skipna"),
    "last": ("numeric_only", "min_count", "skipna"),
    "mean": ("numeric_only", "skipna"),
    "median": ("numeric_only", "skipna"),
    "var": ("ddof", "numeric_only", "skipna"),
    "std": ("ddof", "numeric_only", "skipna"),
    "sem": ("ddof", "numeric_only", "skipna"),
    "any": ("skipna",),
    "all": ("skipna",),
    "nunique": ("dropna",),
    "quantile": ("q", "interpolation", "numeric_only"),
    "idxmin": ("skipna", "numeric_only"),
    "idxmax": ("skipna", "numeric_only"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one aggregate.

    Attributes
    ----------
    numeric_only : bool
        Whether only columns of numbers are aggregated.
    min_count : int or None
        Fewer values give a null; None: the aggregate's own default.
    ddof : int
        What is taken off the number of values.
    skipna : bool
        Whether nulls are left out; otherwise they make the result null.
    dropna : bool
        Whether nulls are no value of their own.
    q : float or list of float
    interpolation : {"linear", "lower", "higher", "nearest", "midpoint"}
    """

    numeric_only: bool = False
    min_count: int | None = None
    ddof: int = 1
    skipna: bool = True
    dropna: bool = True
    q: Any = 0.5
    interpolation: str = "linear"

    def least(self, default: int) -> int:
        """Return the minimum number of values for a result."""
        return default if self.min_count is None else self.min_count

    def shares(self) -> Any:
        """Return the quantiles as an array of float64.

        Raises
        ------
        SpecError
            When one is not between 0 and 1.
        """
        wanted = np.atleast_1d(np.asarray(self.q, np.float64))
        outside = wanted[~((wanted >= 0) & (wanted <= 1))]
        if len(outside):
            raise SpecError(f"'q' must be between 0 and 1. Got '{outside[0]}' instead")
        return wanted

    def __post_init__(self) -> None:
        if not isinstance(self.numeric_only, bool):
            raise SpecError("numeric_only accepts only Boolean values")
        if self.interpolation not in INTERPOLATIONS:
            raise SpecError(
                f"interpolation={self.interpolation!r}; use {', '.join(INTERPOLATIONS)}"
            )


class CalledName(str):
    """Name of an aggregate, with the arguments of the call."""

    given: dict[str, Any]
    positional: tuple[Any, ...]


def options_of(how: str, given: dict[str, Any], positional: tuple[Any, ...] = ()) -> Options:
    """Return the options of an aggregate from its arguments.

    Raises
    ------
    SpecError
        When an option has an impossible value.
    TypeError
        When the aggregate has no such option.
    UnsupportedError
        When another engine is asked for.
    """
    if isinstance(how, CalledName):
        given, positional = {**given, **how.given}, how.positional
    known = _OPTIONS.get(how, ())
    given = {**dict(zip(known, positional, strict=False)), **given}
    for name in ("engine", "engine_kwargs"):
        if given.pop(name, None) is not None:
            raise UnsupportedError(f"{name}= of {how}: dgpuhash has one engine; leave {name}= out")
    unknown = [name for name in given if name not in known]
    if unknown or len(positional) > len(known):
        raise TypeError(
            f"{how}() got an unexpected keyword argument {unknown[0]!r}; it has "
            f"{', '.join(known) or 'none'}"
            if unknown
            else f"{how}() takes {len(known)} arguments, not {len(positional)}"
        )
    return Options(**given)


class NotOfferedError(UnsupportedError, NotImplementedError):
    """Arguments that groupbys do not accept, with cuDF's error class."""


class AggregateTypeError(KeyTypeError):
    """An aggregate that this dtype does not support."""


class SpanRangeError(AggregateTypeError, pd.errors.OutOfBoundsTimedelta):
    """A sum or deviation of durations that overflows their unit."""


class NoNumberError(AggregateTypeError, ValueError):
    """Objects that are not numbers."""


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
    """Raise AggregateTypeError or UnsupportedError if values do not support an aggregate."""
    if values.kind == "object" and how in {"std", "sem"}:
        words = [each for each in values.series if isinstance(each, str)]
        if words:
            raise NoNumberError(f"could not convert string to float: {words[0]!r}")
    message = _message(values, how)
    if message is not None:
        raise AggregateTypeError(message.format(how=how, dtype=values.dtype))
    if how not in _OFFERED.get(values.kind, {how}):
        raise UnsupportedError(
            f"{how} of {values.dtype} is not supported; use one of "
            f"{', '.join(sorted(_OFFERED[values.kind]))}, or convert it to numbers with .astype"
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
