"""Recipe of tables with a chain of nodes for each bucket."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod

import numpy as np

from dgpuhash.tables.stores.recipe import Recipe

# Nodes beyond those expected: a tenth, and what is left to chance.
_SPARE, _DEVIATIONS = 1.1, 6


class ChainRecipe(Recipe):
    """A node for each bucket, and a pool of nodes from which chains grow."""

    @property
    @abstractmethod
    def per_node(self) -> int:
        """Keys or pairs in a node."""

    @property
    def slots(self) -> int:
        """See `Recipe`: those of the first nodes."""
        buckets: int = self.fields["buckets"]
        return buckets * self.per_node

    @property
    def whole_pairs(self) -> bool:
        """See `Recipe`: a bit for each pair tells when its value is there."""
        return True

    def sweep(self) -> bool:
        """See `Recipe`: a flush compacts all chains and gives nodes back."""
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
    """Return how many nodes `keys` keys need beyond the buckets' own, and a tenth.

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
