"""The aggregates as methods, with pandas' options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.aggregates import pairs
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.typing import Frame, NamedColumn

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.cudf.groups import CudfGroups


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
        self, numeric_only: bool = False, min_count: int = 0, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the sums, null where fewer than `min_count` values are there."""
        return self._of(
            "sum", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def prod(self, numeric_only: bool = False, min_count: int = 0, skipna: bool = True) -> Any:
        """Return the products, null where fewer than `min_count` values are there."""
        return self._of("prod", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna)

    def mean(
        self, numeric_only: bool = False, skipna: bool = True, engine: str | None = None
    ) -> Any:
        """Return the means."""
        return self._of("mean", engine, numeric_only=numeric_only, skipna=skipna)

    def median(self, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the medians."""
        return self._of("median", None, numeric_only=numeric_only, skipna=skipna)

    def var(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the variances, from deviations from the means."""
        return self._of("var", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def std(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the standard deviations."""
        return self._of("std", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def sem(self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the standard errors of the means."""
        return self._of("sem", None, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def min(
        self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the least values."""
        return self._of(
            "min", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def max(
        self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
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
        self, q: float | Sequence[float] = 0.5, interpolation: str = "linear",
        numeric_only: bool = False,
    ) -> Any:  # fmt: skip
        """Return the quantiles; of several ``q`` one row for each of them."""
        return self._of(
            "quantile", None, q=q, interpolation=interpolation, numeric_only=numeric_only
        )

    def idxmin(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the labels of the first rows with the least values."""
        return self._of("idxmin", None, skipna=skipna, numeric_only=numeric_only)

    def idxmax(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the labels of the first rows with the greatest values."""
        return self._of("idxmax", None, skipna=skipna, numeric_only=numeric_only)


class RowGroups(AggregateMethods):
    """Groups of the rows of a frame, with every aggregate as a method.

    Parameters
    ----------
    frame : DataFrame or Series
    groups : Groups or CudfGroups
    as_index : bool
        Whether keys are labels of results, not columns.
    selection : label or list of labels, optional
        The columns that are aggregated; default: all but keys.
    """

    def __init__(
        self, frame: Frame | NamedColumn, groups: Groups | CudfGroups, *, as_index: bool = True,
        selection: Hashable | Sequence[Hashable] = None,
    ) -> None:  # fmt: skip
        self._frame: Any = frame
        self._groups: Any = groups
        self._as_index, self._selection = as_index, selection
        self._apart = {key.column for key in groups.keys if key.in_frame}

    # Without this, Python would iterate by numbers as labels of columns.
    __iter__ = None

    def __len__(self) -> int:
        return self.ngroups

    def __repr__(self) -> str:
        names = ", ".join(repr(key.name) for key in self._groups.keys)
        what = repr(self._like.name) if self._one else str(list(self._like.columns))
        columns = f"column {what}" if self._one else f"columns {what}"
        rows, groups = len(self._frame), len(self)
        counted = f"{groups:,} group{'' if groups == 1 else 's'}"
        return f"<GroupBy of {rows:,} rows by {names}: {counted}, {columns}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._frame.ndim == 2 and self._selection is None and name in self._frame.columns:
            return self[name]
        there = sorted(each for each in dir(type(self)) if not each.startswith("_"))
        raise AttributeError(f"a GroupBy has no {name!r}; there is {', '.join(there)}")

    @abstractmethod
    def __getitem__(self, key: Any) -> Any:
        """Return these groups with one column to aggregate, or several."""

    @property
    @abstractmethod
    def _like(self) -> Any:
        """What is aggregated, or a frame like it."""

    @property
    def ngroups(self) -> int:
        """The number of groups."""
        return len(self._groups)

    @property
    def _one(self) -> bool:
        """Whether one column is aggregated, to a Series."""
        return bool(self._like.ndim == 1)


class PairMethods(ABC):
    """Methods of pairs of columns."""

    _groups: Groups
    _as_index: bool

    @property
    @abstractmethod
    def _one(self) -> bool: ...

    @property
    @abstractmethod
    def _columns(self) -> list[pd.Series]: ...

    @property
    @abstractmethod
    def _labels(self) -> Any: ...

    @abstractmethod
    def _places(self, how: str, options: Options) -> list[int]: ...

    def cov(
        self, min_periods: int | None = None, ddof: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return the covariances of all pairs of columns in each group."""
        return self._matrices("cov", min_periods or 1, ddof, Options(numeric_only=numeric_only))

    def corr(
        self, method: str = "pearson", min_periods: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return Pearson's correlations of all pairs of columns in each group."""
        if method != "pearson":
            raise UnsupportedError(f"corr with method={method!r}; there is 'pearson'")
        return self._matrices("corr", min_periods, 1, Options(numeric_only=numeric_only))

    def _matrices(self, how: str, least: int, ddof: int, options: Options) -> Any:
        if self._one:
            raise UnsupportedError(f"{how} of one column with another; choose both with [columns]")
        places = self._places(how, options)
        made = pairs.matrices(
            len(self._groups), len(places), self._moments(places, how), how, least, ddof
        )  # fmt: skip
        chosen = self._labels.take(places)
        index = assembly.index_with_level(self._groups, chosen, chosen.name)
        arrays = [made[:, :, place].reshape(-1) for place in range(len(places))]
        found = assembly.frame_of(arrays, self._labels.take(places), index)
        return found if self._as_index else assembly.without_keys(found, chosen.nlevels)

    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], pairs.Moments]:
        """Return the function of the moments of two of these columns, by number."""
        columns = self._columns
        floats = [pairs.floats(self._groups, columns[place], how) for place in places]
        return pairs.moments_of_all(self._groups, floats)
