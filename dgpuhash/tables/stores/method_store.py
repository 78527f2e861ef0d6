"""Store of a method's sets and maps: growth, rebuilds and atomic changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.commit import BrokenSlots, MakeSteps, assigner
from dgpuhash.tables.stores.mixed import MixedBatches
from dgpuhash.tables.stores.plan import OnExisting
from dgpuhash.tables.stores.recipe import Recipe

_BOOL = np.dtype(bool)


@dataclass(frozen=True, slots=True)
class InsertBatch:
    """A batch to insert, and its effect on the values of stored keys."""

    keys: Any
    values: Any
    fresh: Any
    """Mask of the rows that created keys."""
    action: OnExisting
    kind: int

    def rest(self, table: Recipe) -> Step:
        """Return the step that changes values of keys stored by other rows or batches."""
        rows = table.backend.xp.flatnonzero(~self.fresh).view(np.uint64)
        return table.inserting(self.keys, self.values, None, self.action, self.kind, rows=rows)


class MethodStore(MixedBatches):
    """Store (see `Store`) of tables of a method's `Recipe`.

    A batch that surely fits is one launch. Otherwise the store makes room first, by a larger table
    that replaces the current one at the end. Where a launch refuses rows all the same, the recipe's
    remedy, or a table with another seed, takes them; an exception meanwhile undoes the batch.

    Parameters are those of `RecipeStore`.
    """

    def __len__(self) -> int:
        occupied: int = self._table.count().occupied
        return occupied

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words from `find`; None for sets."""
        return self._value

    def insert(self, keys: Any, values: Any, then: MakeSteps | None = None) -> Any:
        """Implement `Store.insert`."""
        return self._insert(keys, values, OnExisting.KEEP, then=then)

    def add(self, keys: Any, values: Any) -> None:
        """Implement `Store.add`."""
        self._insert(keys, values, OnExisting.KEEP, told=False)

    def upsert(self, keys: Any, values: Any) -> None:
        """Implement `Store.upsert`."""
        self._method.require("upsert", self._spec.kind)
        self._insert(keys, values, OnExisting.OVERWRITE, told=False)

    def combine(self, keys: Any, values: Any, change: Any) -> Any:
        """Implement `Store.combine`."""
        self._method.require("combine", self._spec.kind)
        action, kind = change
        inner = self.table.plan.value
        assert inner is not None and self._value is not None
        # The upper half of the kind has the bits that a word has more than the value.
        kind += 8 * (inner.itemsize - self._value.itemsize) << 32
        if isinstance(values, int):
            values = self.backend.full(len(keys), values, self._value)
        return self._insert(keys, values, OnExisting(action), kind)

    def replacing(self, keys: Any, values: Any) -> Step:
        """Implement `Store.replacing`."""
        return self.table.inserting(*self._inner(keys, values), None, OnExisting.OVERWRITE)

    def has_room(self, new: int) -> bool:
        """Return whether `new` absent keys fit without a larger table."""
        if self.table.free_keys < new:
            self.table.bound = self.table.count().taken
        return self.table.free_keys >= new

    def make_room(self, new: int) -> None:
        """Implement `Store.make_room`; `new` keys may still be refused."""
        if not self.has_room(new):
            self._replace(self._rebuilt(self._size_with(new, self.table.count().occupied)))

    @property
    def reserves(self) -> bool:
        """Whether `make_room` guarantees slots for its keys."""
        return False

    def find(
        self, keys: Any, default: int = 0, dtype: np.dtype[Any] | None = None
    ) -> tuple[Any, Any]:
        """Implement `Store.find`."""
        backend, table = self.backend, self.table
        keys, _ = self._inner(keys, None)
        found, values = backend.empty(len(keys), _BOOL), None
        if self._value is not None:
            inner = table.plan.value
            assert inner is not None
            values = backend.empty(len(keys), inner)
        table.find_to(keys, values, found, default)
        if values is not None:
            values = values.astype(self._value, copy=False)
            values = values if dtype is None else values.view(dtype)
        return values, found

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Implement `Store.find_to`."""
        if self._value is None or self._value == self.table.plan.value:
            self.table.find_to(self._inner(keys, None)[0], values, found, default)
        else:
            words, there = self.find(keys, default)
            values.view(self._value)[...] = words
            found.view(_BOOL)[...] = there

    def contains(self, keys: Any) -> Any:
        """Implement `AnyStore.contains`."""
        return self.table.contains(self._inner(keys, None)[0])

    def absent(self, keys: Any) -> Any:
        """Implement `Store.absent`."""
        return self._absent(self._inner(keys, None)[0])

    def erase(self, keys: Any) -> Any:
        """Implement `AnyStore.erase`."""
        self._method.require("erase", self._spec.kind)
        return self.table.erase(self._inner(keys, None)[0])

    def erasing(self, keys: Any) -> Step:
        """Implement `Store.erasing`."""
        self._method.require("erase", self._spec.kind)
        return self.table.erasing(self._inner(keys, None)[0])

    def items(self) -> tuple[Any, Any]:
        """Implement `AnyStore.items`."""
        keys, values = self.table.items()
        if self._value is not None:
            values = values.astype(self._value, copy=False)
        return keys.astype(self._key, copy=False), values

    def copy(self) -> MethodStore:
        """Implement `AnyStore.copy`."""
        made = self._shallow()
        made._table = made._rebuilt(self.table.keys)
        made.attempts = self.attempts
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self._table.keys, self._table.generation, self.rebuilds, self.attempts)
        setup = (self._recipe, self.backend, self._spec, self._key, self._value)
        return _restore, (*setup, *state, self._table.plan.seed, *self.items())

    def ranges(self, rows: int, owners: int) -> None:
        """Implement `Store.ranges`: rows have no place before they are inserted."""

    def _insert(
        self,
        keys: Any,
        values: Any,
        action: OnExisting,
        kind: int = 0,
        then: MakeSteps | None = None,
        *,
        told: bool = True,
    ) -> Any:
        """Insert a batch; with `told`, return a mask of the rows that created keys."""
        self._drop_marks()
        keys, values = self._inner(keys, values)
        wanted, table = self._keys_to_grow_to(keys), self.table
        if wanted is None:
            table.make_ready(len(keys))
        # Elsewhere the values of keys are changed once all keys are stored.
        at_once = action in (OnExisting.KEEP, OnExisting.OVERWRITE) or table.whole_pairs
        if wanted is None and at_once and table.certain(len(keys)):
            fresh = self.backend.empty(len(keys), _BOOL) if told else None
            table.bound += len(keys)
            if then is None:
                table.insert(keys, values, fresh, action, kind)
            else:
                step = table.inserting(keys, values, fresh, action, kind)
                self.backend.in_one_call([step, *then(fresh)])
            return fresh
        fresh = self.backend.zeros(len(keys), _BOOL)
        change = InsertBatch(keys, values, fresh, action, kind)
        if wanted is None:
            self._insert_watched(change, then)
        else:
            self._insert_aside(change, wanted, then)
        return fresh

    def _new_rows(self, keys: Any) -> Any:
        """Return the first row (int64) of each absent key."""
        absent = self._absent(keys)
        if len(absent) == 0:
            return absent
        new = keys if len(absent) == len(keys) else keys[absent]
        chosen = deduplicated_rows(self.backend, words_of(new), last=False)
        return absent if chosen is None else absent[chosen]

    def _keys_to_grow_to(self, keys: Any) -> int | None:
        """Return the keys that a new table is needed for; None if the current one suffices."""
        if self.has_room(len(keys)):
            return None
        new = keys[self._absent(keys)]
        if self.has_room(len(new)):
            return None
        chosen = deduplicated_rows(self.backend, words_of(new), last=False)
        new_keys = len(new) if chosen is None else len(chosen)
        if self.has_room(new_keys):
            return None
        return self._size_with(new_keys, self.table.count().occupied)

    def _size_with(self, new_keys: int, occupied: int) -> int:
        """Return the size, in keys, of a table with room for `new_keys` more."""
        table, needed = self.table, occupied + new_keys
        if occupied == 0:
            return max(needed, table.keys)
        # Without the marks there may be room.
        return table.keys if needed <= table.limit * 3 // 4 else max(2 * needed, table.keys)

    def _insert_aside(self, change: InsertBatch, keys: int, then: MakeSteps | None) -> None:
        """Insert a batch into a new table for `keys` keys, which replaces the current one."""
        self.attempts: int = 0
        table = self._rebuilt(keys)
        table.make_ready(len(change.keys))
        table = self._complete(table, change, None)
        if change.action != OnExisting.KEEP:
            change.rest(table)()
        self._publish(table, change, then)

    def _insert_watched(self, change: InsertBatch, then: MakeSteps | None) -> None:
        """Insert a batch with possible refusals.

        Until all is done, the table is hidden; an exception undoes the batch.
        """
        table, backend = self.table, self.backend
        pending = backend.empty(len(change.keys), np.uint64)
        table.watch()
        step = table.inserting(change.keys, change.values, change.fresh, pending=pending)
        try:
            backend.in_one_call([assigner(self, _table=BrokenSlots(table)), step])
            rows, final = table.refused(pending), table
            if len(rows):
                self.attempts = 0
                final = self._complete(table, change, rows)
            last = () if change.action == OnExisting.KEEP else (change.rest(final),)
            self._publish(final, change, then, *last)
        except BaseException:
            if self.broken:
                table.erase(change.keys[change.fresh])
                self._table = table
            raise

    def _publish(
        self, table: Recipe, change: InsertBatch, then: MakeSteps | None, *before: Step
    ) -> None:
        """Install a complete table in the store, after the steps `before`."""
        table.bound = table.count().taken
        after = () if then is None else then(change.fresh)
        self.backend.in_one_call([*before, self._replacing(table), *after])

    def _complete(self, table: Recipe, change: InsertBatch, rows: Any) -> Recipe:
        """Insert all keys, or those of refused `rows`; return the table that has them.

        It is the given one, or another with all that it had.
        """
        pending = self.backend.empty(len(change.keys), np.uint64)
        while True:
            if rows is not None:
                if len(rows) == 0:
                    return table
                rows = rows.copy()
                self._count_attempt(table, len(rows))
                if not table.remedy(len(rows)):
                    table = self._rebuilt(table.keys, table, again=True)
            table.watch()
            table.insert(change.keys, change.values, change.fresh, rows=rows, pending=pending)
            rows = table.refused(pending)


def _restore(
    recipe: type[Recipe],
    backend: Backend,
    spec: TableSpec,
    key: np.dtype[Any],
    value: np.dtype[Any] | None,
    capacity: int,
    generation: int,
    rebuilds: int,
    attempts: int,
    seed: int,
    keys: Any,
    values: Any,
) -> MethodStore:
    """Return the unpickled store."""
    made: MethodStore = recipe.open(backend, spec, key, value, 0)
    made._table = recipe(made.table.plan._replace(seed=seed), capacity, generation)
    made.add(keys, values)
    made.rebuilds, made.attempts = rebuilds, attempts
    return made
