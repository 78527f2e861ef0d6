"""Recipes of fixed-size tables with several values a key, or with chained nodes."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.stores.recipe import Recipe


class ListRecipe(Recipe):
    """Recipe of one fixed-size table with several values a key.

    As `Recipe`, with the verbs that append, count and gather. The values of the two reserved keys
    are not in it: the store keeps them, and tells the table their number. Keys N of the papers are
    pairs where each has a place of its own.
    """

    pair_a_place: ClassVar[bool] = True
    """Whether each pair takes a place, so that the table's size follows from their number."""

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
        return cls.store()(cls, backend, spec, key, capacity)

    @classmethod
    def store(cls) -> type[Any]:
        """Implement `Recipe.store`."""
        from dgpuhash.tables.stores.list_store import ListMethodStore

        return ListMethodStore

    def appending(self, keys: Any, values: Any, *, rows: Any = None, pending: Any = None) -> Step:
        """Return the step that appends the values of all rows, or of `rows`, to keys' lists.

        No key is reserved. Rows that find no place go to `pending`; see `watch`.
        """
        self.change()
        number = len(keys) if rows is None else len(rows)
        return self.backend.prepared(
            self.kernel("append"), number, table=self.storage, keys=keys, values=values,
            rows=rows, pending_rows=pending,
        )  # fmt: skip

    def counts(self, keys: Any) -> Any:
        """Return the number of values (int64) of each key."""
        self.fill()
        counts = self.backend.empty(len(keys), np.int64)
        self.backend.run(
            self.kernel("count"), len(keys), table=self.storage, keys=keys, counts=counts
        )
        return counts

    def gather(self, keys: Any, offsets: Any, values: Any, beside: tuple[Any, Any]) -> None:
        """Write the values of each key from its offset (int64) on.

        `beside` has the values of the two reserved keys.
        """
        self.fill()
        self.backend.run(
            self.kernel("gather"), len(keys), table=self.storage, keys=keys, offsets=offsets,
            values=values, side_values=beside,
        )  # fmt: skip

    def contains(self, keys: Any) -> Any:
        """Return a mask of the keys with values."""
        return self.counts(keys) > 0

    def withdrawing(self, keys: Any, erased: Any) -> Step:
        """Return the step that erases distinct, unreserved keys with all values.

        `erased` becomes a mask of those that were stored.
        """
        self._note_erase(len(keys))
        return self.backend.prepared(
            self.kernel("erase"), len(keys), table=self.storage, keys=keys, erased=erased
        )

    def stored_keys(self) -> Any:
        """Return the distinct stored key words, without reserved keys."""
        keys = self._items(0)[0]
        if not self.pair_a_place:
            return keys
        chosen = deduplicated_rows(self.backend, words_of(keys), last=False)
        return keys if chosen is None else keys[chosen]

    def distinct(self) -> int | None:
        """Return the number of distinct unreserved keys, or None if it is not counted."""
        return None

    def move_to(self, target: Self, pending: Any = None, *, again: bool = False) -> int:  # type: ignore[override]
        """Append all lists to an empty `target`; return the number of refused slots.

        With `again`, what the target has is forgotten first.
        """
        self.fill()
        if again:
            target.forget()
        target.change()
        target.state[4:6] = self.state[4:6]
        target.watch()
        self.backend.run(
            self.kernel("rehash"), self.places,
            table=self.storage, target=target.storage, pending_rows=pending,
        )  # fmt: skip
        target.change()
        target.bound = target.count().taken
        return target.count().pending


# Nodes beyond those expected: a tenth, and what is left to chance.
_SPARE, _DEVIATIONS = 1.1, 6


class ChainRecipe(Recipe):
    """Recipe of chained tables: a node per bucket, and a pool of further nodes."""

    @property
    @abstractmethod
    def per_node(self) -> int:
        """Number of keys or pairs in a node."""

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`: those of the first nodes."""
        buckets: int = self.fields["buckets"]
        return buckets * self.per_node

    @property
    def whole_pairs(self) -> bool:
        """Implement `Recipe.whole_pairs`: a bit for each pair tells when its value is there."""
        return True

    def sweep(self) -> bool:
        """Implement `Recipe.sweep`: a flush compacts all chains and gives nodes back."""
        released = self.backend.zeros(1, np.uint64)
        self.backend.run(
            self.kernel("flush"), self.fields["buckets"], table=self.storage, released=released
        )
        self._counted = None
        self.erased_bound: int = 0
        self.bound: int = self.count().taken
        return True


@functools.lru_cache(maxsize=64)
def wanted_nodes(keys: int, buckets: int, per_node: int) -> int:
    """Return the number of nodes for `keys` keys beyond the buckets' own, plus a tenth.

    The keys of a bucket are Poisson distributed, with the mean λ = keys / buckets.

    Examples
    --------
    >>> wanted_nodes(7000, 1000, 7)
    569
    """
    mean = keys / buckets
    most = math.ceil(mean + 12 * math.sqrt(mean) + 40)
    at_most = [0.0] * (most + 1)
    total, logarithm = 0.0, -mean
    for n in range(most + 1):
        total += math.exp(logarithm)
        at_most[n] = min(total, 1.0)
        logarithm += math.log(mean) - math.log(n + 1)
    expected = buckets * sum(1 - at_most[n] for n in range(per_node, most + 1, per_node))
    return math.ceil(_SPARE * expected + _DEVIATIONS * math.sqrt(expected))
