"""Rows of each group of a cuDF frame, and pairs of its columns, as methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import array_column
from dgpuhash.frames.groupby import selections
from dgpuhash.frames.groupby.aggregates import pairs
from dgpuhash.frames.groupby.aggregates.refusals import AggregateTypeError
from dgpuhash.frames.groupby.cudf import assembly
from dgpuhash.frames.groupby.cudf.functions import NotOfferedError
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.tables.memory_errors import function_translates_memory_errors


class RowMethods(ABC):
    """Methods that choose rows."""

    # CudfGroups, which pandas' functions of rows take for theirs.
    _groups: Any

    @property
    @abstractmethod
    def _chosen(self) -> Any:
        """What rows are chosen of: the frame with its keys, or the columns that were asked for."""

    def head(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the first `n` rows of each group; without the last ones if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_before(self._groups, n), preserve_order)

    def tail(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the last `n` rows of each group; without the first ones if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_behind(self._groups, n), preserve_order)

    @property
    def nth(self) -> Nth:
        """The rows at places of their group: ``nth(n)`` or ``nth[n]``.

        A number, a slice, or a list of these.
        """
        return Nth(self)

    def _rows(self, mask: Any, preserve_order: bool = True) -> Any:
        groups = self._groups
        if preserve_order:
            rows = groups.xp.flatnonzero(mask)
        else:
            # By the order of keys, whatever that of groups.
            rows = groups.in_key_order().rows_by_group
            rows = rows[mask[rows]]
        return self._chosen.take(rows)


class Nth:
    """The rows at places of their group, by a call or by an index."""

    def __init__(self, groups: RowMethods) -> None:
        self._groups = groups

    def __call__(self, n: Any, dropna: str | None = None) -> Any:
        """Return the rows at places of their group: a number, a slice, or a list of these."""
        if dropna is not None:
            raise NotOfferedError("nth with dropna=; group frame.dropna()")
        return self[n]

    def __getitem__(self, n: Any) -> Any:
        groups = self._groups
        return groups._rows(selections.rows_at(groups._groups, n))


class PairMethods(ABC):
    """Methods of pairs of columns."""

    _groups: Any
    _as_index: bool

    @property
    @abstractmethod
    def _one(self) -> bool: ...

    @property
    @abstractmethod
    def _columns(self) -> list[CudfValues]: ...

    @property
    @abstractmethod
    def _labels(self) -> Any: ...

    def cov(
        self, min_periods: int | None = 0, ddof: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return the covariances of all pairs of columns in each group."""
        return self._matrices("cov", min_periods or 0, ddof, numeric_only)

    def corr(
        self, method: str = "pearson", min_periods: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return Pearson's correlations of all pairs of columns in each group."""
        if method != "pearson":
            raise NotOfferedError("Only pearson correlation is currently supported")
        return self._matrices("corr", min_periods, 1, numeric_only)

    @function_translates_memory_errors
    def _matrices(self, how: str, least: int, ddof: int, numeric_only: bool) -> Any:
        if self._one:
            raise UnsupportedError(f"{how} of one column with another; choose both with [columns]")
        # As in cuDF, whatever the order of groups.
        groups = self._groups.in_key_order()
        places = [
            place for place, each in enumerate(self._columns) if each.is_numeric or not numeric_only
        ]
        columns = [self._columns[place] for place in places]
        numbers = all(each.kind in {"bool", "int", "uint", "float"} for each in columns)
        if groups.rows and not numbers:
            what = "Covariance" if how == "cov" else "Correlation"
            raise AggregateTypeError(f"{what} accepts only numerical column-pairs")
        floats = [groups.xp.empty(0)] * len(columns)
        if groups.rows:
            floats = [groups.only_of_groups(each.floats) for each in columns]
        made = groups.xp.full((len(places), len(groups), len(places)), np.nan)
        for place, ours in enumerate(floats):
            for other in range(place, len(floats)):
                found = pairs.pair(groups, ours, floats[other], how, least, ddof)
                made[place, :, other] = made[other, :, place] = found
        labels = self._labels.take(places)
        series = [array_column(each.reshape(-1).copy()) for each in made]
        if not self._as_index:
            return assembly.with_keys(series, labels, groups, list(labels))
        index = assembly.index_with_level(groups, list(labels), labels.name)
        return assembly.frame_of(series, labels, index)
