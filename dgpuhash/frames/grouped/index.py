"""GroupIndex: index of partial states by key, one shard of a DistributedGroupBy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.grouped.aggregation import EPOCH, Aggregation, overflow
from dgpuhash.frames.grouped.store import ResultRows, StateRows
from dgpuhash.frames.index import FrameIndex
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.frames.merge.distinct import numbered
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.typing import Device


class GroupIndex(FrameIndex):
    """Index of groups by key: inserts take states, reads return results.

    States of a key that is stored are combined with the stored ones; `frame` has the states.

    Parameters
    ----------
    groups : Aggregation
    encoder : KeyEncoder
    epoch : int
        The epoch of the groups that are inserted.
    device : str, optional
    method : KeyTableMethod
    """

    def __init__(
        self, groups: Aggregation, encoder: KeyEncoder, *, epoch: int, device: Device | None = None,
        method: KeyTableMethod = AUTO,
    ) -> None:  # fmt: skip
        super().__init__(groups.states, encoder, unique=True, device=device, method=method)
        self._rows.store = StateRows(groups)
        self._groups, self._epoch = groups, epoch

    @property
    def meta(self) -> Any:
        """Empty frame with the keys and results."""
        return self._groups.results

    @property
    def store(self) -> Any:
        """The results by position, with the interface of `RowStore`."""
        return ResultRows(self._states, self._groups)

    @property
    def _states(self) -> StateRows:
        store = self._rows.store
        assert isinstance(store, StateRows)
        return store

    def insert(self, frame: Any) -> None:
        """Merge states with the stored ones."""
        self.fold(frame, self._epoch)

    def insert_arrays(self, arrays: Sequence[Any]) -> None:
        """Merge states given as arrays with the stored ones."""
        self.insert(self._frames.from_arrays(arrays, self._groups.states))

    def check_change(self, verb: str, rows: Any) -> None:
        """Raise ColumnError if a change removes rows that were never added.

        And UnsupportedError for infinities among rows that are taken off groups that stay.
        """
        if verb != "retract":
            super().check_change("insert", rows)
            self.check_overflow(rows)
            return
        batch = _StateBatch.of(rows, self._encoder)
        places = self._places(batch.keys)
        there = np.flatnonzero(places >= 0)
        stored = self._groups.counts(self._states.take(places[there]))
        rows_left = None
        for own, theirs in zip(stored, self._groups.counts(batch.rows), strict=True):
            left = np.zeros(len(places), np.int64)
            left[there] = own
            np.subtract.at(left, batch.numbers, theirs)
            if (left < 0).any():
                self._refuse_group(batch, int(left.argmin()))
            # The first counts are those of rows.
            rows_left = left if rows_left is None else rows_left
        infinite = batch.numbers[self._groups.infinite(batch.rows)]
        if rows_left is not None and (rows_left[infinite] > 0).any():
            raise UnsupportedError(
                "infinite values are retracted from groups with other rows, whose sums are not "
                "known; nothing was changed, build the groups again without these values"
            )
        self.check_overflow(rows, taken_off=True)

    def check_overflow(self, rows: Any, *, taken_off: bool = False) -> None:
        """Raise UnsupportedError if a sum, or sum of squares, would overflow.

        Parameters
        ----------
        rows : DataFrame
            States that are to be folded.
        taken_off : bool
            Whether they are taken off.
        """
        groups = self._groups
        if not groups.is_retractable or not len(rows):
            return
        batch = _StateBatch.of(rows, self._encoder)
        places = self._places(batch.keys)
        there = np.flatnonzero(places >= 0)
        stored = self._states.take(places[there])
        numbers = np.concatenate([there, batch.numbers])
        both = self._frames.concat([stored, groups.complete(rows)])
        if not groups.may_overflow(both, numbers):
            return
        # Those with infinite values are what these make of them.
        endless = np.zeros(len(places), bool)
        endless[numbers[groups.unbounded_mask(both)]] = True
        trial = GroupIndex(groups, self._encoder, epoch=self._epoch)
        trial.fold(self._frames.take(stored, np.flatnonzero(~endless[there])), self._epoch)
        finite = self._frames.take(rows, np.flatnonzero(~endless[batch.numbers]))
        trial.fold(finite, self._epoch, taken_off=taken_off)
        states = trial.frame()
        beyond = np.flatnonzero(groups.unbounded_mask(states))
        if len(beyond):
            raise overflow(states[list(groups.by)].iloc[beyond[0]].to_dict())

    def _refuse_group(self, batch: _StateBatch, number: int) -> NoReturn:
        names = list(self._encoder.names)
        key = self._frames.take(batch.rows[names], batch.heads[[number]]).to_dict("records")[0]
        raise ColumnError(
            f"more rows, or values, of the group {key!r} are retracted than were added; nothing "
            "was changed, retract rows of earlier updates alone"
        )

    @function_translates_memory_errors
    def fold(self, states: Any, epoch: int, *, taken_off: bool = False) -> int:
        """Merge states with the stored ones; return the number of changed groups.

        Parameters
        ----------
        states : DataFrame
            Of rows that follow all earlier ones; several of a group follow each other.
        epoch : int
            The epoch after the change.
        taken_off : bool
            Take the rows of the states off instead, and drop groups that have no rows any more.
        """
        return self.commit(self.prepare(states, epoch, taken_off=taken_off))

    @function_translates_memory_errors
    @read_locked
    def prepare(self, states: Any, epoch: int, *, taken_off: bool = False) -> GroupChange:
        """Return the states of groups after a change, without storing them.

        Parameters are those of `fold`.
        """
        rows = self._states.stamp(self._states.conform(states), epoch)
        batch = _StateBatch.of(rows, self._encoder)
        places = self._places(batch.keys)
        known, new = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        fresh = self._frames.take(rows, batch.heads[new])
        work = self._states.beside(places[known], fresh)
        own = np.empty(len(places), np.int64)
        own[known], own[new] = np.arange(len(known)), len(known) + np.arange(len(new))
        others = self._states.columns_of(rows)
        for turn in batch.turns(new):
            work.combine(own[batch.numbers[turn]], others, turn, taken_off=taken_off)
        if len(new) and len(batch.heads) < len(rows):
            fresh = work.written(fresh, len(known))
        encoded = self._encoder.encode_rows(fresh) if len(new) else None
        return GroupChange(self._states, fresh, encoded, places[known], work, epoch, taken_off)

    @function_translates_memory_errors
    @write_locked
    def commit(self, change: GroupChange, *, again: bool = False) -> int:
        """Store the result of `prepare`; return the number of changed groups.

        Without memory for new groups nothing is changed. What was interrupted later is finished by
        a commit `again`.
        """
        self._turns.begin()
        if self._states is not change.store:
            return change.groups
        if change.encoded is not None and not (again and self.has_begun(change)):
            self._rows.insert(change.fresh, change.encoded)
        self._states.put(change.places, change.work)
        if change.taken_off:
            self._drop(change.places)
        return change.groups

    def has_begun(self, change: GroupChange) -> bool:
        """Return whether a commit may have changed a group."""
        keys = change.encoded
        return keys is None or bool((self._places(keys) >= 0).all())

    def _drop(self, places: Any) -> None:
        """Remove those of some groups without rows."""
        states = self._states.take(places)
        gone = np.flatnonzero(self._groups.counts(states)[0] == 0)
        if len(gone):
            self._rows.erase(self._encoder.encode_rows(self._frames.take(states, gone)))

    def _places(self, keys: EncodedKeys) -> Any:
        """Return the positions of keys' states in the store; -1 for absent keys."""
        found = self._rows.partners(keys)
        if found is None:
            asked, stored = self._rows.pairs(keys)
            found = np.full(len(keys), -1, np.int64)
            found[asked] = stored
        return found.astype(np.int64, copy=False)

    @property
    def _readable(self) -> KeyedRows:
        """The results by the keys of their groups."""
        read = copy.copy(self._rows)
        read.store = self.store
        return read

    @function_translates_memory_errors
    @read_locked
    def changed_since(self, rows: Any, epoch: int) -> Any:
        """Return those of the positions `rows` whose groups changed after an epoch."""
        return rows[self._states.column(EPOCH)[rows] > epoch]

    @function_translates_memory_errors
    @read_locked
    def results(self, since: int = 0) -> Any:
        """Return the keys and results of the groups that changed after an epoch."""
        rows = self._rows.table.rows()
        return self.store.take(rows[self._states.column(EPOCH)[rows] > since])


