"""Store of a method's multimaps: growth, rebuilds and atomic changes."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.bucket_list.values import ListStore
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.commit import BrokenSlots, assigner
from dgpuhash.tables.open_addressing.wide_values import ValueRows
from dgpuhash.tables.store import Lent, no_appends
from dgpuhash.tables.stores.list_recipe import ListRecipe
from dgpuhash.tables.stores.rebuilds import RecipeStore
from dgpuhash.tables.stores.recipe import SIDE_VALUE

_BOOL = np.dtype(bool)
# Erased rows of wide values that may stay without being compacted.
_GARBAGE_ROWS = 1024


class PairBatch(NamedTuple):
    """Pairs to append."""

    keys: Any
    values: Any
    rows: Any
    """Numbers of the rows whose keys are not reserved; None for all."""
    beside: tuple[Any, Any]
    """Values of the two reserved keys after the change."""
    payload: ValueRows | None

    @property
    def number(self) -> int:
        """Number of pairs for the table."""
        return len(self.keys) if self.rows is None else len(self.rows)


class ListMethodStore(RecipeStore[ListRecipe], ListStore):
    """Store (see `ListStore`) of tables of a method's `ListRecipe`.

    As `MethodStore`; an append cannot be undone, so that an exception while refused rows are
    helped leaves the store broken, unless all rows turn out to be stored.

    Parameters
    ----------
    recipe : type of ListRecipe
    backend : Backend
    spec : TableSpec
        With all settings of its method.
    key : dtype
        Of the key words: uint32 or uint64.
    capacity : int
        Keys, or pairs where each takes a place, that fit before the store grows.
    """

    def __init__(
        self,
        recipe: type[ListRecipe],
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        capacity: int,
    ) -> None:
        super().__init__(recipe, backend, spec, key, self._set_values(spec), capacity)
        self._payload = self._no_payload()
        # Values of the keys whose bits are all ones, and one less.
        self._beside = self._nothing()
        self._known_keys: int | None = 0

    def __len__(self) -> int:
        if self._known_keys is None:
            counted = self.table.distinct()
            counted = len(self.table.stored_keys()) if counted is None else counted
            self._known_keys = counted + sum(len(each) > 0 for each in self._beside)
        return self._known_keys

    @property
    def pairs(self) -> int:
        """Number of stored pairs."""
        return self.table.count().occupied + sum(map(len, self._beside))

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        beside = sum(int(each.nbytes) for each in self._beside)
        return super().nbytes + beside + (0 if self._payload is None else self._payload.nbytes)

    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Implement `ListStore.insert`."""
        self._drop_marks()
        self._tidy()
        self.attempts: int = 0
        payload, words = self._store_payload(self._payload, rows)
        batch = self._batch(bits, words, payload)
        wanted, table = self._keys_to_grow_to(batch), self.table
        if wanted is not None:
            self._append_to(self._rebuilt(wanted), batch, *then)
            return
        table.make_ready(batch.number)
        if not table.certain(batch.number):
            self._append_watched(batch, *then)
            return
        step = table.appending(batch.keys, batch.values, rows=batch.rows)
        table.bound += batch.number
        self._known_keys = None
        broken = assigner(self, _table=BrokenSlots(table))
        self.backend.in_one_call([step, broken, *self._publishing(table, batch), *then])

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Implement `ListStore.find`."""
        words, offsets = self._gather(self._inner(bits, None)[0])
        return self._decode(words), offsets

    def counts(self, bits: Any) -> Any:
        """Implement `ListStore.counts`."""
        return self.table.counts(self._inner(bits, None)[0])

    def contains(self, bits: Any) -> Any:
        """Implement `AnyStore.contains`."""
        return self.table.contains(self._inner(bits, None)[0])

    def erase(self, bits: Any) -> Any:
        """Implement `AnyStore.erase`."""
        self._method.require("erase", self._spec.kind)
        backend, table, xp = self.backend, self.table, self.backend.xp
        keys, _ = self._inner(words_of(bits), None)
        erased = backend.zeros(len(keys), _BOOL)
        chosen = deduplicated_rows(backend, words_of(keys), last=False)
        unique = keys if chosen is None else keys[chosen]
        gone, beside = backend.zeros(len(unique), _BOOL), self._beside
        regular = xp.flatnonzero(unique < self._marks[1])
        if len(regular) < len(unique):
            hit = [xp.flatnonzero(unique == mark) for mark in self._marks]
            for rows, values in zip(hit, self._beside, strict=True):
                gone[rows] = len(values) > 0
            nothing = self._nothing()
            beside = tuple(nothing[i] if len(hit[i]) else self._beside[i] for i in range(2))  # type: ignore[assignment]
        there = backend.empty(len(regular), _BOOL)
        step = table.withdrawing(unique[regular], there)
        self._known_keys = None
        broken = assigner(self, _table=BrokenSlots(table))
        done = assigner(self, _table=table, _beside=beside)
        backend.in_one_call([step, broken, _set_counts(table, beside), done])
        gone[regular] = there
        if chosen is None:
            return gone
        erased[chosen] = gone
        return erased

    def lists(self) -> tuple[Any, Any, Any]:
        """Implement `ListStore.lists`."""
        keys, offsets, values = super().lists()
        return keys.astype(self._key, copy=False), offsets, values

    def compact(self) -> None:
        """Implement `ListStore.compact`."""
        table = self.table
        if table.count().erased:
            self._replace(self._rebuilt(table.keys))

    def lend(self, *, write: bool) -> Lent:
        """Implement `RecipeStore.lend`."""
        if write and not self.table.pair_a_place:
            raise no_appends(self._spec.method)
        lent, table = super().lend(write=write), self.table
        if not write:
            return lent
        self._known_keys, room = None, SideRoom(table)

        def settle() -> int:
            pairs = zip(self._beside, room.close(), strict=True)
            beside = tuple(self.backend.xp.concatenate(pair) for pair in pairs)
            self.backend.in_one_call([_set_counts(table, beside), assigner(self, _beside=beside)])  # type: ignore[arg-type]
            return lent.settle()

        return lent._replace(settle=settle)

    def empty_in_place(self) -> ListMethodStore:
        """Implement `AnyStore.empty_in_place`."""
        made = super().empty_in_place()
        made._payload, made._beside, made._known_keys = self._no_payload(), self._nothing(), 0
        return made

    def copy(self) -> ListMethodStore:
        """Implement `AnyStore.copy`."""
        made = self._shallow()
        made._table = made._rebuilt(self.table.keys)
        made.attempts = self.attempts
        made._payload = None if self._payload is None else self._payload.copy()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.table
        setup = (self._recipe, self.backend, self._spec, self._key, table.keys, table.generation)
        return _restore, (*setup, self.rebuilds, self.attempts, table.plan.seed, *self.lists())

    @functools.cached_property
    def _marks(self) -> tuple[Any, Any]:
        """The two reserved keys."""
        kind = self.table.plan.key.type
        top = np.iinfo(kind).max
        return kind(top), kind(top - 1)

    def _nothing(self) -> tuple[Any, Any]:
        value = self.table.plan.value
        assert value is not None
        return self.backend.empty(0, value), self.backend.empty(0, value)

    def _decode(self, words: Any) -> Any:
        """Implement `ListStore._decode`; words may be as wide as the table's."""
        assert self._value is not None
        return super()._decode(words.astype(self._value, copy=False))

    def _batch(self, bits: Any, words: Any, payload: ValueRows | None) -> PairBatch:
        """Return pairs, with those of reserved keys separated."""
        keys, values = self._inner(words_of(bits), words_of(words))
        xp, (first, second) = self.backend.xp, self._marks
        rows = xp.flatnonzero(keys < second)
        if len(rows) == len(keys):
            return PairBatch(keys, values, None, self._beside, payload)
        beside = (
            xp.concatenate([self._beside[0], values[keys == first]]),
            xp.concatenate([self._beside[1], values[keys == second]]),
        )
        return PairBatch(keys, values, rows.view(np.uint64), beside, payload)

    def _gather(self, keys: Any) -> tuple[Any, Any]:
        """Return the value words of all keys, and their offsets."""
        table, backend = self.table, self.backend
        offsets = backend.zeros(len(keys) + 1, np.int64)
        offsets[1:] = backend.xp.cumsum(table.counts(keys))
        values = backend.empty(int(offsets[-1]), self._beside[0].dtype)
        table.gather(keys, offsets, values, self._beside)
        return values, offsets

    def _list_words(self) -> tuple[Any, Any, Any]:
        """Implement `ListStore._list_words`: as the table has them."""
        reserved = [
            mark for mark, values in zip(self._marks, self._beside, strict=True) if len(values)
        ]
        keys, xp = self.table.stored_keys(), self.backend.xp
        if reserved:
            keys = xp.concatenate([keys, self.backend.from_host(np.array(reserved, keys.dtype))])
        words, offsets = self._gather(keys)
        return keys, offsets, words

    def _keys_to_grow_to(self, batch: PairBatch) -> int | None:
        """Return the keys or pairs that a new table is needed for; None if this one suffices."""
        table, rows = self.table, batch.number
        if rows <= table.free_keys:
            return None
        table.bound = self._taken()
        if rows <= table.free_keys:
            return None
        held = table.bound if not table.pair_a_place else table.count().occupied
        if not table.pair_a_place:
            keys = batch.keys if batch.rows is None else batch.keys[batch.rows.view(np.int64)]
            new = keys[self._absent(keys)]
            chosen = deduplicated_rows(self.backend, words_of(new), last=False)
            rows = len(new) if chosen is None else len(chosen)
            if rows <= table.free_keys:
                return None
        needed = held + rows
        if table.blank:
            return max(needed, table.keys)
        return table.keys if needed <= table.limit * 3 // 4 else max(2 * needed, table.keys)

    def _taken(self) -> int:
        """Return the keys, or pairs, that count towards the table's limit, and tombstones."""
        table = self.table
        if table.pair_a_place:
            return table.count().taken
        return len(self) + table.count().erased

    def _append_to(self, table: ListRecipe, batch: PairBatch, *then: Step) -> None:
        """Append a batch to a private table, and install the table in the store."""
        table.make_ready(batch.number)
        table = self._complete(table, batch, batch.rows, tried=False)
        self._known_keys = None
        self.backend.in_one_call([*self._publishing(table, batch), *then])

    def _append_watched(self, batch: PairBatch, *then: Step) -> None:
        """Append a batch with possible refusals, hiding the table meanwhile."""
        table, backend = self.table, self.backend
        pending = backend.empty(len(batch.keys), np.uint64)
        table.watch()
        step = table.appending(batch.keys, batch.values, rows=batch.rows, pending=pending)
        done = [*self._publishing(table, batch), *then]
        self._known_keys = None
        try:
            backend.in_one_call([assigner(self, _table=BrokenSlots(table)), step])
            if table.count().pending == 0:
                backend.in_one_call(done)
            else:
                self.attempts = 0
                final = self._complete(table, batch, table.refused(pending), tried=True)
                backend.in_one_call([*self._publishing(final, batch), *then])
        except BaseException:
            if self.broken and table.count().pending == 0:
                backend.in_one_call(done)
            raise

    def _publishing(self, table: ListRecipe, batch: PairBatch) -> list[Step]:
        """Return the steps that install a complete table in the store."""
        held = {"_beside": batch.beside, "_payload": batch.payload, "_known_keys": None}
        return [_set_counts(table, batch.beside), assigner(self, **held), self._replacing(table)]

    def _rebuilt(self, *keys: Any, **how: Any) -> ListRecipe:
        """Return another table with the same content, as `RecipeStore` does."""
        made = super()._rebuilt(*keys, **how)
        made.fill()
        _set_counts(made, self._beside)()
        return made

    def _complete(
        self, table: ListRecipe, batch: PairBatch, rows: Any, *, tried: bool
    ) -> ListRecipe:
        """Append some rows; return the given table or another with all of them."""
        pending = self.backend.empty(len(batch.keys), np.uint64)
        while True:
            if tried:
                if len(rows) == 0:
                    table.bound = table.count().taken
                    return table
                rows = rows.copy()
                self._count_attempt(table, len(rows))
                if not table.remedy(len(rows)):
                    table = self._rebuilt(table.keys, table, again=True)
            table.watch()
            table.appending(batch.keys, batch.values, rows=rows, pending=pending)()
            rows, tried = table.refused(pending), True

    def _tidy(self) -> None:
        """Compact wide values if most of them belong to no key."""
        if self._payload is None or self._payload.used - self.pairs <= max(
            self.pairs, _GARBAGE_ROWS
        ):
            return
        self.attempts = 0
        keys, offsets, words = self._list_words()
        payload = self._payload.kept(words.view(np.int64))
        owners = keys[list_numbers(self.backend, offsets, len(words))]
        numbers = self.backend.xp.arange(len(words), dtype=np.uint64)
        nothing, table = self._nothing(), self.table
        made = self._recipe(table.plan, table.keys, table.generation)
        marks = self._marks
        rows = self.backend.xp.flatnonzero(owners < marks[1]).view(np.uint64)
        beside = tuple(
            numbers[owners == mark] if len(held) else empty
            for mark, held, empty in zip(marks, self._beside, nothing, strict=True)
        )
        batch = PairBatch(owners, numbers, rows, beside, payload)  # type: ignore[arg-type]
        self._append_to(made, batch)


