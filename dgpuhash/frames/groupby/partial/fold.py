"""Fold the states of parts: by key in a hash table, or many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.partial.cudf.rows import CudfRows
from dgpuhash.frames.groupby.partial.kinds import (
    ADDED_UP,
    AGGREGATE_OF,
    KINDS,
    NEVER,
    Choice,
    Place,
    combined,
    fields_of,
    lost_fields,
    prefix_of,
    retracted,
)
from dgpuhash.frames.groupby.partial.rows import distinct_rows, parts_of_rows
from dgpuhash.frames.groupby.partial.storage import NumberColumn, ValueColumn, plain
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys
from dgpuhash.frames.merge.distinct import numbered
from dgpuhash.frames.row_store import RowStore
from dgpuhash.tables import unique

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

Wanted: TypeAlias = Mapping[Place, tuple[str, ...]]

# So many groups without rows are kept beside as many others.
_FEW = 2**12


class GroupStates:
    """The states of groups, found by key in a hash table; hits are verified.

    Parameters
    ----------
    plan : GroupPlan

    Attributes
    ----------
    generation : int
        Grows where positions of groups change, as many groups disappeared.
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        empty = plan.states_meta
        self._keys, self._empty = _Keys(plan, empty), 0
        self.generation: int = 0
        self._states = StateColumns(plan, with_lost_fields(plan, empty))
        self._columns = self._states.columns

    def __len__(self) -> int:
        """Return the number of groups that have rows."""
        return len(self._keys) - self._empty

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keys and states take."""
        return self._keys.nbytes + sum(column.nbytes for column in self._columns.values())

    def fold(self, states: pd.DataFrame) -> Any:
        """Add the states of a part; return the positions of the groups that changed.

        Costs what the part has, not what is here. Keys may occur more than once. Positions stay
        until `generation` changes.
        """
        touched = [self._fold_distinct(each) for each in _distinct(self.plan, states)]
        if len(touched) < 2:
            return touched[0] if touched else np.empty(0, np.int64)
        return unique(np.concatenate(touched))

    def _fold_distinct(self, states: pd.DataFrame) -> Any:
        states = with_lost_fields(self.plan, states)
        rows, first = self._keys.placed(states)
        fresh = np.flatnonzero(rows >= first)
        known = np.flatnonzero(rows < first)
        if len(known):
            again = states if not len(fresh) else _taken(states, known)
            if self._empty:
                self._empty -= int((self._columns["n"].take(rows[known]) == 0).sum())
            self._states.fold(rows[known], again, self.plan.wanted or {})
        if len(fresh):
            new = states if not len(known) else _taken(states, fresh)
            for label, column in self._columns.items():
                column.append(plain(new[label]))
        return rows

    def retract(self, states: pd.DataFrame) -> Any:
        """Take the states of rows away again; return the positions of the groups that changed.

        Groups without rows disappear. Costs what these states have.

        Raises
        ------
        UnsupportedError
            When an aggregate cannot be taken back, as a minimum, or a sum of infinite values.
        SpecError
            When a group has fewer rows than are taken away.
        """
        for kinds in (self.plan.wanted or {}).values():
            for kind in kinds:
                if KINDS[kind].retracted is None:
                    raise UnsupportedError(
                        f"retract with the aggregate {AGGREGATE_OF[kind]}, which the rows that "
                        "are left do not tell; there is count, size, sum, mean, var, std, sem, "
                        "cov, corr"
                    )
        parts = _distinct(self.plan, with_lost_fields(self.plan, states))
        self._check_there(parts)
        touched = [self._retract_distinct(each) for each in parts]
        if self._empty > len(self) + _FEW:
            self._compact()
        if len(touched) < 2:
            return touched[0] if touched else np.empty(0, np.int64)
        return unique(np.concatenate(touched))

    def _check_there(self, parts: list[pd.DataFrame]) -> None:
        """Raise unless the groups have the rows of these parts."""
        if not parts:
            return
        # The first part has every key.
        rows = [self._keys.found(each) for each in parts]
        gone = np.concatenate([each["n"].to_numpy() for each in parts])
        _, first, places = unique(np.concatenate(rows), return_index=True, return_inverse=True)
        at = np.concatenate(rows)[first]
        less = np.bincount(places, weights=gone).astype(np.int64)
        if (at < 0).any() or (self._columns["n"].take(at) < less).any():
            raise SpecError(
                "retract of rows that were never folded; each row can be taken away once"
            )
        for label, column in self._columns.items():
            if label.endswith((" real", " left", " right")):
                for part, held in zip(parts, rows, strict=True):
                    whole = column.take(held)
                    lost = ~np.isfinite(part[label].to_numpy()) & ~np.isfinite(whole)
                    if (lost & (self._columns["n"].take(held) > part["n"].to_numpy())).any():
                        raise UnsupportedError(
                            "retract of infinite values, of which the sum does not tell the rest; "
                            "build the state anew"
                        )

    def _retract_distinct(self, states: pd.DataFrame) -> Any:
        rows = self._keys.found(states)
        made = self._states.combined(rows, states, self.plan.wanted or {}, retracted)
        left = self._columns["n"].take(rows) - states["n"].to_numpy()
        none = left == 0
        self._empty += int(none.sum())
        made |= {"n": left, "at": np.where(none, NEVER, self._columns["at"].take(rows))}
        for label, array in made.items():
            self._columns[label].put(rows, np.where(none & (label != "at"), 0, array))
        return rows

    def _compact(self) -> None:
        """Free the memory of groups without rows."""
        made = GroupStates(self.plan)
        made.fold(self.frame())
        self._keys, self._empty = made._keys, 0
        self._states, self._columns = made._states, made._columns
        self.generation += 1

    def find(self, states: pd.DataFrame) -> Any:
        """Return the position of each row's key, -1 where there is no such group.

        `states` has the key columns of states; others are not read.
        """
        rows = self._keys.found(states)
        if self._empty:
            rows[self._columns["n"].take(np.maximum(rows, 0)) == 0] = -1
        return rows

    def take(self, rows: Any) -> pd.DataFrame:
        """Return the states of the groups at positions, in the form of `GroupPlan.reduce`."""
        return self._states.take(rows, self._keys.take(rows))

    def frame(self) -> pd.DataFrame:
        """Return the states as one frame, which can be folded into others."""
        n = self._columns["n"].array
        return self.take(np.flatnonzero(n) if self._empty else np.arange(len(n)))

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        return self.plan.result(self.frame())


class StateColumns:
    """The states of groups beside their keys, by position.

    Parameters
    ----------
    plan : GroupPlan
    states : DataFrame
        Those of the first groups.

    Attributes
    ----------
    columns : dict
        By label.
    """

    def __init__(self, plan: GroupPlan, states: pd.DataFrame) -> None:
        self._keys = plan.key_labels
        self.columns: dict[str, NumberColumn | ValueColumn] = {
            str(label): _column(plain(states[label])) for label in list(states)[len(self._keys) :]
        }

    def fold(self, rows: Any, states: pd.DataFrame, wanted: Wanted) -> None:
        """Combine the states of groups at positions, each of which occurs once, with others."""
        made = self.combined(rows, states, wanted, combined)
        n, at = self.columns["n"], self.columns["at"]
        made |= {
            "n": n.take(rows) + states["n"].to_numpy(),
            "at": np.minimum(at.take(rows), states["at"].to_numpy()),
        }
        for label, found in made.items():
            if not isinstance(found, Choice):
                self.columns[label].put(rows, found)
                continue
            chosen = np.flatnonzero(found.theirs)
            if len(chosen):
                self.columns[label].put(rows[chosen], plain(states[label])[chosen])

    def combined(
        self, rows: Any, states: pd.DataFrame, wanted: Wanted, how: Any
    ) -> dict[str, Any]:  # fmt: skip
        """Return the fields of groups that are here together with those of a part."""
        made: dict[str, Any] = {}
        for place, kinds in wanted.items():
            fields = [*fields_of(kinds), *lost_fields(kinds)]
            names = {name: prefix_of(place) + name for name in fields}
            names = {name: label for name, label in names.items() if label in self.columns}
            ours = {name: self.columns[label].take(rows) for name, label in names.items()}
            theirs = {name: plain(states[label]) for name, label in names.items()}
            made.update({names[name]: found for name, found in how(kinds, ours, theirs).items()})
        return made

    def take(self, rows: Any, keys: pd.DataFrame) -> pd.DataFrame:
        """Return the states at positions with their keys, in the form of `GroupPlan.reduce`."""
        arrays = [plain(keys[label]) for label in self._keys]
        arrays += [column.take(rows) for column in self.columns.values()]
        labels = pd.Index([*self._keys, *self.columns])
        return frame_of(arrays, labels, pd.RangeIndex(len(rows)))


def with_lost_fields(plan: GroupPlan, states: pd.DataFrame) -> pd.DataFrame:
    """Return states with all fields that bound what was lost; 0 of rows that none was taken off."""
    wanted = (plan.wanted or {}).items()
    labels = [prefix_of(place) + name for place, kinds in wanted for name in lost_fields(kinds)]
    missing = [label for label in labels if label not in states.columns]
    return states.assign(**dict.fromkeys(missing, 0.0)) if missing else states


class _Keys:
    """The keys of groups: where each is.

    Parameters
    ----------
    plan : GroupPlan
    empty : DataFrame
        States of no rows.
    """

    def __init__(self, plan: GroupPlan, empty: pd.DataFrame) -> None:
        self._plan = plan
        self._rows = KeyedRows(self._stored(empty), plan.encoder, "cpu")
        self._rows.store = RowStore(self._stored(empty))

    def __len__(self) -> int:
        return len(self._rows.store)

    @property
    def nbytes(self) -> int:
        return self._rows.store.nbytes + self._rows.table.nbytes

    def _stored(self, states: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of states, and the columns by which they are found."""
        made = self._plan.portable(states)
        for label in self._plan.key_labels:
            made[label] = states[label].array
        return made

    def placed(self, states: pd.DataFrame) -> tuple[Any, int]:
        """Return the position of each key, and the first position of new ones.

        Keys that are not here yet are added. No key occurs twice.
        """
        first, keys = len(self), self._stored(states)
        encoded = self._plan.encoder.encode_rows(keys)
        found = self._found(encoded)
        fresh = np.flatnonzero(found < 0)
        if len(fresh):
            found[fresh] = np.arange(first, first + len(fresh))
            new = keys if len(fresh) == len(keys) else _taken(keys, fresh)
            if len(fresh) < len(keys):
                encoded = self._plan.encoder.encode_rows(new)
            self._rows.insert(new, encoded)
        return found, first

    def found(self, states: pd.DataFrame) -> Any:
        """Return the position of each key, -1 where it is not here."""
        return self._found(self._plan.encoder.encode(self._plan.portable(states)))

    def _found(self, encoded: EncodedKeys) -> Any:
        found = np.full(len(encoded), -1, np.int64)
        if not len(self):
            return found
        partners = self._rows.partners(encoded)
        if partners is not None:
            return partners
        asked, there = self._rows.pairs(encoded)
        found[asked] = there
        return found

    def take(self, rows: Any) -> pd.DataFrame:
        """Return the keys at positions."""
        return self._rows.store.take(rows, self._plan.key_labels)


