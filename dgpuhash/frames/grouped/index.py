"""GroupIndex: index of partial states by key, one shard of a DistributedGroupBy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.partial.fold import Folds
from dgpuhash.frames.grouped import fields
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.frames.grouped.fields import EPOCH
from dgpuhash.frames.grouped.store import ResultRows, StateRows
from dgpuhash.frames.index import FrameIndex
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyColumns, KeyEncoder
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.frames.merge.distinct import number_keys
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

    @function_translates_memory_errors
    def stage(self, verb: str, rows: Any, epoch: int) -> GroupChange:
        """Check a change and return what `commit` stores.

        Parameters
        ----------
        verb : {"update", "retract"}
        rows : DataFrame
            States, as for `fold`.
        epoch : int
            The epoch after the change.

        Raises
        ------
        ColumnError
            When rows are retracted that were never added.
        UnsupportedError
            When infinities are retracted from groups that stay, or a sum would overflow.
        OutOfMemoryError
            When there is not enough memory.
        """
        taken_off = verb == "retract"
        batch = self._batch(rows)
        if taken_off:
            self._check_retraction(batch)
        else:
            self.check_change("insert", rows)
        self._check_overflow(batch, taken_off=taken_off)
        return self._change(batch, epoch, taken_off=taken_off)

    @function_translates_memory_errors
    @read_locked
    def _batch(self, rows: Any) -> _StateBatch:
        return _StateBatch.of(rows, self._encoder, self._places)

    def _check_retraction(self, batch: _StateBatch) -> None:
        """Raise an error if rows were never added, or are infinite in groups that stay."""
        places, xp = batch.places, self._frames.xp
        there = xp.flatnonzero(places >= 0)
        kinds, rows_left = self._groups.kinds, None
        stored = fields.counts(kinds, self._states.take(places[there]))
        gone = Folds(batch.numbers, len(places)).sums(fields.counts(kinds, batch.rows))
        for own, theirs in zip(stored, gone, strict=True):
            left = -theirs
            left[there] += own
            if (left < 0).any():
                self._refuse_group(batch, int(left.argmin()))
            # The first counts are those of rows.
            rows_left = left if rows_left is None else rows_left
        infinite = batch.numbers[fields.infinite(kinds, batch.rows)]
        if rows_left is not None and (rows_left[infinite] > 0).any():
            raise UnsupportedError(
                "infinite values are retracted from groups with other rows, whose sums are not "
                "known; nothing was changed, build the groups again without these values"
            )

    def check_overflow(self, rows: Any) -> None:
        """Raise UnsupportedError if a sum, or sum of squares, of states to insert overflows."""
        self._check_overflow(self._batch(rows), taken_off=False)

    def _check_overflow(self, batch: _StateBatch, *, taken_off: bool) -> None:
        groups, rows, places, xp = self._groups, batch.rows, batch.places, self._frames.xp
        of_floats = any("real" in kinds for kinds in groups.kinds.values())
        if not (groups.is_retractable and of_floats and len(rows)):
            return
        there = xp.flatnonzero(places >= 0)
        stored = self._states.take(places[there])
        numbers = xp.concatenate([there, batch.numbers])
        both = self._frames.concat([stored, groups.complete(rows)])
        if not fields.may_overflow(groups.kinds, both, numbers, len(places)):
            return
        # Those with infinite values are what these make of them.
        endless = xp.zeros(len(places), bool)
        endless[numbers[fields.unbounded_mask(groups.kinds, both)]] = True
        trial = GroupIndex(groups, self._encoder, epoch=self._epoch)
        trial.fold(self._frames.take(stored, xp.flatnonzero(~endless[there])), self._epoch)
        finite = self._frames.take(rows, xp.flatnonzero(~endless[batch.numbers]))
        trial.fold(finite, self._epoch, taken_off=taken_off)
        states = trial.frame()
        beyond = xp.flatnonzero(fields.unbounded_mask(groups.kinds, states))
        if len(beyond):
            raise fields.overflow(self._key_of(states, int(beyond[0])))

    def _key_of(self, states: Any, row: Any) -> dict[Any, Any]:
        """Return the key of the states at a position."""
        keys = self._frames.take(states[list(self._encoder.names)], self._frames.xp.asarray([row]))
        return dict(keys.to_dict("records")[0])

    def _refuse_group(self, batch: _StateBatch, number: int) -> NoReturn:
        key = self._key_of(batch.rows, int(batch.heads[number]))
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
        return self.commit(self._change(self._batch(states), epoch, taken_off=taken_off))

    @function_translates_memory_errors
    @read_locked
    def _change(self, batch: _StateBatch, epoch: int, *, taken_off: bool) -> GroupChange:
        """Return the states of groups after a change, without storing them."""
        xp, places = self._frames.xp, batch.places
        rows = self._states.stamp(self._states.conform(batch.rows), epoch)
        known, new = xp.flatnonzero(places >= 0), xp.flatnonzero(places < 0)
        fresh = self._frames.take(rows, batch.heads[new])
        work = self._states.beside(places[known], fresh)
        own = xp.empty(len(places), np.int64)
        own[known], own[new] = xp.arange(len(known)), len(known) + xp.arange(len(new))
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
        """Store the result of `stage`; return the number of changed groups.

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
        gone = self._frames.xp.flatnonzero(fields.counts(self._groups.kinds, states)[0] == 0)
        if len(gone):
            self._rows.erase(self._encoder.encode_rows(self._frames.take(states, gone)))

    def _places(self, keys: EncodedKeys) -> Any:
        """Return the positions of keys' states in the store; -1 for absent keys."""
        found = self._rows.partners(keys)
        if found is None:
            asked, stored = self._rows.pairs(keys)
            found = self._frames.xp.full(len(keys), -1, np.int64)
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
    places : int64 array
        Where the states of each group are stored, -1 for new groups.
    """

    rows: Any
    numbers: Any
    heads: Any
    places: Any

    @classmethod
    def of(
        cls, rows: Any, encoder: KeyEncoder, places_of: Callable[[EncodedKeys], Any]
    ) -> _StateBatch:  # fmt: skip
        """Return states with the numbers and positions of their groups."""
        names = list(encoder.names)
        keys = rows[names]
        frames = frames_of(rows)
        if len(rows):
            numbers, heads = number_keys(KeyColumns.of(keys, names))
        else:
            numbers = heads = frames.xp.empty(0, np.int64)
        firsts = keys if len(heads) == len(rows) else frames.take(keys, heads)
        return cls(rows, numbers, heads, places_of(encoder.encode_rows(firsts)))

    def turns(self, new: Any) -> Iterator[Any]:
        """Yield rows of distinct groups in order, without the first rows of `new` groups."""
        frames = frames_of(self.rows)
        xp = frames.xp
        turns, most = xp.zeros(len(self.rows), np.int64), 1
        if len(self.heads) < len(self.rows):
            order = frames.row_order(self.numbers)
            counts = xp.bincount(self.numbers)
            starts = xp.cumsum(counts) - counts
            turns[order] = xp.arange(len(order)) - starts[self.numbers[order]]
            most = int(counts.max())
        turns[self.heads[new]] = -1
        for turn in range(most):
            rows = xp.flatnonzero(turns == turn)
            if len(rows):
                yield rows