def _set_counts(table: ListRecipe, beside: tuple[Any, Any]) -> Step:
    """Return the step that sets the number of values of the reserved keys."""
    numbers = table.backend.from_host(np.array([len(each) for each in beside], np.uint64))
    return functools.partial(operator.setitem, table.state, slice(4, 6), numbers)


def _restore(
    recipe: type[ListRecipe],
    backend: Backend,
    spec: TableSpec,
    key: np.dtype[Any],
    capacity: int,
    generation: int,
    rebuilds: int,
    attempts: int,
    seed: int,
    bits: Any,
    offsets: Any,
    values: Any,
) -> ListMethodStore:
    """Return the unpickled store."""
    made: ListMethodStore = recipe.open(backend, spec, key, None, 0)
    made._table = recipe(made.table.plan._replace(seed=seed), capacity, generation)
    if len(values):
        made.build(bits, offsets, values)
    made.rebuilds, made.attempts = rebuilds, attempts
    return made


# Values of a block: 128 MiB of 8 bytes.
_MOST_VALUES = 2**24
_HEAD_NBYTES = 16


class SideRoom:
    """Side memory for values of the two reserved keys, as large as the table's free slots.

    Kernels find it by the table's state: `SideRoom` of ``kernels/device/view.cuh``.

    Parameters
    ----------
    table : ListRecipe
        Whose state gets the address.
    """

    def __init__(self, table: ListRecipe) -> None:
        value = table.plan.value
        assert value is not None
        backend, self._table = table.backend, table
        self._values = min(max(table.limit - table.count().taken, 1), _MOST_VALUES)
        self._head = _HEAD_NBYTES // value.itemsize
        self._memory = backend.empty(self._head + self._values, value)
        head = np.array([self._values, 0], np.uint64)
        self._memory[: self._head] = backend.from_host(head.view(value))
        address = np.array([backend.pointer(self._memory)], np.uint64)
        table.state[SIDE_VALUE : SIDE_VALUE + 1] = backend.from_host(address)

    def close(self) -> tuple[Any, Any]:
        """Return the values of both reserved keys, and detach the side memory."""
        head = self._table.backend.to_host(self._memory[: self._head])
        taken = int(head.view(np.uint64)[1])
        front, back = taken & 0xFFFFFFFF, taken >> 32
        self._table.state[SIDE_VALUE : SIDE_VALUE + 1].fill(np.uint64(2**64 - 1))
        values = self._memory[self._head :]
        return values[:front], values[self._values - back :]
