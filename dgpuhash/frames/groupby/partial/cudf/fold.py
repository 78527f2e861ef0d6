"""Folds of many states at once: by the number of each one's group, on the device of the arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash import backend
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.states import numbers_of_words
from dgpuhash.frames.groupby.cudf.states import products
from dgpuhash.frames.groupby.partial.kinds import ADDED_UP, KINDS, NEVER, total_of
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups
from dgpuhash.tables.select import gather_rows

if TYPE_CHECKING:
    from dgpuhash.backend import Backend


Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Values of a field at these positions among the states that are folded."""

    rows: Any


class Folds:
    """Folds of arrays that have an element for each state.

    Parameters
    ----------
    codes : int64 array
        The number of the group of each state.
    groups : int
        How many groups there are; each has a state.

    Examples
    --------
    >>> folds = Folds(np.array([0, 1, 0]), 2)
    >>> [sums.tolist() for sums in folds.sums([np.array([5, 6, 7])])]
    [[12, 6]]
    >>> folds.extreme("least", np.array([2.5, np.nan, 1.5])).tolist()
    [1.5, nan]
    """

    def __init__(self, codes: Any, groups: int) -> None:
        self.device: Backend = backend.get(None, codes)
        self.xp: Any = self.device.xp
        self.codes: Any = codes
        self.groups: int = groups

    def _words(self, columns: list[ColumnReduction]) -> list[Any]:
        return reduce_groups(self.device, self.codes, self.groups, columns)

    def sums(self, arrays: Iterable[Any]) -> list[Any]:
        """Return sums of int64 numbers."""
        columns = [ColumnReduction(self._flat(each), "i8", "integer", "sum") for each in arrays]
        return [words.view(np.int64) for words in self._words(columns)]

    def _flat(self, array: Any) -> Any:
        return self.xp.ascontiguousarray(array)

    def extreme(self, name: str, array: Any) -> Any:
        """Return the least or greatest number; of no numbers but NaN it is NaN."""
        dtype = array.dtype
        kind = "u" if dtype.kind == "b" else dtype.kind
        column = ColumnReduction(self._flat(array), f"{kind}{dtype.itemsize}", "rank", name)
        return numbers_of_words(self._words([column])[0], dtype, self.xp)

    def pairs(self, total: Any, rest: Any) -> tuple[Any, Any]:
        """Return sums of pairs of floats; NaN where one of them is no number."""
        made = numbers.real_sums(self.codes, self.groups, total)
        rests = numbers.real_sums(self.codes, self.groups, rest)
        made = numbers.added(made, rests)
        none = self.xp.isnan(total)
        if not bool(none.any()):
            return made
        # Sums of opposite infinities, which kernels leave out.
        lost = self.among(none)
        return self.xp.where(lost, np.nan, made[0]), self.xp.where(lost, 0.0, made[1])

    def among(self, mask: Any) -> Any:
        """Return a mask of the groups of which a state is in a mask."""
        made = self.xp.zeros(self.groups, bool)
        made[self.codes[mask]] = True
        return made

    def real_sums(self, array: Any) -> Any:
        """Return sums of floats, without NaNs."""
        return numbers.real_sums(self.codes, self.groups, array)[0]

    def of_group(self, array: Any) -> Any:
        """Return for each state what its group has."""
        return gather_rows(array, self.codes)

    def rows_with(self, name: str, places: Any) -> tuple[Any, Any]:
        """Return a state with the least or greatest place of each group, and that place."""
        found = self.extreme(name, places)
        hits = self.xp.flatnonzero(places == self.of_group(found))
        rows = self.xp.empty(self.groups, np.int64)
        # One of several is enough: they have no place.
        rows[self.codes[hits]] = hits
        return rows, found

    def products(self, array: Any) -> Any:
        """Return products."""
        order = self.device.stable_order(self.codes)
        sizes = self.xp.bincount(self.codes, minlength=self.groups)
        starts = self.xp.cumsum(sizes) - sizes
        return products(array[order], self.codes[order], starts, sizes, self.xp)


def folded_fields(
    folds: Folds, kinds: Iterable[str], fields: Fields, ranks: Callable[[Any, str], Any]
) -> dict[str, Any]:
    """Return the fields of groups from those of their states.

    Parameters
    ----------
    folds : Folds
    kinds : iterable of str
        See `KINDS`; decimals and pairs of columns are none of them.
    fields : dict
        Arrays of numbers, and columns of other values.
    ranks : function
        Of such a column and ``least`` or ``greatest``: numbers in the order of its values, by which
        nulls are never chosen.
    """
    kinds = list(kinds)
    added = [name for kind in kinds if kind in _INTEGERS for name in KINDS[kind].fields]
    made: dict[str, Any] = dict(
        zip(added, folds.sums(fields[name] for name in added), strict=True)
    )  # fmt: skip
    for kind in kinds:
        if kind == "real":
            made["real"], made["rest"] = folds.pairs(fields["real"], fields["rest"])
        elif kind in _EXTREMES:
            made[kind] = _extreme(folds, kind, fields[kind], ranks)
        elif kind in _ENDS:
            made[kind], made[f"{kind} row"] = _end(folds, kind, fields)
        elif kind == "prod":
            made["prod"] = folds.products(fields["prod"])
    for kind in kinds:
        # Of what was folded before.
        if kind == "moment":
            made["moment"] = _moments(folds, fields, made)
        elif kind in _LABELS:
            made[kind], made[f"{kind} row"] = _label(folds, kind, fields, made)
    return made


_INTEGERS = ADDED_UP - {"real"}
_EXTREMES = {"least": "least", "greatest": "greatest", "any": "greatest", "all": "least"}
_ENDS = {
    "first": "least", "first of all": "least", "last": "greatest", "last of all": "greatest"
}  # fmt: skip
_LABELS = {"idxmin": "least", "idxmax": "greatest"}


def _extreme(folds: Folds, kind: str, field: Any, ranks: Callable[[Any, str], Any]) -> Any:
    """Return the extremes; a part in which a group has no values gives what is never chosen."""
    if isinstance(field, folds.xp.ndarray):
        return folds.extreme(_EXTREMES[kind], field)
    return Gathered(folds.rows_with(kind, ranks(field, kind))[0])


def _end(folds: Folds, kind: str, fields: Fields) -> tuple[Any, Any]:
    rows, places = folds.rows_with(_ENDS[kind], fields[f"{kind} row"])
    return Gathered(rows), places


def _label(folds: Folds, kind: str, fields: Fields, made: Fields) -> tuple[Any, Any]:
    extreme = _LABELS[kind]
    hits = fields[extreme] == folds.of_group(made[extreme])
    hits &= fields["count"] > 0
    rows, places = folds.rows_with("least", folds.xp.where(hits, fields[f"{kind} row"], NEVER))
    return Gathered(rows), places


def _moments(folds: Folds, fields: Fields, made: Fields) -> Any:
    """Return the sums of squared deviations: of each state from its mean, and of that (Chan)."""
    count, total = fields["count"], total_of(made)
    means = numbers.mean_of(total, made["count"])
    own = numbers.mean_of(total_of(fields), count)
    with np.errstate(invalid="ignore", over="ignore"):
        off = numbers.difference(own, (folds.of_group(means[0]), folds.of_group(means[1])))
        squares = fields["moment"] + off * off * count
        squares = folds.xp.where(count > 0, squares, 0.0)
        # Squares of what is not finite are no numbers, which kernels leave out.
        there = folds.xp.isfinite(total[0])
        return folds.xp.where(there, folds.real_sums(squares), np.nan)
