"""Merge the partial states of many parts in one pass, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.states import numbers_of_words
from dgpuhash.frames.groupby.aggregates.values import take_values
from dgpuhash.frames.groupby.assembly import frame_of, series_of
from dgpuhash.frames.groupby.cudf.states import products
from dgpuhash.frames.groupby.partial.kinds import (
    ADDED_UP,
    KINDS,
    NEVER,
    Choice,
    Place,
    combine,
    fields_of,
    prefix_of,
    total_of,
)
from dgpuhash.frames.groupby.partial.rows import distinct_rows, parts_of_rows
from dgpuhash.frames.merge.distinct import numbered
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups
from dgpuhash.tables.select import gather_rows

if TYPE_CHECKING:
    from dgpuhash.backend import Backend
    from dgpuhash.frames.groupby.partial.plan import GroupPlan


class NumberColumn:
    """Growable array of any device.

    Examples
    --------
    >>> column = NumberColumn(np.array([1, 2]))
    >>> column.append(np.array([3]))
    >>> column.put(np.array([0]), np.array([7]))
    >>> column.take(np.array([0, 2])).tolist(), column.array.tolist()
    ([7, 3], [7, 2, 3])
    """

    has_nulls = False

    def __init__(self, array: Any, *, copy: bool = True) -> None:
        self._room, self._length = array.copy() if copy else array, len(array)

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Any:
        """All elements."""
        return self._room[: self._length]

    def cut(self, length: int) -> None:
        """Drop the elements from a position on."""
        self._length = min(self._length, length)

    def append(self, array: Any) -> None:
        """Add elements."""
        if not len(array):
            return
        length = self._length + len(array)
        if length > len(self._room):
            room = np.empty_like(self._room, shape=max(length, 2 * len(self._room)))
            room[: self._length] = self.array
            self._room = room
        self._room[self._length : length] = array
        self._length = length

    def take(self, rows: Any) -> Any:
        """Return the elements at positions."""
        return self._room[rows]

    def put(self, rows: Any, array: Any) -> None:
        """Replace the elements at positions."""
        if len(rows):
            self._room[rows] = array

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the elements."""
        return int(self._room.nbytes)


class ValueColumn:
    """Growable column of any dtype, with replacement at the cost of the replaced values.

    New values are written behind the others; the old ones are left out once they are the most.
    """

    def __init__(self, array: Any) -> None:
        self._rows: RowStore = RowStore(_frame(array).iloc[:0])
        self._places = NumberColumn(np.empty(0, np.int64))
        self.append(array)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def array(self) -> Any:
        """All values."""
        return self.take(np.arange(len(self)))

    def cut(self, length: int) -> None:
        """Drop the values from a position on."""
        self._places.cut(length)

    def append(self, array: Any) -> None:
        """Add values."""
        first = len(self._rows)
        self._rows.append(_frame(array))
        self._places.append(np.arange(first, first + len(array)))

    def take(self, rows: Any) -> Any:
        """Return the values at positions."""
        return plain(self._rows.take(self._places.take(rows))["value"])

    def put(self, rows: Any, array: Any) -> None:
        """Replace the values at positions."""
        first = len(self._rows)
        self._rows.append(_frame(array))
        self._places.put(rows, np.arange(first, first + len(array)))
        if len(self._rows) > 2 * len(self) + 1024:
            self._rows = self._rows.kept(self._places.array)
            self._places = NumberColumn(np.arange(len(self)))

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the values."""
        return self._rows.nbytes + self._places.nbytes


def _frame(array: Any) -> pd.DataFrame:
    return pd.DataFrame({"value": series_of(array, None)})


def column_of(array: Any) -> NumberColumn | ValueColumn:
    """Return a growable column of an array."""
    numbers = isinstance(array, np.ndarray) and array.dtype != object
    return NumberColumn(array) if numbers else ValueColumn(array)


def plain(column: pd.Series) -> Any:
    """Return the values of a column as aggregates take them: NumPy dtypes as NumPy arrays.

    They are not copied.
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind not in "mM":
        return column.to_numpy()
    return column.array


def array_of(column: Any, rows: Any) -> Any:
    """Return the elements of an array or column at positions; 0 or null for -1.

    Examples
    --------
    >>> array_of(np.array([5, 6]), np.array([1, -1])).tolist()
    [6, 0]
    """
    if isinstance(column, np.ndarray) and column.dtype != object:
        made = np.zeros(len(rows), column.dtype)
        made[rows >= 0] = column[rows[rows >= 0]]
        return made
    return take_values(series_of(column, None), rows)


Wanted: TypeAlias = Mapping[Place, tuple[str, ...]]


def _combine(
    columns: Mapping[str, NumberColumn | ValueColumn], rows: Any, states: pd.DataFrame,
    wanted: Wanted,
) -> None:  # fmt: skip
    """Merge the states at distinct positions with other states."""
    n, at = columns["n"], columns["at"]
    n.put(rows, n.take(rows) + states["n"].to_numpy())
    at.put(rows, np.minimum(at.take(rows), states["at"].to_numpy()))
    for place, kinds in wanted.items():
        labels = {name: prefix_of(place) + name for name in fields_of(kinds)}
        ours = {name: columns[label].take(rows) for name, label in labels.items()}
        theirs = {name: plain(states[label]) for name, label in labels.items()}
        for name, array in combine(kinds, ours, theirs).items():
            column = columns[labels[name]]
            if not isinstance(array, Choice):
                column.put(rows, array)
            elif len(others := np.flatnonzero(array.theirs)):
                column.put(rows[others], theirs[name][others])


