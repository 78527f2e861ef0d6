"""What a verb of a groupby of cuDF frames asks for: columns, and the states that these take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import index_of, levels_of_index, take_series
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
from dgpuhash.frames.groupby.partial.cudf.parts import kinds_of

__all__ = ["Asked", "PlannedCudfGroups", "null_rows"]

# The place of a column among those that are aggregated, the name of an aggregate, its options.
Wanted: TypeAlias = tuple[int, str, Options]
Reduce: TypeAlias = Callable[["PlannedCudfGroups", Sequence[int], Sequence[Wanted]], list[Any]]


class PlannedCudfGroups(CudfGroupBy):
    """Groups whose aggregates are what a function returns for columns and aggregates of these."""

    def __init__(
        self, frame: Any, groups: Any, reduce: Reduce, *, as_index: bool = True,
        selection: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(frame, groups, as_index=as_index, selection=selection)
        self._reduce = reduce

    def _of_all(self) -> CudfGroupBy:
        made = PlannedCudfGroups(self._frame, self._groups, self._reduce, as_index=self._as_index)
        made._apart = set()
        return made

    def _of_columns(self, selection: Any) -> CudfGroupBy:
        return PlannedCudfGroups(
            self._frame, self._groups, self._reduce, as_index=self._as_index, selection=selection
        )  # fmt: skip

    def _reduced(self, wanted: Sequence[Wanted]) -> list[Any]:
        return self._reduce(self, self.positions, wanted)

    def reduced(self, wanted: Sequence[Wanted]) -> list[Any]:
        """Return aggregates of the rows that are here."""
        return super()._reduced(wanted)

    @property
    def positions(self) -> list[int]:
        """The positions of what is aggregated among the columns of the frame."""
        if self._frame.ndim == 1:
            return [0]
        labels = list(self._frame.columns)
        return [labels.index(label) for label in self._labels]


class Asked:
    """The columns and kinds of states that the aggregates of a verb take.

    Attributes
    ----------
    kinds : dict or None
        By the position of a column, in order; None where rows are needed.
    positions : set of int
        The columns that are read.
    hows : set of str
        The aggregates.
    """

    def __init__(self) -> None:
        self.kinds: dict[Any, tuple[str, ...]] | None = {}
        self.positions: set[int] = set()
        self.hows: set[str] = set()

    def reduce(
        self, groups: PlannedCudfGroups, positions: Sequence[int], wanted: Sequence[Wanted]
    ) -> list[Any]:
        """Return the aggregates of rows of nulls, which have the dtypes of all rows."""
        found = []
        for each in wanted:
            place, how, options = each
            self.positions.add(positions[place])
            self.hows.add(how)
            self._add(positions[place], kinds_of(groups._columns[place], how, options))
            if how in {"idxmin", "idxmax"}:
                labels = frames_named("cudf").series(groups._frame.index)
                found.append(labels.iloc[: len(groups)].reset_index(drop=True))
            else:
                found.extend(groups.reduced([each]))
        return found

    def _add(self, place: int, kinds: Sequence[str] | None) -> None:
        if kinds is None or self.kinds is None:
            self.kinds = None
        else:
            self.kinds[place] = tuple(dict.fromkeys([*self.kinds.get(place, ()), *kinds]))


def null_rows(source: Any) -> Any:
    """Return a row of nulls like those of a frame or Series without rows."""
    frames = frames_named("cudf")
    none = frames.xp.full(1, -1, "int64")
    whole = source.to_frame("value") if source.ndim == 1 else source
    labels = levels_of_index(source.index)
    made = frames.take_or_null(whole.reset_index(drop=True), none)
    made.columns = whole.columns
    levels = [take_series(each, none, nulls=True).rename(None) for each in labels]
    made.index = index_of(levels, list(source.index.names))
    return made["value"].rename(source.name) if source.ndim == 1 else made
