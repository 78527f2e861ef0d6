"""The options of aggregates, as pandas names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.errors import SpecError, UnsupportedError

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
        """Return the least number of values that have a result."""
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
    """The name of an aggregate, with the arguments that it was called with."""

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
            raise UnsupportedError(f"{name}= of {how}: kernels of this library aggregate; leave it")
    unknown = [name for name in given if name not in known]
    if unknown or len(positional) > len(known):
        raise TypeError(
            f"{how}() got an unexpected keyword argument {unknown[0]!r}; it has "
            f"{', '.join(known) or 'none'}"
            if unknown
            else f"{how}() takes {len(known)} arguments, not {len(positional)}"
        )
    return Options(**given)
