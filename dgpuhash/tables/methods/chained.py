"""Method ``chained``: entries sorted by bucket, built at once.

Setting: ``buckets``, the number of buckets for each key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named, verb_kernel
from dgpuhash.backend.batch.partition import sort_by_word
from dgpuhash.errors import CapacityError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.stores.method import Method, Setting
from dgpuhash.tables.stores.recipe import Recipe
from dgpuhash.tables.stores.static_store import StaticListRecipe, StaticRecipe

# As in kernels/core/hash_family.cuh.
_PRIME = 4_294_967_291
# Beyond these the prime is not so much larger that it spreads keys evenly; entries have as many.
_MOST_BUCKETS, _MOST_KEYS = 2**30, 2**32 - 1
# Generations in which keys of 4 bytes are hashed as the thesis prints it.
_PRINTED = 2


class ChainedBuckets(Recipe):
    """Entries sorted by bucket, with the bucket ends."""

    unit = "probes"

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        return self.keys

    @property
    def places(self) -> int:
        """Implement `Recipe.places`."""
        stored: int = self.fields["stored"]
        return stored

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`.

        Raises
        ------
        CapacityError
            When there would be more entries than 32 bits number, or too many buckets.
        """
        buckets = math.ceil(self.plan.settings["buckets"] * keys)
        if buckets > _MOST_BUCKETS or keys > _MOST_KEYS:
            raise CapacityError(
                f"{keys:,} keys in {buckets:,} buckets; a chained table has at most {_MOST_KEYS:,} "
                f"and {_MOST_BUCKETS:,}; use a smaller buckets=, method 'auto', or several tables"
            )
        random = np.random.Generator(np.random.MT19937(self.seed))
        return {
            "function": {"a": int(random.integers(1, _PRIME)), "b": int(random.integers(_PRIME))},
            "entries": self.backend.empty(2 * keys, self.plan.key),
            "ends": self.backend.empty(buckets, np.uint32),
            "stored": 0,
            "buckets": buckets,
            "printed": int(self.generation < _PRINTED),
        }

    def reset(self) -> None:
        """Implement `Recipe.reset`: no bucket has entries."""
        self.fields["ends"].fill(np.uint32(0))
        self.replace(stored=0)

    def build(self, keys: Any, values: Any) -> int:
        """Store pairs without reserved keys in this empty table; return 0."""
        backend, xp, key = self.backend, self.backend.xp, self.plan.key
        reserved = keys >= key.type(np.iinfo(key).max - 1)
        if reserved.any():
            rows = xp.flatnonzero(~reserved)
            keys, values = keys[rows], values[rows]
        number, buckets = len(keys), self.fields["buckets"]
        if number == 0:
            return 0
        of_rows = backend.empty(number, np.uint32)
        one_value = f"dg::Chained<{self.types}>"
        backend.run(
            verb_kernel("chained_buckets", one_value), number, table=self.storage, keys=keys,
            buckets=of_rows,
        )  # fmt: skip
        bits = max(1, (buckets - 1).bit_length())
        if key.itemsize == 4:
            pairs = keys.astype(np.uint64) | values.astype(np.uint64) << np.uint64(32)
            of_rows, pairs = sort_by_word(backend, of_rows, pairs, bits=bits)
            self.fields["entries"].view(np.uint64)[:number] = pairs
        else:
            order = xp.arange(number, dtype=np.uint64)
            of_rows, order = sort_by_word(backend, of_rows, order, bits=bits)
            pairs = self.fields["entries"].reshape(-1, 2)[:number]
            pairs[:, 0], pairs[:, 1] = keys[order.view(np.int64)], values[order.view(np.int64)]
        backend.run(
            kernel_named("chained_ends"), number, sorted=words_of(of_rows),
            ends=self.fields["ends"], buckets=buckets,
        )  # fmt: skip
        self.replace(stored=number)
        self.state[0:1].fill(np.uint64(number))
        return 0

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`."""
        ends = self.fields["ends"]
        lengths = self.backend.xp.diff(ends, prepend=ends.dtype.type(0)) if self.places else ends
        return {
            "buckets": self.fields["buckets"],
            "longest_bucket": int(lengths.max()) if self.places else 0,
            "mapping": "one-to-one",
        }


class Chained(ChainedBuckets, StaticRecipe):
    """Maps with one value a key."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Chained<{self.types}>"


class ChainedLists(ChainedBuckets, StaticListRecipe):
    """Multimaps with one entry a value."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::ChainedLists<{self.types}>"


METHODS = (
    Method(
        name="chained",
        paper="Alcantara",
        section="ch. 4",
        nouns={"map": Chained, "multimap": ChainedLists},
        settings={"buckets": Setting(0.5, 0.05, 8.0, size=True)},
        verbs=("insert", "upsert", "find", "contains", "count", "items"),
        static=True,
        when="tables built at once, of which most keys that are asked for are absent",
    ),
)
