"""Base of stores with recipes: replace the current table by a larger or cleaner one."""

from __future__ import annotations

import logging
import math
from typing import Any, Generic, Self, TypeVar

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.errors import CapacityError, OutOfMemoryError
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.commit import BrokenSlots, assigner
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.store import Lent
from dgpuhash.tables.stores.method import Method, methods
from dgpuhash.tables.stores.plan import Plan
from dgpuhash.tables.stores.recipe import Recipe

_log = logging.getLogger("dgpuhash.tables")
# Marks are dropped above this part (one in 8) of the slots.
_ERASED_PART = 8
# Attempts to place all keys: after the first ones, tables grow by a tenth each time.
_SAME_SIZE, _ATTEMPTS, _LARGER = 8, 16, 1.1
# Keys drawn to measure searches for keys that are not stored.
_DRAWN = 2**16

Kind = TypeVar("Kind", bound=Recipe)


class RecipeStore(Generic[Kind]):
    """Store with one recipe table at a time, replaced when a complete successor is ready.

    Parameters
    ----------
    recipe : type of Recipe
    backend : Backend
    spec : TableSpec
        With all settings of its method.
    key, value : dtype
        Of the words that tables bring: uint32 or uint64; `value` is None for sets.
    capacity : int
        Keys that fit before the store grows for the first time.
    """

    def __init__(
        self,
        recipe: type[Kind],
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> None:
        self.backend: Backend = backend
        self._spec = spec
        self._recipe = recipe
        self._key, self._value = key, value
        plan = Plan(backend, *recipe.words(key, value), dict(spec.settings), spec.seed)
        # Replaced by another table once that holds all keys, or by `BrokenSlots` during a change.
        self._table: Any = recipe(plan, capacity)
        self.rebuilds = 0
        """How often another table with all keys replaced the current one."""
        self.attempts: int = 0
        """Tables that the last rebuild, or insert, took beyond the first."""

    @property
    def capacity(self) -> int:
        """Number of keys that the table is sized for."""
        return self.table.keys

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        nbytes: int = self._table.nbytes
        return nbytes

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""
        return self.table.seed

    @property
    def reseeds(self) -> int:
        """Number of seed changes since the table was last empty."""
        return self.table.generation

    @property
    def broken(self) -> bool:
        """Whether a change has failed half-way."""
        return isinstance(self._table, BrokenSlots)

    @property
    def table(self) -> Kind:
        """The current table."""
        table: Kind = self._table
        return table

    def commit(self, *steps: Step) -> None:
        """Implement `Store.commit`."""
        first, *others = steps
        table = self._table
        broken = assigner(self, _table=BrokenSlots(table))
        self.backend.in_one_call([first, broken, *others, assigner(self, _table=table)])

    def reserve(self, keys: int) -> None:
        """Implement `AnyStore.reserve`."""
        if keys > self.capacity:
            self._replace(self._rebuilt(keys))

    def rehash(self, seed: int) -> None:
        """Implement `AnyStore.rehash`."""
        self._replace(self._rebuilt(self.table.keys, seed=seed))

    def empty_in_place(self) -> Self:
        """Implement `AnyStore.empty_in_place`."""
        made = self._shallow()
        made._table, made.rebuilds, made.attempts = self._table.emptied(), 0, 0
        return made

    def _shallow(self) -> Self:
        """Return a shallow copy of the store, without `__reduce__`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def fill(self) -> None:
        """Implement `AnyStore.fill`."""
        self.table.fill()

    def lend(self, *, write: bool) -> Lent:
        """Return the table for user kernels; with `write`, call its `settle` after them."""
        table, kernel = self.table, self.table.kernel("items")
        table.fill()
        if write:
            table.change()
            table.watch()

        def settle() -> int:
            table.change()
            table.bound = table.count().taken
            return table.count().pending

        return Lent(
            kernel.files, table.table, kernel.args["table"], table.storage, settle, table.places
        )

    def figures(self) -> Figures:
        """Implement `AnyStore.figures`; searches all keys and as many absent ones."""
        table = self.table
        table.fill()
        counted, keys = table.count(), table.items()[0]
        drawn = self._drawn()
        unit = table.unit
        details = {
            f"{unit}_found": table.probes(keys) / len(keys) if len(keys) else math.nan,
            f"{unit}_absent": table.probes(drawn) / len(drawn) if len(drawn) else math.nan,
            "rebuilds": self.rebuilds,
            "attempts": self.attempts,
            **table.figures(),
        }
        return Figures(
            slots=table.slots,
            occupied=counted.occupied,
            tombstones=counted.erased,
            lines=math.nan,
            absent_lines=math.nan,
            seed=table.seed,
            reseeds=table.generation,
            details=details,
        )

    def probe_counts(self, keys: Any) -> Any:
        """Return the units (`unit`) read by the search for each key (uint32).

        The two reserved keys stand aside of the table: searches for them read 0.
        """
        counts = self.backend.zeros(len(keys), np.uint32)
        self.table.probes(self._inner(keys, None)[0], counts)
        return counts

    def ready(self) -> None:
        """Implement `AnyStore.ready`."""

    @property
    def _method(self) -> Method:
        return methods()[self._spec.method]

    def _inner(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Return keys and values in the table's word dtypes."""
        plan = self.table.plan
        if plan.key != self._key:
            keys = words_of(keys).astype(plan.key)
        if values is not None and plan.value != self._value:
            values = words_of(values).astype(plan.value)
        return keys, values

    def _absent(self, keys: Any) -> Any:
        """Return the rows (int64) with absent keys."""
        xp, table = self.backend.xp, self.table
        return xp.arange(len(keys)) if table.blank else xp.flatnonzero(~table.contains(keys))

    def _drawn(self) -> Any:
        """Return random absent keys."""
        top = np.iinfo(self.table.plan.key).max
        random = np.random.default_rng(self.table.seed)
        drawn = self.backend.from_host(random.integers(0, top, _DRAWN, self.table.plan.key))
        return drawn[self._absent(drawn)]

    def _replacing(self, table: Kind) -> Step:
        """Return the step that installs a table in the store."""
        current = self._table.kept if self.broken else self._table
        rebuilt = not (current.blank or table.state is current.state)
        return assigner(self, _table=table, rebuilds=self.rebuilds + rebuilt)

    def _replace(self, table: Kind) -> None:
        """Replace the table by another one with the same keys."""
        self._replacing(table)()

    def _rebuilt(
        self,
        keys: int,
        source: Kind | None = None,
        *,
        seed: int | None = None,
        again: bool = False,
        generation: int | None = None,
    ) -> Kind:
        """Return another table for `keys` keys with the content of `source`.

        With `again`, the seed of a `generation`, by default the source's, has failed.
        """
        source = self.table if source is None else source
        plan = source.plan if seed is None else source.plan._replace(seed=seed)
        if generation is None:
            generation = source.generation if seed is None else 0
        if not again:
            self.attempts = 0
        while True:
            if again:
                generation += 1
                keys = self._next_size(keys)
                _log.info("%s: attempt %d, for %d keys", self._method.name, self.attempts, keys)
            made = self._recipe(plan, keys, generation)
            if source.blank or not self._move(source, made):
                return made
            again = True

    def _move(self, source: Kind, made: Kind) -> int:
        """Store a table's content in another one; return how many entries found no slot."""
        made.make_ready(source.count().occupied)
        refused = source.move_to(made)
        while refused:
            self._count_attempt(made, refused)
            if not made.remedy(refused):
                break
            refused = source.move_to(made, again=True)
        return refused

    def _next_size(self, keys: int) -> int:
        """Return the number of keys for the next attempt."""
        return math.ceil(keys * _LARGER) if self.attempts > _SAME_SIZE else keys

    def _count_attempt(self, table: Recipe, refused: int) -> None:
        """Count another attempt to place all keys.

        Raises
        ------
        CapacityError
            When there were too many.
        """
        self.attempts += 1
        if self.attempts > _ATTEMPTS:
            raise CapacityError(
                f"{refused:,} keys found no place in {_ATTEMPTS} tables of method "
                f"{self._spec.method!r}, the last one for {table.keys:,} keys; give a larger "
                f"capacity, a roomier setting, or use method 'auto'"
            )

    def _drop_marks(self) -> None:
        """Drop tombstones if they are many and memory allows."""
        table = self.table
        most = table.slots // _ERASED_PART
        if table.erased_bound <= most:
            return
        table.erased_bound = table.count().erased
        if table.erased_bound <= most or table.sweep():
            return
        try:
            self._replace(self._rebuilt(table.keys))
        except OutOfMemoryError:
            table.erased_bound = 0
