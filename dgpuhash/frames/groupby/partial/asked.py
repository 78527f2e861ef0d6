"""What a verb of a groupby asks for: columns, aggregates of them, and the states these take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.pairs import Moments
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.partial.dtypes import settled
from dgpuhash.frames.groupby.partial.kinds import KIND_OF_PAIRS, Place, kinds_for
from dgpuhash.frames.groupby.reduction import Wanted, reduced

__all__ = ["Asked", "PlannedGroups"]

Reduce: TypeAlias = Callable[["PlannedGroups", Sequence[int], Sequence[Wanted]], list[Any]]
MomentsOf: TypeAlias = Callable[
    ["PlannedGroups", Sequence[int], Sequence[int], str], Callable[[int, int], Moments]
]


class PlannedGroups(GroupBy):
    """Groups whose aggregates are what a function returns for columns and aggregates of these."""

    def __init__(
        self, frame: Any, groups: Groups, reduce: Reduce, moments: MomentsOf | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(frame, groups, **options)
        self._reduce, self._pairs = reduce, moments

    def _of_all(self) -> GroupBy:
        made = PlannedGroups(
            self._frame, self._groups, self._reduce, self._pairs, as_index=self._as_index
        )
        made._apart = set()
        return made

    def _reduced(self, wanted: list[Wanted]) -> list[Any]:
        found: list[Any] = self._reduce(self, self._positions, wanted)
        return found

    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], Moments]:
        if self._pairs is None:
            return super()._moments(places, how)
        positions = self._positions
        return self._pairs(self, [positions[place] for place in places], places, how)

    def moments(self, places: Sequence[int], how: str) -> Callable[[int, int], Moments]:
        """Return the function of the moments of the rows, of two of some columns by number."""
        return super()._moments(places, how)

    def settled(self, wanted: Sequence[Wanted], *, full: bool) -> list[Any]:
        """Return aggregates of the rows, in dtypes that do not depend on them."""
        columns = self._columns
        found = reduced(self._groups, columns, wanted, self._frame.index)
        return [
            settled(array, Values(columns[each.place]), each, full=full)
            for array, each in zip(found, wanted, strict=True)
        ]


class Asked:
    """The columns and kinds of states that the aggregates of a verb take.

    Attributes
    ----------
    kinds : dict or None
        By the position of a column, in order; None where rows are needed.
    positions : set of int
        The columns that are read.
    hows : set
        The aggregates.
    """

    def __init__(self, *, full: bool) -> None:
        self.kinds: dict[Place, tuple[str, ...]] | None = {}
        self.positions: set[int] = set()
        self.hows: set[Any] = set()
        self._full = full

    def reduce(
        self, groups: PlannedGroups, positions: Sequence[int], wanted: Sequence[Wanted]
    ) -> list[Any]:
        """Return the aggregates of no rows."""
        columns = groups._columns
        for each in wanted:
            place = positions[each.place]
            self.positions.add(place)
            self.hows.add(each.how)
            found = kinds_for(Values(columns[each.place]), each.how, each.options)
            if each.how in {"idxmin", "idxmax"} and groups._frame.index.nlevels > 1:
                found = None
            self._add(place, found)
        return groups.settled(wanted, full=self._full)

    def _add(self, place: Place, kinds: Sequence[str] | None) -> None:
        if kinds is None or self.kinds is None:
            self.kinds = None
        else:
            self.kinds[place] = tuple(dict.fromkeys([*self.kinds.get(place, ()), *kinds]))

    def moments(
        self, groups: PlannedGroups, positions: Sequence[int], places: Sequence[int], how: str
    ) -> Callable[[int, int], Moments]:
        """Return the function of the moments of no rows, of two columns by number."""
        columns, pair = groups._columns, KIND_OF_PAIRS[how]
        self.positions.update(positions)
        if not all(Values(columns[place]).is_number for place in places):
            self.kinds = None
        else:
            for first, (place, position) in enumerate(zip(places, positions, strict=True)):
                values = Values(columns[place])
                if values.kind == "float" and (values.storage != "numpy" or how == "corr"):
                    # A NaN that is no null is none of a pair, either.
                    self._add((position, position), (pair,))
                else:
                    self._add(position, kinds_for(values, "var", Options()))
                for other in positions[first + 1 :]:
                    self._add((position, other), (pair,))
        return groups.moments(places, how)