# Rows of one device that are not compared with each other yet.
_FEW = {"cpu": 2**12, "cuda": 2**20}


class GroupRows:
    """Rows of groups collected from parts, for aggregates without states.

    Parameters
    ----------
    plan : GroupPlan
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        # By the place of the first row of each: rows of a part come at once, and in order.
        self._parts: dict[int, Any] = {}
        self._rows = self.nbytes = 0
        self._few = self._enough = _FEW["cuda" if plan.on_gpu else "cpu"]

    def __len__(self) -> int:
        return self._rows

    def fold(self, states: Any) -> None:
        """Add the rows of a part."""
        if not len(states):
            return
        self._parts[int(states["at"].iloc[0])] = states
        self._rows += len(states)
        self.nbytes += frames_of(states).rows_nbytes(states)
        if self.plan.distinct and len(self) > self._enough:
            before = len(self)
            self._keep(distinct_rows(self.plan, self.frame()))
            # Where few are equal it seldom pays.
            self._enough = (2 if 2 * len(self) <= before else 8) * len(self) + self._few

    def _keep(self, rows: Any) -> None:
        self._parts = {int(rows["at"].iloc[0]): rows}
        self._rows, self.nbytes = len(rows), frames_of(rows).rows_nbytes(rows)

    def frame(self) -> Any:
        """Return the rows as one frame, in the order of parts and rows."""
        if not self._parts:
            return self.plan.states_meta
        if len(self._parts) > 1:
            ordered = [self._parts[first] for first in sorted(self._parts)]
            self._keep(frames_of(ordered[0]).concat(ordered))
        return next(iter(self._parts.values()))

    def result(self) -> Any:
        """Return the aggregates of the collected groups."""
        return self.plan.result(self.frame())


def distinct_parts(codes: Any, rows: Any) -> list[Any]:
    """Split rows into the fewest parts without a repeated code in one.

    Examples
    --------
    >>> [part.tolist() for part in distinct_parts(np.array([5, 7, 5]), np.array([0, 1, 2]))]
    [[0, 1], [2]]
    """
    order = np.argsort(codes, kind="stable")
    found = codes[order]
    if not (found[1:] == found[:-1]).any():
        return [rows]
    first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
    turn = np.empty(len(codes), np.int64)
    counts = np.diff(first, append=len(codes))
    turn[order] = np.arange(len(codes)) - np.repeat(first, counts)
    return [rows[turn == each] for each in range(int(counts.max()))]


# States that wait for others at least before they are folded; they take some 16 MB.
_WAITING = 2**18


class GroupBatches:
    """Batched aggregation states: buffer partial states and merge them in one pass.

    All of them are then numbered by key at once and folded in a pass a column, which costs a
    fraction of what finding each in a hash table does.

    Parameters
    ----------
    plan : GroupPlan
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self._rows: Any = ()
        self._folded, self._waiting = plan.states_meta, list[pd.DataFrame]()
        self._waiting_rows = self._nbytes = 0

    def __len__(self) -> int:
        """Return the number of buffered states and rows, with repeated groups."""
        return len(self._folded) + self._waiting_rows + len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of keys and states."""
        return self._nbytes + (self._rows.nbytes if self._rows else 0)

    def fold(self, states: pd.DataFrame) -> None:
        """Add the states or rows of a part."""
        if not len(states):
            return
        if self.plan.form_of(states):
            self._rows = self._rows or folding(self.plan.forms[1])
            self._rows.fold(states)
            return
        self._waiting.append(states)
        # Many parts may wait, so their rows are not counted anew for each.
        self._waiting_rows += len(states)
        self._nbytes += frames_of(states).rows_nbytes(states)
        if self._waiting_rows > max(_WAITING, len(self._folded)):
            self._fold_waiting()

    def frame(self) -> pd.DataFrame:
        """Return the merged states as one frame with distinct keys."""
        if self._rows:
            rows, self._rows = self._rows, ()
            for number, part in parts_of_rows(rows.plan, rows.frame()):
                self.fold(self.plan.reduce(part, number))
        return self._fold_waiting()

    def _fold_waiting(self) -> pd.DataFrame:
        if self._waiting:
            parts = [self._folded, *self._waiting] if len(self._folded) else self._waiting
            self._folded, self._waiting = self.plan.folded(parts), []
            self._waiting_rows = 0
            self._nbytes = frames_of(self._folded).rows_nbytes(self._folded)
        return self._folded

    def result(self) -> Any:
        """Return the aggregates of the groups here."""
        rows_alone = self._rows and not len(self._folded) and not self._waiting
        return self._rows.result() if rows_alone else self.plan.result(self.frame())


def fold_states(plan: GroupPlan, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the merged states of all parts as one frame with distinct keys."""
    frames = frames_of(plan.states_meta)
    whole = parts[0] if len(parts) == 1 else frames.concat(parts)
    codes, heads = numbered(plan.portable(whole))
    if len(heads) == len(whole):
        return whole
    wanted = plan.wanted or {}
    alone = {place: kinds for place, kinds in wanted.items() if not _are_added(whole, place, kinds)}
    added = {place: kinds for place, kinds in wanted.items() if place not in alone}
    sums = _sums(whole, codes, len(heads), added)
    first = frames.take(whole if alone else whole.drop(columns=list(sums)), heads)
    if alone:
        columns = {
            str(label): column_of(plain(first[label]))
            for label in first if label not in plan.key_labels
        }  # fmt: skip
        known = np.ones(len(whole), bool)
        known[heads] = False
        ends = np.cumsum([len(part) for part in parts])
        for part, end in zip(parts, ends.tolist(), strict=True):
            rows = end - len(part) + np.flatnonzero(known[end - len(part) : end])
            for some in distinct_parts(codes[rows], rows):
                _combine(columns, codes[some], frames.take(whole, some), alone)
        sums = {label: column.array for label, column in columns.items()} | sums
    arrays = [sums[label] if label in sums else plain(first[label]) for label in whole]
    return frame_of(arrays, whole.columns, pd.RangeIndex(len(heads)))


