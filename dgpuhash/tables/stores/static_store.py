"""Store of tables built at once: an insert rebuilds a table of all keys."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self, cast

import numpy as np

from dgpuhash.backend.launches import Step
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.commit import MakeSteps
from dgpuhash.tables.store import Lent
from dgpuhash.tables.stores.list_recipe import ListRecipe
from dgpuhash.tables.stores.list_store import ListMethodStore, PairBatch
from dgpuhash.tables.stores.method_store import MethodStore
from dgpuhash.tables.stores.plan import OnExisting
from dgpuhash.tables.stores.rebuilds import RecipeStore
from dgpuhash.tables.stores.recipe import Recipe
from dgpuhash.tables.stores.whole.contents import SIDE_PRESENT, SIDE_VALUE

_BOOL = np.dtype(bool)


class _Static(Recipe):
    """Mixin of recipes of tables built at once."""

    @abstractmethod
    def build(self, keys: Any, values: Any) -> int:
        """Store pairs in this empty table; return the number of rows without a slot.

        Counts them, and what is stored, in the table's state; leaves rows of reserved keys out.
        """

    def emptied(self) -> Self:
        """Implement `Recipe.emptied` in other memory, because the hash functions may differ."""
        return type(self)(self.plan, self.keys)

    def built(self, keys: Any, values: Any) -> int:
        """Fill and `build` this table."""
        self.change()
        self.watch()
        refused = self.build(keys, values) if len(keys) else 0
        self.change()
        return refused


class StaticRecipe(_Static):
    """Recipe of a table with one value a key, built at once from distinct keys."""

    @classmethod
    def store(cls) -> type[Any]:
        """Implement `Recipe.store`."""
        return StaticStore

    def built(self, keys: Any, values: Any) -> int:
        """Implement `_Static.built`; reserved keys go to their side slots."""
        refused = super().built(keys, values)
        if refused == 0:
            self._put_aside(keys, values)
            self.change()
            self.bound: int = self.count().taken
        return refused

    def _put_aside(self, keys: Any, values: Any) -> None:
        """Store the reserved keys among distinct keys in their side slots."""
        backend, top = self.backend, np.iinfo(self.plan.key).max
        reserved = keys >= self.plan.key.type(top - 1)
        if not reserved.any():
            return
        rows = backend.xp.flatnonzero(reserved)
        state = backend.to_host(self.state).copy()
        sides = [top - key for key in backend.to_host(keys[rows]).tolist()]
        state[0] += np.uint64(len(sides))
        state[[SIDE_PRESENT + side for side in sides]] = 1
        if values is not None:
            state[[SIDE_VALUE + side for side in sides]] = backend.to_host(values[rows])
        self.state[...] = backend.from_host(state)

    def move_to(self, target: Recipe, pending: Any = None, *, again: bool = False) -> int:
        """Build `target` from the stored keys; return how many found no slot."""
        if self.blank:
            return 0
        target.forget()
        return cast(StaticRecipe, target).built(*self.items())


class StaticListRecipe(_Static, ListRecipe):
    """Recipe of a table with several values a key, built at once from all pairs."""

    @classmethod
    def store(cls) -> type[Any]:
        """Implement `Recipe.store`."""
        return StaticListStore

    def stored_pairs(self) -> tuple[Any, Any]:
        """Return the keys and values of all pairs, without those of reserved keys."""
        backend, keys = self.backend, self.stored_keys()
        counts = self.counts(keys)
        offsets = backend.zeros(len(keys) + 1, np.int64)
        offsets[1:] = backend.xp.cumsum(counts)
        assert self.plan.value is not None
        values = backend.empty(int(offsets[-1]), self.plan.value)
        none = backend.empty(0, self.plan.value)
        self.gather(keys, offsets, values, (none, none))
        owners = backend.zeros(len(values) + 1, np.int64)
        if len(keys) > 1:
            owners[offsets[1:-1]] = 1
        return keys[backend.xp.cumsum(owners[:-1])], values

    def move_to(self, target: Any, pending: Any = None, *, again: bool = False) -> int:
        """Implement `ListRecipe.move_to`."""
        target.forget()
        target.fill()
        target.state[SIDE_PRESENT:SIDE_VALUE] = self.state[SIDE_PRESENT:SIDE_VALUE]
        refused = 0 if self.blank else target.built(*self.stored_pairs())
        target.bound = target.count().taken
        return int(refused)


class _StaticStore(RecipeStore[Any]):
    """Mixin of stores of tables built at once."""

    def lend(self, *, write: bool) -> Lent:
        """Implement `RecipeStore.lend`."""
        if write:
            raise UnsupportedError(
                f"tables of method {self._spec.method!r} are built at once and do not support "
                f"inserts by user kernels; use method 'cops' or 'slab', or insert them"
            )
        return super().lend(write=write)

    def _build(self, keys: Any, values: Any, number: int) -> Any:
        """Return a table of all rows with `number` keys, leaving the current one unchanged."""
        self.attempts = 0
        table = self.table
        size, generation = max(number, table.keys), table.generation
        while True:
            if table.blank and (size, generation) == (table.keys, table.generation):
                made = table.anew()
            else:
                made = self._recipe(table.plan, size, generation)
            refused = made.built(keys, values)
            if refused == 0:
                return made
            self._count_attempt(made, refused)
            generation, size = generation + 1, self._next_size(size)


class StaticStore(_StaticStore, MethodStore):
    """Store (see `Store`) of tables built at once.

    An insert builds a table of what was stored and the batch, which then replaces the current one,
    so that a batch is whole or absent. No batch is ever added to a table.

    Parameters are those of `RecipeStore`.
    """

    def replacing(self, keys: Any, values: Any) -> Step:
        """Implement `Store.replacing`."""
        made = self._merge(*self._inner(keys, values), OnExisting.OVERWRITE)
        return self._replacing(made)

    def commit(self, *steps: Step) -> None:
        """Implement `Store.commit`: no step works on memory that is read."""
        self.backend.in_one_call(steps)

    def make_room(self, new: int) -> None:
        """Implement `Store.make_room`: any build makes it."""

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
        """Insert a batch; return a mask of the rows that created keys."""
        keys, values = self._inner(keys, values)
        table = self.table
        fresh = self.backend.zeros(len(keys), _BOOL)
        steps = []
        created = self._new_rows(keys)
        if action != OnExisting.KEEP or len(created):
            distinct = table.blank and len(created) == len(keys)
            made = self._merge(keys, values, action, distinct=distinct)
            fresh[created] = True
            if made is not table:
                steps.append(self._replacing(made))
        if then is not None:
            steps += then(fresh)
        if steps:
            self.backend.in_one_call(steps)
        return fresh

    def _merge(self, keys: Any, values: Any, action: OnExisting, *, distinct: bool = False) -> Any:
        """Return a table of the stored keys and a batch; `distinct` if all keys differ."""
        xp, table = self.backend.xp, self.table
        if len(keys) == 0:
            return table
        first = (words_of(keys), None if values is None else words_of(values))
        if not table.blank:
            stored = table.items()
            both = (first, stored) if action == OnExisting.OVERWRITE else (stored, first)
            # Of equal keys the first row counts.
            first = tuple(  # type: ignore[assignment]
                None if column[0] is None else xp.concatenate(column)
                for column in zip(*both, strict=True)
            )
        chosen = None if distinct else deduplicated_rows(self.backend, first[0], last=False)
        all_keys, all_values = first
        if chosen is not None:
            all_keys = all_keys[chosen]
            all_values = None if all_values is None else all_values[chosen]
        return self._build(all_keys, all_values, len(all_keys))


class StaticListStore(_StaticStore, ListMethodStore):
    """Store (see `ListStore`) of tables built at once, as `StaticStore`."""

    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Implement `ListStore.insert`."""
        xp, table = self.backend.xp, self.table
        payload, words = self._store_payload(self._payload, rows)
        batch = self._batch(bits, words, payload)
        keys, values = batch.keys, batch.values
        if batch.rows is not None:
            keys, values = (each[batch.rows.view(np.int64)] for each in (keys, values))
        if not table.blank:
            held, words = table.stored_pairs()
            keys, values = xp.concatenate([held, keys]), xp.concatenate([words, values])
        self._publish_build(keys, values, batch, *then)

    def _publish_build(self, keys: Any, values: Any, batch: PairBatch, *then: Step) -> None:
        number = len(keys)
        if not self.table.pair_a_place:
            chosen = deduplicated_rows(self.backend, words_of(keys), last=False)
            number = number if chosen is None else len(chosen)
        made = self._build(keys, values, number)
        made.bound = made.count().taken
        self._known_keys = None
        self.backend.in_one_call([*self._publishing(made, batch), *then])