class GroupRows:
    """Rows of groups that stand: those of parts are kept as they come.

    Parameters
    ----------
    plan : GroupPlan

    Attributes
    ----------
    generation : int
        Grows where positions of rows change.
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self._rows = RowStore(plan.states_meta)
        self.generation: int = 0
        self._enough = _FEW

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows take."""
        return self._rows.nbytes

    def fold(self, states: pd.DataFrame) -> Any:
        """Add the rows of a part; return their positions here."""
        first = len(self)
        self._rows.append(states)
        if self.plan.distinct and len(self) > self._enough:
            self._compact()
        return np.arange(min(first, len(self)), len(self))

    def _compact(self) -> None:
        """Keep one of the rows that are equal."""
        rows = RowStore(self.plan.states_meta)
        rows.append(distinct_rows(self.plan, self._rows.frame()))
        # Where few are equal it seldom pays.
        factor = 2 if 2 * len(rows) <= len(self) else 8
        self._rows, self._enough = rows, factor * len(rows) + _FEW
        self.generation += 1

    def retract(self, states: pd.DataFrame) -> Any:
        """Raise UnsupportedError: rows are only added."""
        raise UnsupportedError(
            f"retract with {self.plan.verb.name}, which needs the rows of each group; there is "
            "count, size, sum, mean, var, std, sem, cov, corr"
        )

    def frame(self) -> pd.DataFrame:
        """Return the rows as one frame, which can be folded into others."""
        made: pd.DataFrame = self._rows.frame()
        return made

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        return self.plan.result(self.frame())


