"""Store of a table's words on one device: what tables ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.launches import Step
from dgpuhash.backend.layout import Layout
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.commit import MakeSteps
from dgpuhash.tables.stats import Figures

if TYPE_CHECKING:
    from dgpuhash.tables.arguments.combine import Change
    from dgpuhash.tables.arguments.lca import LcaChange


class Lent(NamedTuple):
    """A store's table as kernels of users get it."""

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
    """Return the error of a multimap to whose method kernels of users append no values.

    Examples
    --------
    >>> no_appends("auto")
    UnsupportedError("a MultiMap of method 'auto' takes no values from kernels of users; use method
    'cops' or 'slab', or insert them")
    """
    return UnsupportedError(
        f"a MultiMap of method {method!r} takes no values from kernels of users; use method 'cops' "
        "or 'slab', or insert them"
    )


class AnyStore(Protocol):
    """Part of a store that is the same for all tables.

    A change is whole or absent, whatever interrupts it.
    """

    backend: Backend

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words; None for sets."""

    @property
    def capacity(self) -> int:
        """Distinct keys that fit before the store grows."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory held."""

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""

    @property
    def reseeds(self) -> int:
        """Number of seed changes that the store made by itself."""

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
        """Return the key words, and the values, of all that is stored."""

    def reserve(self, keys: int) -> None:
        """Grow until `capacity` is at least `keys`."""

    def rehash(self, seed: int) -> None:
        """Store all keys anew, with another seed."""

    def cleared(self) -> Self:
        """Return an empty store in this one's memory; `fill` makes it usable."""

    def fill(self) -> None:
        """Write what `cleared` left unwritten."""

    def copy(self) -> Self:
        """Return an independent store with the same content."""

    def figures(self) -> Figures:
        """Return the store's figures; reads all of it."""

    def ready(self) -> None:
        """Allocate what large batches need before they come."""


class Store(AnyStore, Protocol):
    """Key words, and value words of maps, of a set or a map on one device.

    Keys and values of all verbs may have any dtype as wide as the words.
    """

    def insert(self, keys: Any, values: Any, then: MakeSteps | None = None) -> Any:
        """Insert the absent keys; return a mask of the rows that created keys."""

    def combine(self, keys: Any, values: Any, change: Change | LcaChange) -> Any:
        """Insert pairs; change the value of a key by each further pair of it.

        Returns a mask of the rows that created keys.
        """

    def add(self, keys: Any, values: Any) -> None:
        """Insert the absent keys without returning a mask."""

    def upsert(self, keys: Any, values: Any) -> None:
        """Store pairs with distinct keys; overwrite the values of stored keys."""

    def replacing(self, keys: Any, values: Any) -> Step:
        """Return the `commit` step that stores pairs over those stored; there is room."""

    def commit(self, *steps: Step) -> None:
        """Run steps in one call; where one fails behind the first, the store is broken."""

    @property
    def reserves(self) -> bool:
        """Whether keys for which `make_room` made room surely find places."""

    def make_room(self, new: int) -> None:
        """Reserve room for `new` further keys."""

    def find(
        self, keys: Any, default: int = 0, dtype: np.dtype[Any] | None = None
    ) -> tuple[Any, Any]:
        """Return the value words of keys (None for sets), and a mask of the stored keys."""

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Write the result of `find` to `values` and `found`."""

    def absent(self, keys: Any) -> Any:
        """Return the rows (int64) whose keys are not stored."""

    def erasing(self, keys: Any) -> Step:
        """Return the step of an erase without an answer."""

    def ranges(self, rows: int, owners: int) -> RegionRanges | None:
        """Return how batches are split into ranges of the store, or None for not at all."""


class IdStore(Protocol):
    """Key words, and their ids, of a two-way index on one device; built once."""

    backend: Backend
    keys: Any
    """The key words in the order of their ids; not to be changed."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory held."""

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def build(self, bits: Any) -> None:
        """Give each distinct key an id, in this empty store."""

    def restore(self, bits: Any) -> None:
        """Store distinct keys whose ids are their rows, in this empty store."""

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Return the ids of keys (int64; -1 for none), and a mask of those that have one."""

    def figures(self) -> Figures:
        """Return the store's figures; reads all of it."""

    def copy(self) -> Self:
        """Return a store with the same content; it may share the memory."""
