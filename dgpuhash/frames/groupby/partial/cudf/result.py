"""Groups and values of cuDF frames that were folded from parts, in the form of those of one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgpuhash import backend
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import take_series
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.grouping_keys import GroupingKey

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

    @functools.cached_property
    def sizes(self) -> Any:  # type: ignore[override]
        """The number of rows of each group of the result."""
        return self.arranged(self._sizes)

    def chosen(self, field: Any, void: Any | None) -> Any:
        """Return values of the groups of the result by number, null where a mask is set."""
        rows = self.first_rows
        rows = rows if void is None else self.xp.where(void, -1, rows)
        return take_series(field, rows, nulls=True).rename(None)


class FoldedValues(CudfValues):
    """The dtype of a column, and whether a group lacks a value of it."""

    def __init__(self, series: Any, *, lacking: bool) -> None:
        super().__init__(series)
        self._lacking = lacking

    @property
    def nulls(self) -> Any | None:
        """Something where a row is null."""
        return True if self._lacking else None


def portable(keys: Sequence[GroupingKey]) -> Any:
    """Return columns that are equal where keys are, in whatever part these are.

    Categories are compared by their values, of which each part may have others.
    """
    made: list[Any] = []
    frames = frames_named("cudf")
    for key in keys:
        if hasattr(key.values.dtype, "categories"):
            made.append(key.values)
        else:
            found = frames.compared(key.values, key.values, key.name)
            made.extend(ours.series for ours, _ in found)
    return frames.make({f"p{place}": each for place, each in enumerate(made)})