def _distinct(plan: GroupPlan, states: pd.DataFrame) -> list[pd.DataFrame]:
    """Return states as parts in which no key occurs twice."""
    if not len(states):
        return []
    codes, heads = numbered(plan.portable(states))
    if len(heads) == len(states):
        return [states]
    return [_taken(states, rows) for rows in distinct_parts(codes, np.arange(len(codes)))]


def distinct_parts(codes: Any, rows: Any) -> list[Any]:
    """Return rows in as few parts as it takes so that no code occurs twice in one.

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


def _taken(states: pd.DataFrame, rows: Any) -> pd.DataFrame:
    return states.take(rows).reset_index(drop=True)


def _column(array: Any) -> NumberColumn | ValueColumn:
    numbers = isinstance(array, np.ndarray) and array.dtype != object
    return NumberColumn(array) if numbers else ValueColumn(array)


# States that wait for others at least before they are folded; they take some 16 MB.
_WAITING = 2**18


class GroupBatches:
    """The states of groups, which wait until they are as many as those that are folded.

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
        """Return the number of states and rows here, of which several may be of one group."""
        return len(self._folded) + self._waiting_rows + len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keys and states take."""
        return self._nbytes + (self._rows.nbytes if self._rows else 0)

    def fold(self, states: pd.DataFrame) -> None:
        """Add the states of a part, or its rows in place of them."""
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
        """Return the states as one frame, in which each key occurs once."""
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
        """Return the aggregates of the groups that are here."""
        rows_alone = self._rows and not len(self._folded) and not self._waiting
        return self._rows.result() if rows_alone else self.plan.result(self.frame())


def folded(plan: GroupPlan, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the states of all parts as one frame, in which each key occurs once."""
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
        made = StateColumns(plan, first)
        known = np.ones(len(whole), bool)
        known[heads] = False
        ends = np.cumsum([len(part) for part in parts])
        for part, end in zip(parts, ends.tolist(), strict=True):
            rows = end - len(part) + np.flatnonzero(known[end - len(part) : end])
            for some in distinct_parts(codes[rows], rows):
                made.fold(codes[some], frames.take(whole, some), alone)
        sums = {label: column.array for label, column in made.columns.items()} | sums
    arrays = [sums[label] if label in sums else plain(first[label]) for label in whole]
    return frame_of(arrays, whole.columns, pd.RangeIndex(len(heads)))


def _are_added(whole: pd.DataFrame, place: Place, kinds: Sequence[str]) -> bool:
    """Return whether the states of a column are sums, which kernels can add up."""
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
    """Return the sums of states by group, their numbers of rows, and their first rows."""
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
                made[label], made[label.removesuffix("real") + "rest"] = numbers.added(
                    (made[label], 0.0), (rest, 0.0)
                )
        elif label not in made:
            made[label] = np.zeros(groups, array.dtype)
            np.add.at(made[label], codes, array)
    return made


def folding(plan: GroupPlan) -> GroupBatches | GroupRows | CudfRows:
    """Return states of no rows like those of `GroupPlan.standing`, to be asked for all at once."""
    if not plan.needs_rows:
        return GroupBatches(plan)
    return CudfRows(plan) if plan.on_gpu else GroupRows(plan)