def _are_added(whole: pd.DataFrame, place: Place, kinds: Sequence[str]) -> bool:
    """Return whether all states of a column are sums, which kernels can add."""
    if not ADDED_UP.issuperset(kinds):
        return False
    for name in fields_of(kinds):
        array = plain(whole[prefix_of(place) + name])
        if not isinstance(array, np.ndarray) or array.dtype.itemsize != 8:
            return False
        # Kernels leave NaN out, and here it is the sum of opposite infinities.
        if array.dtype.kind not in "iu" and (array.dtype.kind != "f" or np.isnan(array).any()):
            return False
    return True


def _sums(whole: pd.DataFrame, codes: Any, groups: int, wanted: Wanted) -> dict[str, Any]:
    """Return the summed states by group, with row counts and first rows."""
    at = np.full(groups, NEVER)
    np.minimum.at(at, codes, whole["at"].to_numpy())
    made = {"at": at}
    fields = [
        prefix_of(place) + name for place, kinds in wanted.items() for name in fields_of(kinds)
    ]
    for label in ["n", *fields]:
        array = plain(whole[label])
        if label.endswith(" real"):
            made[label], rest = numbers.real_sums(codes, groups, array)
            np.add.at(rest, codes, plain(whole[label.removesuffix("real") + "rest"]))
            with np.errstate(invalid="ignore"):
                made[label], made[label.removesuffix("real") + "rest"] = numbers.add_pairs(
                    (made[label], 0.0), (rest, 0.0)
                )
        elif label not in made:
            made[label] = np.zeros(groups, array.dtype)
            np.add.at(made[label], codes, array)
    return made


def folding(plan: GroupPlan) -> GroupBatches | GroupRows:
    """Return an empty collector of states, or of rows if the plan needs them."""
    return GroupRows(plan) if plan.needs_rows else GroupBatches(plan)


Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Values of a field at positions of the states to merge."""

    rows: Any


class Folds:
    """Merge operations on arrays with one element per state.

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
        """Return the smallest or largest number; NaN if there are only NaNs."""
        dtype = array.dtype
        kind = "u" if dtype.kind == "b" else dtype.kind
        column = ColumnReduction(self._flat(array), f"{kind}{dtype.itemsize}", "rank", name)
        return numbers_of_words(self._words([column])[0], dtype, self.xp)

    def pairs(self, total: Any, rest: Any) -> tuple[Any, Any]:
        """Return sums of pairs of floats; NaN if one is NaN."""
        made = numbers.real_sums(self.codes, self.groups, total)
        rests = numbers.real_sums(self.codes, self.groups, rest)
        made = numbers.add_pairs(made, rests)
        none = self.xp.isnan(total)
        if not bool(none.any()):
            return made
        # Sums of opposite infinities, which kernels leave out.
        lost = self.among(none)
        return self.xp.where(lost, np.nan, made[0]), self.xp.where(lost, 0.0, made[1])

    def among(self, mask: Any) -> Any:
        """Return a mask of the groups with a state in a mask."""
        made = self.xp.zeros(self.groups, bool)
        made[self.codes[mask]] = True
        return made

    def real_sums(self, array: Any) -> Any:
        """Return sums of floats, without NaNs."""
        return numbers.real_sums(self.codes, self.groups, array)[0]

    def of_group(self, array: Any) -> Any:
        """Return a group's value for each of its states."""
        return gather_rows(array, self.codes)

    def rows_with(self, name: str, places: Any) -> tuple[Any, Any]:
        """Return the state with each group's smallest or largest position, and the position."""
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
    """Return the merged fields of groups.

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
    """Return extremes; a part without values for a group has a neutral element."""
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
    """Merge sums of squared deviations: within states and between their means (Chan)."""
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
