"""Method ``two_level_cuckoo``: one cuckoo table per bucket, built in shared memory.

Setting: ``bucket_keys``, the most keys of a bucket, 512 or 1024. Buckets are filled to 80 or 85 %
on average, so that a table takes 1.41 or 1.32 slots for each key.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dgpuhash.backend import Kernel, verb_kernel
from dgpuhash.backend.kernel import name_of_word
from dgpuhash.errors import CapacityError
from dgpuhash.tables.stores.method import Method, Setting
from dgpuhash.tables.stores.recipe import Recipe
from dgpuhash.tables.stores.static_store import StaticListRecipe, StaticRecipe
from dgpuhash.tables.stores.whole.ids import Numbered

# How full buckets are on average, by the most keys of one: the thesis' C and T.
_FILLED = {512: 0.80, 1024: 0.85}
_SUBTABLES = 3
# The primes of core/hash_family.cuh, and how many times the buckets the small one has to be, so
# that each bucket gets about as many of its remainders: the thesis' largest tables, of 10 M keys,
# have 78 times as many.
_PRIME, _LARGEST_PRIME, _LEAST_REMAINDERS = 1_900_813, 4_294_967_291, 64
# Seeds that each bucket tries before the keys are dealt by another function.
_TRIES = 16
# Rows of a bucket are counted in 32 bits.
_MOST_ROWS = 2**32 - 1
# Generations in which keys of 4 bytes are hashed as the thesis prints it.
_PRINTED = 2


class TwoLevelBuckets(Recipe):
    """Buckets of three subtables, with the hash seed of each bucket."""

    unit = "reads"
    distinct_keys: ClassVar[bool]
    """Whether no key comes twice to `build`."""

    @property
    def bucket_keys(self) -> int:
        """Most keys of a bucket."""
        most: int = self.plan.settings["bucket_keys"]
        return most

    @property
    def subtable_slots(self) -> int:
        """Slots of each of a bucket's three subtables."""
        return self.bucket_keys // 4 + self.bucket_keys // 8

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        buckets: int = self.fields["buckets"]
        return buckets * _SUBTABLES * self.subtable_slots

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`."""
        buckets = math.ceil(keys / (self.bucket_keys * _FILLED[self.bucket_keys]))
        wide = buckets * _LEAST_REMAINDERS > _PRIME
        random = np.random.default_rng(self.seed)
        first, top = self.generation == 0, _LARGEST_PRIME if wide else 2**16
        deal = (
            {"a": 1, "b": 0} if first else {"a": random.integers(1, top), "b": random.integers(top)}
        )
        return {
            **self._slot_arrays(buckets * _SUBTABLES * self.subtable_slots),
            "seeds": self.backend.empty(buckets, np.uint32),
            "buckets": buckets,
            "deal": {name: int(word) for name, word in deal.items()},
            "subtable_slots": self.subtable_slots,
            "printed": int(self.plan.key.itemsize == 4 and self.generation < _PRINTED),
            "wide": int(wide),
        }

    @abstractmethod
    def _slot_arrays(self, slots: int) -> dict[str, Any]:
        """Return the fields with keys and values."""

    def _make_lists(self, rows: int, starts: Any) -> None:
        """Allocate memory for the values of a number of rows."""

    def reset(self) -> None:
        """Implement `Recipe.reset`."""
        super().reset()
        self.fields["seeds"].fill(np.uint32(0))

    def build(self, keys: Any, values: Any) -> int:
        """Store pairs in this empty table; return the number of rows without a slot."""
        backend, plan, buckets = self.backend, self.plan, self.fields["buckets"]
        if len(keys) > _MOST_ROWS:
            raise CapacityError(
                f"{len(keys):,} pairs, and a bucket counts its own in 32 bits; use several tables, "
                "or method 'bucket_list'"
            )
        counts, offsets = backend.zeros(buckets, np.uint32), backend.empty(len(keys), np.uint32)
        backend.run(
            self._dealer("count", None), len(keys), table=self.storage, keys=keys, counts=counts,
            offsets=offsets,
        )  # fmt: skip
        # Where keys have copies, only the next phase tells.
        if self.distinct_keys and (refused := self._beyond_buckets(counts)):
            return refused
        starts = backend.zeros(buckets + 1, np.uint64)
        backend.xp.cumsum(counts, dtype=np.uint64, out=starts[1:])
        dealt = backend.empty(len(keys), plan.key)
        dealt_values = None if plan.value is None else backend.empty(len(keys), plan.value)
        backend.run(
            self._dealer("scatter", plan.value), len(keys), table=self.storage, keys=keys,
            values=values, offsets=offsets, starts=starts, dealt_keys=dealt,
            dealt_values=dealt_values,
        )  # fmt: skip
        self._make_lists(len(keys), starts)
        seeds = np.random.default_rng(self.seed).integers(1, 2**16, _TRIES, np.uint32)
        backend.run(
            self.kernel("two_level_build"), buckets, table=self.storage, keys=dealt,
            values=dealt_values, starts=starts, seeds=backend.from_host(seeds), attempts=_TRIES,
            segment_rows=self.bucket_keys,
        )  # fmt: skip
        return self.count().pending

    def _beyond_buckets(self, counts: Any) -> int:
        """Return the number of keys beyond their buckets' capacity."""
        most, xp = self.bucket_keys, self.backend.xp
        return int(xp.maximum(counts, np.uint32(most)).sum(dtype=np.uint64)) - most * len(counts)

    def _dealer(self, part: str, value: np.dtype[Any] | None) -> Kernel:
        """Return a kernel that distributes rows to buckets, without lists."""
        words = f"{name_of_word(self.plan.key)},{name_of_word(value)}"
        return verb_kernel(f"two_level_{part}", f"dg::TwoLevelCuckoo<{words}>")

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`; iterations are those of buckets that have keys."""
        seeds = self.backend.to_host(self.fields["seeds"])
        iterations, attempts = seeds >> 16 & 0xFF, seeds >> 24
        used = iterations > 0
        return {
            "buckets": len(seeds),
            "bucket_keys": self.bucket_keys,
            "subtable_slots": self.subtable_slots,
            "iterations": float(iterations[used].mean()) if used.any() else math.nan,
            "restarts": int((attempts[used] - 1).sum()),
            "mapping": "one-to-one",
        }


class TwoLevelCuckoo(TwoLevelBuckets, StaticRecipe):
    """Sets and maps: a slot for each key and its value."""

    distinct_keys = True

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::TwoLevelCuckoo<{self.types}>"

    def _slot_arrays(self, slots: int) -> dict[str, Any]:
        backend, plan = self.backend, self.plan
        words = 1 if plan.value is None else 2
        return {"keys": backend.empty(slots * words, plan.key)}


class TwoLevelCuckooLists(TwoLevelBuckets, StaticListRecipe):
    """Multimaps: a slot for each key, with its values contiguous."""

    distinct_keys = False
    pair_a_place = False

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::TwoLevelCuckooLists<{self.types}>"

    def distinct(self) -> int:
        """Implement `ListRecipe.distinct`."""
        return self.count().links

    def items(self) -> tuple[Any, Any]:
        """Implement `Contents.items`; keys only, and no reserved ones."""
        return self.stored_keys(), None

    def _slot_arrays(self, slots: int) -> dict[str, Any]:
        backend, plan = self.backend, self.plan
        return {
            "keys": backend.empty(slots, plan.key),
            "lists": backend.empty(slots, np.uint64),
            "values": None,
            "list_starts": None,
        }

    def _make_lists(self, rows: int, starts: Any) -> None:
        """Implement `TwoLevelBuckets._make_lists`."""
        assert self.plan.value is not None
        self.replace(values=self.backend.empty(rows, self.plan.value), list_starts=starts[:-1])


METHODS = (
    Method(
        name="two_level_cuckoo",
        paper="Alcantara",
        section="ch. 5",
        nouns={
            "set": TwoLevelCuckoo,
            "map": TwoLevelCuckoo,
            "multimap": TwoLevelCuckooLists,
            "ids": Numbered(TwoLevelCuckoo),
        },
        settings={"bucket_keys": Setting(512, choices=(512, 1024), size=True)},
        verbs=("insert", "upsert", "find", "contains", "count", "items"),
        static=True,
        ordered=False,
        when="tables built once and asked often: a search reads four places at most",
    ),
)
