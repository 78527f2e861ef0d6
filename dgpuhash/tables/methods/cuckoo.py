"""Method ``cuckoo``: cuckoo hashing with a stash.

Settings: ``functions``, buckets in which a key may stand; ``space``, slots for each key;
``bucket``, the slots of a bucket, 1 or 8; ``family``, how functions hash, ``"multiply"`` or
``"xor"``; ``stash``, slots for the few keys that find no bucket.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import CapacityError, SpecError
from dgpuhash.spec import TableSpec
from dgpuhash.tables.stores.method import VERBS, Method, Setting
from dgpuhash.tables.stores.moving import MovingRecipe
from dgpuhash.tables.stores.run_store import RunStore
from dgpuhash.tables.stores.whole.ids import Numbered

# As in kernels/core/hash_family.cuh: the thesis' primes.
_LARGEST_PRIME, _CUCKOO_PRIME = 4_294_967_291, 334_214_459
# As in kernels/table/methods/cuckoo.cuh: functions, and the stash's.
_FUNCTIONS = 5 + 1
# The thesis' prime needs to be so many times larger than the number of buckets, for even chances.
_EVEN = 8
_MOST_BUCKETS = 2**30
_LEAST_SLOTS = 64
# Attempts with the thesis' functions of the keys themselves.
_PRINTED = 2
# Slots for each key that suffice, by slots of a bucket and functions. The thesis has the first.
_LEAST_SPACE = {1: {2: 2.1, 3: 1.1, 4: 1.03, 5: 1.02}, 8: {2: 1.05, 3: 1.02, 4: 1.02, 5: 1.02}}
# Exchanges before a key goes to the stash, in units of lg N, by slots for each key: twice what the
# longest chains were in simulations. The thesis has 7 for four functions and 1.25 slots.
_MOST_SWAPS = {
    2: ((2.1, 9), (2.2, 6), (2.5, 4)),
    3: ((1.1, 300), (1.15, 26), (1.25, 9), (1.42, 6)),
    4: ((1.03, 200), (1.05, 50), (1.1, 20), (1.25, 7)),
    5: ((1.02, 100), (1.05, 34), (1.25, 7)),
}
_MOST_SWAPS_OF_BUCKETS = ((1.02, 80), (1.05, 40), (1.1, 12), (1.25, 7))


class Cuckoo(MovingRecipe):
    """Sets and maps: buckets, and a stash."""

    unit = "probes"

    @classmethod
    def check(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None, settings: Mapping[str, Any]
    ) -> None:
        """Implement `Recipe.check`."""
        functions, bucket, space = (settings[each] for each in ("functions", "bucket", "space"))
        least = _LEAST_SPACE[bucket][functions]
        if space < least:
            raise SpecError(
                f"space={space} with functions={functions} and bucket={bucket}: keys find no place "
                f"below {least} slots each; use space={least} or more, or more functions"
            )

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Cuckoo<{self.types}>"

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        fields = self.fields
        slots: int = fields["buckets"] * fields["bucket"]
        return slots

    @property
    def places(self) -> int:
        """Implement `Recipe.places`: the slots, and those of the stash."""
        stash: int = self.fields["stash_slots"]
        return self.slots + stash

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`.

        Raises
        ------
        CapacityError
            When there would be more buckets than hashes of 32 bits spread keys over.
        """
        settings = self.plan.settings
        bucket, stash = settings["bucket"], settings["stash"]
        buckets = max(math.ceil(settings["space"] * keys / bucket), _LEAST_SLOTS // bucket)
        if buckets > _MOST_BUCKETS:
            raise CapacityError(
                f"{keys:,} keys would take {buckets:,} buckets, and a cuckoo table has at most "
                f"{_MOST_BUCKETS:,}; use bucket=8, method 'auto', or several tables"
            )
        return {
            "slots": self._empty_slots(buckets * bucket),
            "stash": self._empty_slots(stash),
            "counts": self.backend.empty(2, np.uint64),
            "buckets": buckets,
            "bucket": bucket,
            "functions": settings["functions"],
            "stash_slots": stash,
            "most_swaps": most_swaps(keys, settings),
            "exclusive": settings["family"] == "xor",
            "many": _EVEN * buckets > _CUCKOO_PRIME,
            **self._drawn(),
        }

    def reset(self) -> None:
        """Implement `Recipe.reset`: nothing was counted, either."""
        super().reset()
        self.fields["counts"].fill(np.uint64(0))

    def emptied(self) -> Self:
        """Implement `Recipe.emptied`: with the first functions, too."""
        made = super().emptied()
        made.replace(**made._drawn())
        return made

    def twin(self) -> Self:
        """Implement `MovingRecipe.twin`."""
        made, backend = copy.copy(self), self.backend
        copied = {}
        for name in ("slots", "stash", "counts", "state"):
            copied[name] = backend.empty(len(self.fields[name]), self.fields[name].dtype)
            copied[name][...] = self.fields[name]
        made.state = copied["state"]
        made.replace(**copied)
        return made

    def _note_erase(self, rows: int) -> None:
        """Record an erase: searches go past EMPTY slots from now on."""
        self.fill()
        self._counted = None
        if not (self.blank or self.fields["holes"]):
            self.replace(holes=1)

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`."""
        fields, counted = self.fields, self.count()
        exchanges, placed = (
            (0, 0) if self.blank else map(int, self.backend.to_host(fields["counts"]))
        )
        return {
            "space": self.slots / counted.occupied if counted.occupied else math.nan,
            "functions": fields["functions"],
            "bucket": fields["bucket"],
            "stash": counted.links,
            "stash_slots": fields["stash_slots"],
            "exchanges": exchanges,
            "exchanges_a_key": exchanges / placed if placed else math.nan,
            "most_exchanges": fields["most_swaps"],
            "stops_early": not fields["holes"],
            "mapping": "one-to-one",
        }

    def _empty_slots(self, slots: int) -> Any:
        key, value = self.plan.key, self.plan.value
        if value is None:
            return self.backend.empty(slots, key)
        return self.backend.empty(slots * key.itemsize // 4, np.uint64)

    def _drawn(self) -> dict[str, Any]:
        """Return the hash functions for this seed, with no key erased."""
        random = np.random.Generator(np.random.MT19937(self.seed))
        return {
            "printed": self.generation < _PRINTED,
            "holes": 0,
            "a": tuple(random.integers(1, _LARGEST_PRIME, _FUNCTIONS).tolist()),
            "b": tuple(random.integers(0, _LARGEST_PRIME, _FUNCTIONS).tolist()),
        }


class CuckooRuns:
    """Multimaps: a table of keys, with values in runs."""

    @classmethod
    def open(
        cls,
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> RunStore:
        """Implement `Opens.open`."""
        return RunStore(Cuckoo, backend, spec, key, capacity)

    check = Cuckoo.check


def most_swaps(keys: int, settings: Mapping[str, Any]) -> int:
    """Return the limit of evictions before a key goes to the stash."""
    points = _MOST_SWAPS[settings["functions"]]
    if settings["bucket"] > 1:
        points = _MOST_SWAPS_OF_BUCKETS
    spaces, factors = zip(*points, strict=True)
    factor = math.exp(np.interp(settings["space"], spaces, np.log(factors)))
    return math.ceil(factor * math.log2(max(keys, _LEAST_SLOTS)))


METHODS = (
    Method(
        name="cuckoo",
        paper="Alcantara",
        section="ch. 6",
        nouns={"set": Cuckoo, "map": Cuckoo, "multimap": CuckooRuns, "ids": Numbered(Cuckoo)},
        settings={
            "functions": Setting(4, choices=(2, 3, 4, 5)),
            "space": Setting(1.25, 1.02, 16.0, size=True),
            "bucket": Setting(1, choices=(1, 8)),
            "family": Setting("multiply", choices=("multiply", "xor")),
            "stash": Setting(101, 0, 4096),
        },
        verbs=VERBS,
        when="many lookups, few changes: a search reads at most `functions` buckets and a stash",
    ),
)
