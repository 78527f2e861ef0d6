"""Tables with eviction: an insert moves stored keys, and a failed one loses some."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self, cast

import numpy as np

from dgpuhash.backend import is_out_of_memory
from dgpuhash.errors import CapacityError, UnsupportedError
from dgpuhash.tables.commit import MakeSteps, assigner
from dgpuhash.tables.open_addressing.cardinality import KeySample
from dgpuhash.tables.store import Lent
from dgpuhash.tables.stores.method_store import InsertBatch, MethodStore
from dgpuhash.tables.stores.plan import OnExisting
from dgpuhash.tables.stores.recipe import Recipe

_BOOL = np.dtype(bool)
# Smaller batches are not worth a look whether they repeat keys.
_LEAST_SAMPLED = 2**18


class MovingRecipe(Recipe):
    """Recipe of a table with eviction: ``place`` stores absent, distinct keys.

    Where it refuses a row, the table has lost some key. Its verb ``insert`` changes the values of
    stored keys; ``doubles`` counts the places of keys that another place has, too.
    """

    @classmethod
    def store(cls) -> type[Any]:
        """Implement `Recipe.store`."""
        return MovingStore

    @abstractmethod
    def twin(self) -> Self:
        """Return a copy of the table in other memory, with equal slots."""

    def place(self, keys: Any, values: Any, rows: Any = None) -> int:
        """Store absent keys; return the number of refused rows.

        Equal keys are refused, or become doubles. Waits for the device.
        """
        number = len(keys) if rows is None else len(rows)
        self.change()
        self.watch()
        self.backend.run(
            self.kernel("place"), number, table=self.storage, source=self.storage, keys=keys,
            values=values, rows=rows,
        )  # fmt: skip
        return self._placed()

    def doubles(self) -> int:
        """Return the number of slots with a key that another slot has too."""
        total = self.backend.zeros(1, np.uint64)
        self.backend.run(self.kernel("doubles"), self.places, table=self.storage, total=total)
        return int(total[0])

    def _move_places(self, target: Recipe, pending: Any) -> None:
        self.backend.run(
            target.kernel("place"), self.places, table=target.storage, source=self.storage,
            keys=None,
        )  # fmt: skip

    def _placed(self) -> int:
        self.change()
        counted = self.count()
        self.bound: int = counted.taken
        return counted.pending


class MovingStore(MethodStore):
    """Store (see `Store`) of tables with eviction.

    A batch is stored in a copy of the table, or in a larger table, which then replaces the current
    one; a copy costs about as much as the insert of one key for each 150 that are stored. Of equal
    keys in a batch the first is stored: the others are dropped before, or where none seems to
    repeat, all are stored and it is counted afterwards.

    Parameters are those of `RecipeStore`.
    """

    @property
    def _moving(self) -> MovingRecipe:
        return cast(MovingRecipe, self.table)

    def like(self, keys: int) -> MovingStore:
        """Return an empty store for a number of keys, in other memory, with the current seed."""
        made, table = self._shallow(), self._moving
        made._table = type(table)(table.plan, keys, table.generation)
        return made

    def settle(self, keys: Any, values: Any) -> None:
        """Store distinct, absent keys."""
        keys, values = self._inner(keys, values)
        if len(keys):
            table, built = self._with(keys, values, None)
            assigner(self, _table=table, rebuilds=self.rebuilds + built)()

    def copy(self) -> MovingStore:
        """Implement `AnyStore.copy`."""
        made = self._shallow()
        made._table = self._moving.twin()
        return made

    def lend(self, *, write: bool) -> Lent:
        """Implement `RecipeStore.lend`."""
        if write:
            raise UnsupportedError(
                f"tables of method {self._spec.method!r} do not support inserts by user kernels, "
                f"which could insert a key twice; use method 'cops' or 'slab', or insert them"
            )
        return super().lend(write=write)

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
        made, refused = self._with_all(keys, values)
        if made is not None:
            fresh = self.backend.full(len(keys), True, _BOOL)
            after = () if then is None else then(fresh)
            self.backend.in_one_call([assigner(self, _table=made, attempts=0), *after])
            return fresh
        rows = self._new_rows(keys)
        fresh = self.backend.zeros(len(keys), _BOOL)
        fresh[rows] = True
        change = InsertBatch(keys, values, fresh, action, kind)
        steps = []
        table, replaces = self._moving, False
        if len(rows):
            chosen = None if len(rows) == len(keys) else rows.view(np.uint64)
            # Where no key repeats, the functions have refused some, and would do so once more.
            table, replaces = self._with(keys, values, chosen, refused if chosen is None else 0)
        if action != OnExisting.KEEP and len(rows) < len(keys):
            steps.append(change.rest(table))
        if len(rows):
            rebuilds = self.rebuilds + replaces
            steps.append(assigner(self, _table=table, rebuilds=rebuilds))
        if then is not None:
            steps += then(fresh)
        if steps:
            self.backend.in_one_call(steps)
        return fresh

    def _with_all(self, keys: Any, values: Any) -> tuple[MovingRecipe | None, int]:
        """Return the first table for a large batch; None if keys seem to repeat or are refused.

        The second item is the number of refused keys.
        """
        backend, table = self.backend, self._moving
        if len(keys) < _LEAST_SAMPLED or not table.blank or not KeySample.of(backend, keys).unique:
            return None, 0
        try:
            made = self._blank(len(keys))
            refused = made.place(keys, values)
            # The two reserved keys are never doubles, but counted once.
            lacks = refused or made.count().occupied < len(keys) or made.doubles()
            return None if lacks else made, refused
        except CapacityError:
            return None, 0
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None, 0

    def _blank(self, keys: int) -> MovingRecipe:
        """Return an empty table for at least a number of keys, if the current one is empty."""
        table = self._moving
        if keys > table.keys:
            return type(table)(table.plan, keys, table.generation)
        return table.anew()

    def _with(self, keys: Any, values: Any, rows: Any, refused: int = 0) -> tuple[Any, bool]:
        """Return a table with all rows, or `rows`, added, and whether it is new.

        The functions of the current table, which is blank, have `refused` so many already.
        """
        self.attempts = 0
        table, number = self._moving, len(keys) if rows is None else len(rows)
        needed, built = table.count().occupied + number, False
        if table.blank:
            made = self._blank(needed)
        elif needed > table.limit:
            made, built = self._anew(2 * needed), True
        else:
            made = table.twin()
        while refused or (refused := made.place(keys, values, rows)):
            self._count_attempt(made, refused)
            made, refused = self._anew(made.keys, again=True, generation=made.generation), 0
            built = not table.blank
        return made, built

    def _anew(self, keys: int, **how: Any) -> MovingRecipe:
        return cast(MovingRecipe, self._rebuilt(keys, **how))
