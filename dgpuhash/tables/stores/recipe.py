"""Recipe: one fixed-size table of a method, as device arrays and kernels."""

from __future__ import annotations

import copy
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash.backend import Backend, Kernel, verb_kernel
from dgpuhash.backend.kernel import name_of_word
from dgpuhash.backend.launches import Step
from dgpuhash.seeds import seed_of_generation
from dgpuhash.spec import TableSpec
from dgpuhash.tables.cached import cached
from dgpuhash.tables.stores.plan import Counters, OnExisting, Plan
from dgpuhash.tables.stores.whole.contents import (
    SIDE_PRESENT,
    SIDE_VALUE,
    STATE_WORDS,
    RecipeContents,
)

_BOOL = np.dtype(bool)
# The fewest keys that a table is made for.
_LEAST_KEYS = 32
# Attributes that hold addresses of a table's arrays.
_ADDRESSED = ("storage", "_insert_rows", "_find_rows", "_erase_rows")


class Recipe(RecipeContents):
    """One fixed-size table of a method; subclasses define its arrays and remedies when full.

    Parameters
    ----------
    plan : Plan
    keys : int
        Keys that the table is made for: N of the papers.
    generation : int
        Number of seed changes; the seed follows from it.
    """

    memory_keys: int = sys.maxsize
    """Keys for which there is memory; see `make_ready`."""
    unit: ClassVar[str] = "slots"
    """What a search reads one after the other, as the table's `probes` counts it."""

    def __init__(self, plan: Plan, keys: int, generation: int = 0) -> None:
        self.plan: Plan = plan
        self.backend: Backend = plan.backend
        self.generation: int = generation
        self.keys: int = max(keys, _LEAST_KEYS)
        self.seed: int = seed_of_generation(plan.seed, generation)
        self.state: Any = self.backend.empty(STATE_WORDS, np.uint64)
        self.fields: dict[str, Any] = {
            "state": self.state,
            "seed": self.seed,
            **self.allocate(self.keys),
        }
        """The fields of the C++ `Storage`: arrays, numbers, and mappings for structs within."""
        self.forget()

    @classmethod
    def open(
        cls,
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> Any:
        """Return an empty store with tables of this recipe; see `Opens`."""
        return cls.store()(cls, backend, spec, key, value, capacity)

    @classmethod
    def store(cls) -> type[Any]:
        """Return the store type for tables of this recipe."""
        from dgpuhash.tables.stores.method_store import MethodStore

        return MethodStore

    # What a method says.

    @property
    @abstractmethod
    def table(self) -> str:
        """C++ type of the table, without spaces."""

    @abstractmethod
    def allocate(self, keys: int) -> dict[str, Any]:
        """Return the fields of `Storage` except state and seed, with uninitialised arrays.

        Called once, with `plan` and `seed` set.
        """

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of slots for keys."""

    @property
    def places(self) -> int:
        """Number of places that may have a key, as C++'s `places()`."""
        return self.slots

    def width(self, verb: str) -> int | None:
        """Return the tile width for a verb; None for the compiled one."""
        return None

    def reset(self) -> None:
        """Initialize the arrays of an empty table, by default to all ones."""
        for array in self.arrays():
            # Words, since CuPy fills byte by byte.
            word = np.uint32 if array.nbytes % 8 else np.uint64
            array.view(word).fill(word(np.iinfo(word).max))

    @property
    def whole_pairs(self) -> bool:
        """Whether a launch may change the value of a key that it stores itself."""
        return False

    @property
    def limit(self) -> int:
        """Number of keys above which the table is rebuilt for twice as many."""
        return self.keys

    @property
    def free_keys(self) -> int:
        """Keys left up to the limit, as known without waiting for the device.

        The first batch says how many keys there will be.
        """
        return (self.keys if self.blank else self.limit) - self.bound

    def make_ready(self, rows: int) -> None:
        """Allocate memory for `rows` more keys; may be called repeatedly."""

    def certain(self, rows: int) -> bool:
        """Return whether `rows` more keys surely find slots within the limit."""
        return False

    def remedy(self, refused: int) -> bool:
        """Remedy a launch with refused rows; return whether the table can take them now.

        Otherwise the store rebuilds the table with another seed.
        """
        return False

    def sweep(self) -> bool:
        """Drop tombstones by one launch; False if only a rebuild does."""
        return False

    def figures(self) -> dict[str, Any]:
        """Return the method's own figures, for ``stats().details``."""
        return {}

    def held(self) -> list[Any]:
        """Return the table's arrays that are not fields."""
        return []

    @classmethod
    def check(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None, settings: Mapping[str, Any]
    ) -> None:
        """Raise SpecError if settings do not fit the key and value words."""

    # What stores call.

    @classmethod
    def words(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None
    ) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        """Return the word dtypes that the method stores other dtypes in.

        Sets of 4 or 8 bytes, and pairs of 4+4 and 8+8 bytes, unless a method overrides it.
        """
        if value is None or key == value:
            return key, value
        return np.dtype(np.uint64), np.dtype(np.uint64)

    @cached
    def types(self) -> str:
        """C++ types of key and value words, as template arguments."""
        return f"{name_of_word(self.plan.key)},{name_of_word(self.plan.value)}"

    def arrays(self) -> list[Any]:
        """Return the arrays among the fields, nested structs included."""
        found, left = [], list(self.fields.items())
        for name, it in left:
            if isinstance(it, Mapping):
                left += it.items()
            elif name != "state" and hasattr(it, "nbytes") and hasattr(it, "dtype") and it.ndim:
                found.append(it)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(it.nbytes) for it in (self.state, *self.arrays(), *self.held()))

    def kernel(self, verb: str) -> Kernel:
        """Return the kernel of a verb."""
        return verb_kernel(verb, self.table, self.width(verb))

    def replace(self, **fields: Any) -> None:
        """Change fields; kernels see them from the next launch on."""
        changed = {**self.fields, **fields}
        # First, so that an interrupt between leaves no addresses other than those of the fields.
        for name in _ADDRESSED:
            self.__dict__.pop(name, None)
        self.fields = changed

    @cached
    def storage(self) -> bytes:
        """Return the packed fields."""
        return _pack(self.backend, self.kernel("items").args["table"], self.fields)

    def emptied(self) -> Self:
        """Return an empty table in this memory, with the first seed, replacing this one."""
        made = copy.copy(self)
        for name in _ADDRESSED:
            made.__dict__.pop(name, None)
        made.generation, made.seed = 0, self.plan.seed
        made.fields = {**self.fields, "seed": made.seed}
        made.forget()
        return made

    def anew(self) -> Self:
        """Return an empty table in this memory with the same hash functions."""
        self.forget()
        return copy.copy(self)

    def forget(self) -> None:
        """Mark the table empty; `fill` writes it before its next use."""
        self.filled: bool = False
        self.blank: bool = True
        self.bound = 0
        """Upper bound of the places taken, known without waiting for the device."""
        self.erased_bound: int = 0
        """Upper bound of the marks."""
        self._counted: Counters | None = None

    def fill(self) -> None:
        """Initialize the arrays of an empty table, unless done."""
        if self.filled:
            return
        self.reset()
        self.state[:SIDE_VALUE].fill(np.uint64(0))
        self.state[SIDE_VALUE:].fill(np.uint64(2**64 - 1))
        # Last, so that an interrupted fill is repeated.
        self.filled = True

    def count(self) -> Counters:
        """Return the counters; waits for the device unless nothing was stored."""
        if self.blank:
            return Counters(0, 0, 0, 0)
        if self._counted is None:
            self._counted = Counters(*(int(it) for it in self._host_state()[:4]))
        return self._counted

    def change(self) -> None:
        """Record that the next launch changes the table."""
        if not self.filled:
            self.fill()
        self.blank, self._counted = False, None

    def insert(
        self,
        keys: Any,
        values: Any,
        fresh: Any,
        action: OnExisting = OnExisting.KEEP,
        kind: int = 0,
        *,
        rows: Any = None,
        pending: Any = None,
    ) -> None:
        """Launch an insert of all rows, or of those in `rows`.

        Rows that find no place go to `pending`, if their number was set to 0 by `watch`.
        """
        self.change()
        number = len(keys) if rows is None else len(rows)
        self._insert_rows(number, keys, values, rows, fresh, pending, number, int(action), kind)

    def inserting(
        self,
        keys: Any,
        values: Any,
        fresh: Any = None,
        action: OnExisting = OnExisting.KEEP,
        kind: int = 0,
        *,
        rows: Any = None,
        pending: Any = None,
    ) -> Step:
        """Return the step of an insert; read no counters before it runs."""
        self.change()
        number = len(keys) if rows is None else len(rows)
        return self.backend.prepared(
            self.kernel("insert"), number, table=self.storage, keys=keys, values=values,
            rows=rows, fresh=fresh, pending_rows=pending, action=int(action), kind=kind,
        )  # fmt: skip

    def watch(self) -> None:
        """Reset the count of refused rows."""
        self.fill()
        self.state[2:3].fill(np.uint64(0))

    def refused(self, pending: Any) -> Any:
        """Return the rows refused since `watch`; waits for the device."""
        return pending[: self.count().pending]

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Write the value words of keys and a mask of stored keys; either output may be None."""
        rows = len(keys)
        self.fill()
        self._find_rows(rows, keys, values, found, rows, default)

    def contains(self, keys: Any) -> Any:
        """Return a mask of the keys that are stored."""
        found = self.backend.empty(len(keys), _BOOL)
        self.find_to(keys, None, found, 0)
        return found

    def erase(self, keys: Any) -> Any:
        """Erase keys; return a mask with one row of each key that was stored."""
        rows = len(keys)
        erased = self.backend.empty(rows, _BOOL)
        self._note_erase(rows)
        self._erase_rows(rows, keys, erased, rows)
        return erased

    def erasing(self, keys: Any) -> Step:
        """Return the step of an erase; read no counters before it runs."""
        self._note_erase(len(keys))
        return self.backend.prepared(self.kernel("erase"), len(keys), table=self.storage, keys=keys)

    def _note_erase(self, rows: int) -> None:
        self.fill()
        self._counted = None
        self.erased_bound += rows

    def move_to(self, target: Recipe, pending: Any = None, *, again: bool = False) -> int:
        """Store all keys in `target`; return how many found no slot.

        With `again`, the target has some of the keys already.
        """
        if self.blank:
            return 0
        self.fill()
        target.change()
        if not again:
            state = self._host_state().copy()
            state[0] = np.count_nonzero(state[SIDE_PRESENT:SIDE_VALUE])
            state[1:SIDE_PRESENT] = 0
            target.fill()
            # The method's own counter stays: an empty table may have taken some already.
            target.state[0:1] = self.backend.from_host(state[0:1])
            target.state[SIDE_PRESENT:] = self.backend.from_host(state[SIDE_PRESENT:])
        target.watch()
        self._move_places(target, pending)
        target.change()
        target.bound = target.count().taken
        return target.count().pending

    def _move_places(self, target: Recipe, pending: Any) -> None:
        """Launch the insert of all but the reserved keys into `target`."""
        self.backend.run(
            self.kernel("rehash"), self.places,
            table=self.storage, target=target.storage, pending_rows=pending,
        )  # fmt: skip

    @cached
    def _insert_rows(self) -> Callable[..., None]:
        return self.backend.bound(self.kernel("insert"), self.storage)

    @cached
    def _find_rows(self) -> Callable[..., None]:
        return self.backend.bound(self.kernel("find"), self.storage)

    @cached
    def _erase_rows(self) -> Callable[..., None]:
        return self.backend.bound(self.kernel("erase"), self.storage)


def _pack(backend: Backend, layout: Any, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a struct, with nested structs given as mappings."""
    made = {
        name: _pack(backend, layout[name], it) if isinstance(it, Mapping) else it
        for name, it in fields.items()
    }
    return backend.pack(layout, **made)
