"""Interface of stores: the words of a table on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.launches import Step
from dgpuhash.backend.layout import Layout
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.arguments.combine import Update
from dgpuhash.tables.arguments.lca import LcaChange
from dgpuhash.tables.commit import MakeSteps
from dgpuhash.tables.stats import Figures


class Lent(NamedTuple):
    """A store's table as an argument of user kernels."""

    files: tuple[str, ...]
    """Headers below ``kernels/`` that define `table`."""
    table: str
    """The C++ type of the table."""
    layout: Layout
    """Layout of its ``Storage``."""
    storage: bytes
    settle: Callable[[], int]
    """Takes note of what kernels inserted; returns the number of rows that were refused."""
    places: int
    """Places that may hold a key."""


def no_appends(method: str) -> UnsupportedError:
    """Return the error for appends by user kernels to an unsupported multimap method.

    Examples
    --------
    >>> no_appends("auto")
    UnsupportedError("a MultiMap of method 'auto' does not support inserts by user kernels;
    use method 'cops' or 'slab', or insert them")
    """
    return UnsupportedError(
        f"a MultiMap of method {method!r} does not support inserts by user kernels; use method "
        f"'cops' "
        "or 'slab', or insert them"
    )


class AnyStore(Protocol):
    """Common interface of the stores of all tables.

    A change is whole or absent, whatever interrupts it.
    """

    backend: Backend

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words; None for sets."""

    @property
    def capacity(self) -> int:
        """Number of distinct keys at which the store grows."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""

    @property
    def reseeds(self) -> int:
        """Number of automatic seed changes."""

    @property
    def broken(self) -> bool:
        """Whether a change has failed half-way."""

    def __len__(self) -> int:
        """Return the number of distinct keys."""

    def contains(self, keys: Any) -> Any:
        """Return a mask of the keys that are stored."""

    def erase(self, keys: Any) -> Any:
        """Erase keys; return a mask with one row of each key that was stored."""

    def items(self) -> tuple[Any, Any]:
        """Return all stored key words and values."""

    def reserve(self, keys: int) -> None:
        """Grow until `capacity` is at least `keys`."""

    def rehash(self, seed: int) -> None:
        """Store all keys again under another seed."""

    def empty_in_place(self) -> Self:
        """Return an empty store in this one's memory; `fill` makes it usable."""

    def fill(self) -> None:
        """Write the memory that `empty_in_place` left unwritten."""

    def copy(self) -> Self:
        """Return an independent store with the same content."""

    def figures(self) -> Figures:
        """Return the store's figures; reads all of it."""

    def ready(self) -> None:
        """Allocate the memory for large batches in advance."""


class Store(AnyStore, Protocol):
    """Store of a set or map: key words, and value words of maps, on one device.

    Keys and values of all verbs may have any dtype as wide as the words.
    """

    def insert(self, keys: Any, values: Any, then: MakeSteps | None = None) -> Any:
        """Insert the absent keys; return a mask of the rows that created keys."""

    def combine(self, keys: Any, values: Any, change: Update | LcaChange) -> Any:
        """Insert pairs, combining each further value of a key with the stored one.

        Returns a mask of the rows that created keys.
        """

    def add(self, keys: Any, values: Any) -> None:
        """Insert the absent keys without returning a mask."""

    def upsert(self, keys: Any, values: Any) -> None:
        """Store pairs with distinct keys; overwrite the values of stored keys."""

    def replacing(self, keys: Any, values: Any) -> Step:
        """Return the `commit` step that overwrites stored pairs, for which there is room."""

    def commit(self, *steps: Step) -> None:
        """Run steps in one call; a failure after the first step breaks the store."""

    @property
    def reserves(self) -> bool:
        """Whether `make_room` guarantees slots for its keys."""

    def make_room(self, new: int) -> None:
        """Reserve room for `new` further keys."""

    def find(
        self, keys: Any, default: int = 0, dtype: np.dtype[Any] | None = None
    ) -> tuple[Any, Any]:
        """Return the value words of keys (None for sets), and a mask of the stored keys."""

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Write the result of `find` to `values` and `found`."""

    def absent(self, keys: Any) -> Any:
        """Return the rows (int64) with absent keys."""

    def erasing(self, keys: Any) -> Step:
        """Return the step of an erase without a result."""

    def ranges(self, rows: int, owners: int) -> RegionRanges | None:
        """Return the division of batches into ranges of the store, or None without one."""


class IdStore(Protocol):
    """Store of a two-way index: key words and their ids; built once."""

    backend: Backend
    keys: Any
    """The key words in the order of their ids; not to be changed."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def build(self, bits: Any) -> None:
        """Assign an id to each distinct key, in this empty store."""

    def restore(self, bits: Any) -> None:
        """Store distinct keys with their rows as ids, in this empty store."""

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Return the ids of keys (int64; -1 for none), and a mask of those with one."""

    def figures(self) -> Figures:
        """Return the store's figures; reads all of it."""

    def copy(self) -> Self:
        """Return a store with the same content, possibly sharing memory."""