@dataclass(frozen=True, slots=True)
class GroupChange:
    """States of groups after a change.

    Attributes
    ----------
    store : StateRows
        Those before it. A change that drops many groups replaces it at the end.
    fresh : DataFrame
        The states of new groups.
    encoded : EncodedKeys or None
        Their keys; None without any.
    places : int64 array
        Where the states of the other groups are stored.
    work : StateRows
        Their states first, in this order, without keys.
    epoch : int
        The one after the change.
    taken_off : bool
        Whether groups without rows are dropped.
    """

    store: StateRows
    fresh: Any
    encoded: EncodedKeys | None
    places: Any
    work: StateRows
    epoch: int
    taken_off: bool

    @property
    def groups(self) -> int:
        """Number of changed groups."""
        return len(self.places) + len(self.fresh)


@dataclass(frozen=True, slots=True)
class _StateBatch:
    """Incoming states, with the number of each one's group.

    Attributes
    ----------
    rows : DataFrame
    numbers : int64 array
        The number of the group of each.
    heads : int64 array
        The first of each group.
    keys : EncodedKeys
        The keys of the groups.
    """

    rows: Any
    numbers: Any
    heads: Any
    keys: EncodedKeys

    @classmethod
    def of(cls, rows: Any, encoder: KeyEncoder) -> _StateBatch:
        """Return states with the numbers of their groups."""
        keys = rows[list(encoder.names)]
        named = keys.set_axis(pd.RangeIndex(len(encoder.names)), axis=1)
        numbers, heads = numbered(named)
        firsts = keys if len(heads) == len(rows) else frames_of(rows).take(keys, heads)
        return cls(rows, numbers, heads, encoder.encode_rows(firsts))

    def turns(self, new: Any) -> Iterator[Any]:
        """Yield rows of distinct groups in order, without the first rows of `new` groups."""
        places = np.zeros(len(self.rows), np.int64)
        if len(self.heads) < len(self.rows):
            order = sorted_rows([self.numbers])
            counts = np.bincount(self.numbers)
            places[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        places[self.heads[new]] = -1
        for turn in range(int(places.max(initial=-1)) + 1):
            rows = np.flatnonzero(places == turn)
            if len(rows):
                yield rows
