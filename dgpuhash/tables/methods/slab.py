"""Method ``slab``: the slab hash and its allocator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named
from dgpuhash.tables.stores.list_recipe import ChainRecipe, ListRecipe, wanted_nodes
from dgpuhash.tables.stores.method import VERBS, Method, Setting

# As in kernels/memory/slab_alloc.cuh: words of a slab, and how many of them hold keys; slabs and
# words of bitmap of a memory block; memory blocks of a super block, and super blocks, at most.
_SLAB_WORDS, _KEY_WORDS = 32, 30
_BLOCK_SLABS, _BLOCK_WORDS = 1024, 32
_SUPER_BLOCKS, _BLOCKS_EACH = 255, 2**14
# Memory blocks that an allocation tries, and warps that may hold a slab for a moment.
_TRIED_BLOCKS, _WARPS = 32, 2**14


class SlabChains(ChainRecipe):
    """A slab of 128 bytes per bucket, and a pool of slabs for longer chains."""

    unit = "slabs"

    @property
    def per_node(self) -> int:
        """Implement `ChainRecipe.per_node`: M of the paper."""
        words = self.plan.key.itemsize // 4 * (1 if self.plan.value is None else 2)
        return _KEY_WORDS // words

    @property
    def places(self) -> int:
        """Implement `Recipe.places`: the slots of all slabs, used or free."""
        return self.slots + self.pool_slabs * self.per_node

    @property
    def pool_slabs(self) -> int:
        """Number of the pool's slabs, used and free."""
        blocks: int = self.fields["pool"]["blocks"]
        return blocks * _BLOCK_SLABS

    @property
    def limit(self) -> int:
        """Implement `Recipe.limit`: chains may become twice as long as requested."""
        return 2 * self.keys

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`: the expected slabs and a tenth, at least one block."""
        buckets = math.ceil(keys / (self.per_node * self.plan.settings["chain"]))
        blocks = -(-wanted_nodes(keys, buckets, self.per_node) // _BLOCK_SLABS)
        self.memory_keys = keys
        self._light = self.plan.settings["allocator"] == "light"
        self._super_blocks: list[Any] = []
        pool = self._larger_pool(max(1, blocks), min(max(1, blocks), _BLOCKS_EACH))
        return {"slabs": self._empty_slabs(buckets), "buckets": buckets, "pool": pool}

    def reset(self) -> None:
        """Implement `Recipe.reset`: slabs are all ones, and no slab of the pool is taken."""
        for slabs in (self.fields["slabs"], *self._super_blocks):
            slabs.view(np.uint8).fill(0xFF)
        self.fields["pool"]["bitmaps"].fill(np.uint32(0))

    def make_ready(self, rows: int) -> None:
        """Implement `Recipe.make_ready`: add super blocks if the keys may need more slabs."""
        keys = min(self.bound + rows, 2 * self.limit)
        if keys <= self.memory_keys:
            return
        # Ahead of many small batches.
        keys = max(keys, min(self.memory_keys * 5 // 4, self.limit))
        missing = wanted_nodes(keys, self.fields["buckets"], self.per_node) - self.pool_slabs
        if missing <= 0 or self._add_super_blocks(missing):
            self.memory_keys = keys

    def certain(self, rows: int) -> bool:
        """Implement `Recipe.certain`: with half of the slabs free and every memory block tried."""
        blocks = self.fields["pool"]["blocks"]
        taken = (self.bound + rows) // self.per_node + min(rows, _WARPS)
        return bool(blocks <= _TRIED_BLOCKS and 2 * taken <= self.pool_slabs)

    def remedy(self, refused: int) -> bool:
        """Implement `Recipe.remedy`: adds super blocks, half of the pool at least."""
        rows_slabs = -(-2 * refused // self.per_node)
        return self._add_super_blocks(max(rows_slabs, self.pool_slabs // 2))

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`; walks all chains."""
        buckets = self.fields["buckets"]
        lengths = self.backend.empty(buckets, np.uint32)
        self.backend.run(kernel_named("slab_chains"), buckets, table=self.storage, slabs=lengths)
        slabs = int(lengths.sum(dtype=np.uint64))
        stored = self.count().occupied * 4 * (_KEY_WORDS // self.per_node)
        return {
            "buckets": buckets,
            "slabs": slabs,
            "slabs_a_bucket": slabs / buckets,
            "longest_chain": int(lengths.max()),
            "utilisation": stored / (4 * _SLAB_WORDS * slabs),
            "free": self.pool_slabs - (slabs - buckets),
            "super_blocks": 1 if self._light else len(self._super_blocks),
            "memory_blocks": self.fields["pool"]["blocks"],
            "allocator": self.plan.settings["allocator"],
            "mapping": "many-to-one",
        }

    def held(self) -> list[Any]:
        """Implement `Recipe.held`."""
        return [] if self._light else self._super_blocks

    def _empty_slabs(self, slabs: int) -> Any:
        return self.backend.empty(slabs * _SLAB_WORDS, np.uint32)

    def _add_super_blocks(self, slabs: int) -> bool:
        """Add a minimum number of slabs to the pool; return whether that is possible."""
        pool = self.fields["pool"]
        each = pool["super_blocks"]
        more = -(-slabs // (each * _BLOCK_SLABS))
        if pool["blocks"] // each + more > _SUPER_BLOCKS:
            return False
        self.replace(pool=self._larger_pool(more * each, each, pool))
        return True

    def _larger_pool(
        self, more: int, each: int, pool: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the fields of a pool with more memory blocks, in super blocks of `each`.

        What there was is what it was. Super blocks are held before the fields name them.
        """
        backend = self.backend
        before = 0 if pool is None else pool["blocks"]
        blocks = before + -(-more // each) * each
        bitmaps = backend.zeros(blocks * _BLOCK_WORDS, np.uint32)
        if pool is not None:
            bitmaps[: before * _BLOCK_WORDS] = pool["bitmaps"]
        slabs = bases = None
        if self._light:
            slabs = self._empty_slabs(blocks * _BLOCK_SLABS)
            end = before * _BLOCK_SLABS * _SLAB_WORDS
            slabs[end:].fill(np.uint32(0xFFFFFFFF))
            if pool is not None:
                slabs[:end] = pool["slabs"]
            self._super_blocks = [slabs]
        else:
            added = [self._empty_slabs(each * _BLOCK_SLABS) for _ in range(before, blocks, each)]
            for slabs_of_one in added:
                slabs_of_one.fill(np.uint32(0xFFFFFFFF))
            self._super_blocks = [*self._super_blocks, *added]
            addresses = [backend.pointer(block) for block in self._super_blocks]
            bases = backend.from_host(np.array(addresses, np.uint64))
        return {
            "slabs": slabs, "bases": bases, "bitmaps": bitmaps, "blocks": blocks,
            "super_blocks": blocks if self._light else each,
        }  # fmt: skip


class Slab(SlabChains):
    """Sets and maps with one value a key."""

    mixed = True
    """Whether the table has the verb ``execute``."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Slab<{self.types}>"


class SlabLists(SlabChains, ListRecipe):
    """Multimaps with one slot a value."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::SlabLists<{self.types}>"


_SETTINGS = {
    "chain": Setting(0.6, 0.05, 4.0, size=True),
    "allocator": Setting("slab", choices=("slab", "light")),
}

METHODS = (
    Method(
        name="slab",
        paper="SlabHash",
        section="§III-V",
        nouns={"set": Slab, "map": Slab, "multimap": SlabLists},
        settings=_SETTINGS,
        verbs=(*VERBS, "combine", "execute"),
        ordered=False,
        when="mixed batches; updates beside lookups",
    ),
)
