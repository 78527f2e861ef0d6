"""Method ``supernode``: DACHash's chains of super nodes, reordering and mappings.

Settings: ``length``, the expected length ε, which is keys for each slot of the buckets' own nodes,
before a table grows; ``node_nbytes``, bytes of a node; ``tau``, the expected length from which four
lanes of a GPU look together for a key of a mixed batch, where below it every lane has a key of its
own: 0.6 in the paper, and never by default, as one lane is ahead on an H200 at every length;
``combined``, buckets by which a batch is reordered together where its answers may come in any
order: 0, the default, leaves batches as they are unless a table is much larger than the cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named
from dgpuhash.backend.batch.partition import MAX_PARTS
from dgpuhash.errors import SpecError
from dgpuhash.tables.stores.list_recipe import ChainRecipe, wanted_nodes
from dgpuhash.tables.stores.method import VERBS, Method, Setting

# As in kernels/table/methods/supernode.cuh and kernels/memory/node_stack.cuh: bytes of a node's
# header where slots are no larger, the counts of a pool, and the least index that no node has.
_HEADER_NBYTES, _COUNTS, _NO_NODE = 8, 2, 2**32 - 2
# Nodes that the pool of a table has at least.
_LEAST_POOL = 256
# Lanes that look for a key together, where several do.
_LANES = 4
# What is reordered by default: tables of so many caches, by as many buckets as the paper chose.
_CACHES, _COMBINED = 16, 256


class Supernode(ChainRecipe):
    """Sets and maps with one value a key."""

    unit = "nodes"

    @classmethod
    def check(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None, settings: Mapping[str, Any]
    ) -> None:
        """Implement `Recipe.check`."""
        nbytes = cls.words(key, value)[0].itemsize
        if value is not None and nbytes == 8 and settings["node_nbytes"] == 16:
            raise SpecError(
                "node_nbytes=16 with keys or values of 8 bytes: a node has no room for a pair; "
                "use 32 or more"
            )

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Supernode<{self.types}>"

    @property
    def node_nbytes(self) -> int:
        """Bytes of a node."""
        nbytes: int = self.plan.settings["node_nbytes"]
        return nbytes

    @property
    def slot_nbytes(self) -> int:
        """Bytes of a slot."""
        return self.plan.key.itemsize * (1 if self.plan.value is None else 2)

    @property
    def per_node(self) -> int:
        """Implement `ChainRecipe.per_node`: the slots of a node behind its header."""
        header = max(_HEADER_NBYTES, self.slot_nbytes)
        return (self.node_nbytes - header) // self.slot_nbytes

    @property
    def places(self) -> int:
        """Implement `Recipe.places`: the slots of all nodes, and the places of their headers."""
        nodes: int = self.fields["buckets"] + self.pool_nodes
        return nodes * (self.node_nbytes // self.slot_nbytes)

    @property
    def pool_nodes(self) -> int:
        """Number of the pool's nodes, used and free."""
        size: int = self.fields["pool"]["size"]
        return size

    def width(self, verb: str) -> int | None:
        """Implement `Recipe.width`: mixed batches follow the dynamic mapping (DACHash §V)."""
        if verb != "execute":
            return None
        return 1 if self.mapping == "one-to-one" else _LANES

    @property
    def expected_length(self) -> float:
        """Keys per slot of the buckets' own nodes (ε), as known without waiting."""
        return min(self.bound, self.limit) / self.slots

    @property
    def mapping(self) -> str:
        """Assignment of mixed batches' keys to lanes."""
        below = self.expected_length < self.plan.settings["tau"]
        return "one-to-one" if below else "many-to-one"

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`: the nodes that are expected and a tenth."""
        buckets = math.ceil(keys / (self.per_node * self.plan.settings["length"]))
        size = max(_LEAST_POOL, wanted_nodes(keys, buckets, self.per_node))
        pool = {
            "nodes": self._nodes(size),
            "free": self.backend.empty(0, np.uint32),
            "counts": self.backend.empty(_COUNTS, np.uint64),
            "size": size,
            "log_quarters": (self.node_nbytes // 16).bit_length() - 1,
        }
        return {"pool": pool, "nodes": self._nodes(buckets), "buckets": buckets}

    def reset(self) -> None:
        """Implement `Recipe.reset`: nodes are all ones, and none was ever taken."""
        super().reset()
        self.fields["pool"]["counts"].fill(np.uint64(0))

    def certain(self, rows: int) -> bool:
        """Implement `Recipe.certain`: where the pool has nodes for the longest chains."""
        return (self.bound + rows) // self.per_node <= self.pool_nodes

    def remedy(self, refused: int) -> bool:
        """Implement `Recipe.remedy`: a flush after erases, else a pool half as large again."""
        if self.count().erased:
            return self.sweep()
        more = max(-(-2 * refused // self.per_node), self.pool_nodes // 2, 1)
        size = self.pool_nodes + more
        if size >= _NO_NODE:
            return False
        pool = self.fields["pool"]
        nodes, end = self._nodes(size), len(pool["nodes"])
        nodes[:end] = pool["nodes"]
        nodes[end:].fill(np.uint32(0xFFFFFFFF))
        # Who was refused has counted on past the end.
        counts = pool["counts"].copy()
        counts[1:] = self.backend.xp.minimum(counts[1:], np.uint64(pool["size"]))
        self.replace(pool={**pool, "nodes": nodes, "counts": counts, "size": size})
        return True

    def sweep(self) -> bool:
        """Implement `ChainRecipe.sweep`: makes room for the indices of all nodes first."""
        pool = self.fields["pool"]
        missing = pool["size"] - len(pool["free"])
        if missing:
            more = self.backend.empty(missing, np.uint32)
            self.replace(pool={**pool, "free": self.backend.xp.concatenate([pool["free"], more])})
        return super().sweep()

    def reorder(self, keys: Any) -> tuple[Any, Any]:
        """Return keys in the order of their combined buckets, and their rows (int64).

        DACHash's Algorithm 1, with places that are counted before rows move. Combined buckets are
        neighbours, since a bucket is a range of the hash. Where nothing is gained, keys stay as
        they are.
        """
        combined = self.plan.settings["combined"]
        if combined == 0:
            if self.nbytes < _CACHES * self.backend.cache_nbytes():
                return keys, self.backend.xp.arange(len(keys))
            combined = _COMBINED
        parts = min(-(-self.fields["buckets"] // combined), MAX_PARTS)
        moved = self.backend.partition(keys, parts=parts, seed=self.seed, numbered=True)
        return moved.keys, moved.numbers

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`; walks all chains."""
        buckets = self.fields["buckets"]
        lengths = self.backend.empty(buckets, np.uint32)
        self.backend.run(kernel_named("node_chains"), buckets, table=self.storage, nodes=lengths)
        nodes = int(lengths.sum(dtype=np.uint64))
        return {
            "buckets": buckets,
            "nodes": nodes,
            "nodes_a_bucket": nodes / buckets,
            "longest_chain": int(lengths.max()),
            "utilisation": self.count().occupied * self.slot_nbytes / (self.node_nbytes * nodes),
            "free": self.pool_nodes - (nodes - buckets),
            "pool": self.pool_nodes,
            "expected_length": self.expected_length,
            "mapping": self.mapping,
        }

    def _nodes(self, nodes: int) -> Any:
        return self.backend.empty(nodes * (self.node_nbytes // 4), np.uint32)


METHODS = (
    Method(
        name="supernode",
        paper="DACHash",
        section="§III-V",
        nouns={"set": Supernode, "map": Supernode},
        settings={
            "length": Setting(0.5, 0.05, 4.0, size=True),
            "node_nbytes": Setting(64, choices=(16, 32, 64, 128)),
            "tau": Setting(8.0, 0.0, 8.0),
            "combined": Setting(0, 0, 2**16),
        },
        verbs=(*VERBS, "combine", "execute", "reorder"),
        ordered=False,
        when="many lookups of large tables, with answers in input order",
    ),
)
