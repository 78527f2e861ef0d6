"""The aggregates as methods, with pandas' options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.aggregates.options import Options

__all__ = ["AggregateMethods"]


class AggregateMethods(ABC):
    """A method for each aggregate of one column."""

    @abstractmethod
    def _aggregated(self, how: str, options: Options) -> Any:
        """Return one aggregate of all columns."""

    def _of(self, how: str, engine: Any, **given: Any) -> Any:
        if engine is not None:
            raise UnsupportedError(
                f"engine={engine!r} of {how}: kernels of this library aggregate; leave it"
            )
        return self._aggregated(how, Options(**given))

    def count(self) -> Any:
        """Return the number of values that are not null."""
        return self._of("count", None)

    def sum(
        self,
        numeric_only: bool = False,
        min_count: int = 0,
        skipna: bool = True,
        engine: Any = None,
    ) -> Any:
        """Return the sums, null where fewer than `min_count` values are there."""
        return self._of(
            "sum", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def prod(self, numeric_only: bool = False, min_count: int = 0, skipna: bool = True) -> Any:
        """Return the products, null where fewer than `min_count` values are there."""
        return self._of("prod", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna)

    def mean(self, numeric_only: bool = False, skipna: bool = True, engine: Any = None) -> Any:
        """Return the means."""
        return self._of("mean", engine, numeric_only=numeric_only, skipna=skipna)

    def median(self, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the medians."""
        return self._of("median", None, numeric_only=numeric_only, skipna=skipna)

    def var(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True, engine: Any = None
    ) -> Any:
        """Return the variances, from deviations from the means."""
        return self._of("var", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def std(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True, engine: Any = None
    ) -> Any:
        """Return the standard deviations."""
        return self._of("std", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def sem(self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the standard errors of the means."""
        return self._of("sem", None, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def min(
        self,
        numeric_only: bool = False,
        min_count: int = -1,
        skipna: bool = True,
        engine: Any = None,
    ) -> Any:
        """Return the least values."""
        return self._of(
            "min", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def max(
        self,
        numeric_only: bool = False,
        min_count: int = -1,
        skipna: bool = True,
        engine: Any = None,
    ) -> Any:
        """Return the greatest values."""
        return self._of(
            "max", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def first(self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True) -> Any:
        """Return the first values that are not null."""
        return self._of(
            "first", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def last(self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True) -> Any:
        """Return the last values that are not null."""
        return self._of("last", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna)

    def any(self, skipna: bool = True) -> Any:
        """Return whether any value is true."""
        return self._of("any", None, skipna=skipna)

    def all(self, skipna: bool = True) -> Any:
        """Return whether all values are true."""
        return self._of("all", None, skipna=skipna)

    def nunique(self, dropna: bool = True) -> Any:
        """Return the number of different values."""
        return self._of("nunique", None, dropna=dropna)

    def quantile(
        self, q: Any = 0.5, interpolation: str = "linear", numeric_only: bool = False
    ) -> Any:
        """Return the quantiles; of several `q` one row for each of them."""
        return self._of(
            "quantile", None, q=q, interpolation=interpolation, numeric_only=numeric_only
        )

    def idxmin(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the labels of the first rows with the least values."""
        return self._of("idxmin", None, skipna=skipna, numeric_only=numeric_only)

    def idxmax(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the labels of the first rows with the greatest values."""
        return self._of("idxmax", None, skipna=skipna, numeric_only=numeric_only)
