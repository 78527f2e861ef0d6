"""Groups and states of cuDF frames that were folded from parts, in the form of those of one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dgpuhash import backend
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import take_series
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.states import CudfStates
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.kinds import total_of

if TYPE_CHECKING:
    from dgpuhash.backend import Backend
    from dgpuhash.frames.dataframes.base import Frames


class FoldedCudfGroups(CudfGroups):
    """The groups of all parts, each of which has a state.

    Parameters
    ----------
    keys : list of GroupingKey
        The key of each group, which differ.
    sizes : int64 array
        The numbers of rows.
    firsts : int64 array
        The first row of each, as a number that tells the part, too.
    sort : bool
        Whether groups come in the order of their keys, or of their first rows.
    """

    def __init__(self, keys: list[GroupingKey], sizes: Any, firsts: Any, *, sort: bool) -> None:
        self.keys: list[GroupingKey] = keys
        self.rows: int = len(sizes)
        self.sorts: bool = sort
        # Rows with nulls that are in no group have no state.
        self.drops: list[bool] = [False] * len(keys)
        self.frames: Frames = frames_named("cudf")
        self.xp: Any = self.frames.xp
        self.backend: Backend = backend.get(self.frames.device)
        self._grouped, self._words = None, {}
        rows = self.xp.arange(len(sizes))
        self._numbered = rows, rows
        self._sizes, self._firsts = sizes, firsts

    @functools.cached_property
    def order(self) -> Any | None:
        """The numbers of the groups in the order of the result, None for all by number."""
        if self.sorts:
            return CudfGroups.order.func(self)  # type: ignore[attr-defined]
        firsts = self._firsts
        if not len(firsts) or bool((firsts[1:] >= firsts[:-1]).all()):
            return None
        return self.backend.stable_order(firsts)

    @property
    def sizes(self) -> Any:
        """The number of rows of each group of the result."""
        return self.arranged(self._sizes)


class _FoldedValues(CudfValues):
    """The dtype of a column, and whether a group lacks a value of it."""

    def __init__(self, series: Any, *, lacking: bool) -> None:
        super().__init__(series)
        self._lacking = lacking

    @property
    def nulls(self) -> Any | None:
        """Something where a row is null."""
        return True if self._lacking else None


class FoldedCudfStates(CudfStates):
    """The states of one column's groups, folded from those of parts.

    Parameters
    ----------
    like : cudf.Series
        Of the dtype of the column, without rows.
    groups : FoldedCudfGroups
    fields : dict
        The fields of the kinds of states by group number: arrays, and columns of other values.
    """

    def __init__(self, like: Any, groups: FoldedCudfGroups, fields: dict[str, Any]) -> None:
        count = fields.get("count", groups._sizes)
        lacking = bool((count < groups._sizes).any())
        super().__init__(_FoldedValues(like, lacking=lacking), groups, 0)
        self._fields = fields

    def _field(self, name: str) -> Any:
        return self.groups.arranged(self._fields[name])

    def word(self, name: str) -> Any:
        """Return a state of each group."""
        return self._field(name)

    @property
    def count(self) -> Any:
        """The number of values of each group that are not null."""
        return self._field("count")

    @functools.cached_property
    def _totals(self) -> tuple[Any, Any]:
        high, low = total_of(self._fields)
        return self.groups.arranged(high), self.groups.arranged(low)

    @property
    def total(self) -> Any:
        """The sum of each group's values, as float64."""
        return self._totals[0]

    @property
    def mean(self) -> Any:
        """The mean of each group's values; NaN without values."""
        return numbers.mean_of(self._totals, self.count)[0]

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a NaN that is no null, None where there is none."""
        found = self._fields.get("stray")
        return self._field("stray") > 0 if found is not None and bool(found.any()) else None

    def extreme(self, name: str) -> Any:
        """Return the least or greatest number of each group, of groups without values anything."""
        return self._field(name)

    def value_of(self, name: str, void: Any | None) -> Any:
        """Return the least or greatest values, which are no numbers; null where masked."""
        return self._values(name, void)

    def end(self, name: str, least: int, *, nulls: bool) -> Any:
        """Return the first or last values, of nulls too where asked for.

        Null where there are fewer than `least` values.
        """
        void = self.count < least if least >= 1 else None
        return self._values(f"{name} of all" if nulls else name, void)

    def _values(self, field: str, void: Any | None) -> Any:
        """Return values of the column by group, null where masked."""
        rows = self.groups.first_rows
        if void is not None:
            rows = self.xp.where(void, -1, rows)
        return take_series(self._fields[field], rows, nulls=True).rename(None)

    def squares(self) -> Any:
        """Return each group's sum of squared deviations from its mean."""
        return self._field("moment")

    def products(self) -> Any:
        """Return the products of the values, as int64 or float64."""
        return self._field("prod")

    @property
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words."""
        return self._field("high"), self._field("low")

    def labels_of(self, name: str) -> tuple[Any, Any | None]:
        """Return the places of the labels of the least or greatest values, and the labels."""
        import cudf

        labels = self._fields["idxmin" if name == "least" else "idxmax"]
        rows = self.xp.where(self.count > 0, self.groups.first_rows, -1)
        return rows, cudf.Index(labels)
