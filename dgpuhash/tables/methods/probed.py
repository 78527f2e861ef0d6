"""Methods ``linear``, ``quadratic`` and ``double``: open addressing with the thesis' probing.

Settings: ``space``, slots for each key, and ``family``, how the hash function works,
``"multiply"`` or ``"xor"``.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash.errors import CapacityError
from dgpuhash.tables.stores.method import VERBS, Method, Setting
from dgpuhash.tables.stores.recipe import Recipe

# As in kernels/core/hash_family.cuh.
_PRIME = 4_294_967_291
# Beyond these the prime is not so much larger that it spreads keys evenly.
_MOST_SLOTS = 2**30
_LEAST_SLOTS = 64
# Probes before a key is refused, as the thesis has it.
_MOST_PROBES = 10_000
# Generations in which keys of 4 bytes are hashed as the thesis prints it.
_PRINTED = 2


class Probed(Recipe):
    """Base of the three methods: slots with a key and its value."""

    unit = "probes"
    steps: ClassVar[str]
    """C++ type of the steps from slot to slot."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Probed<{self.types},dg::{self.steps}>"

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        slots: int = self.fields["slot_count"]
        return slots

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`.

        Raises
        ------
        CapacityError
            When there would be more slots than hashes of 32 bits spread keys over.
        """
        slots = max(math.ceil(self.plan.settings["space"] * keys), _LEAST_SLOTS)
        if slots > _MOST_SLOTS:
            raise CapacityError(
                f"{keys:,} keys would take {slots:,} slots, and a table of this method has at most "
                f"{_MOST_SLOTS:,}; use a smaller space=, method 'auto', or several tables"
            )
        words = 1 if self.plan.value is None else 2
        return {
            "slots": self.backend.empty(slots * words, self.plan.key),
            "slot_count": slots,
            "most_probes": min(keys, _MOST_PROBES),
            "exclusive": int(self.plan.settings["family"] == "xor"),
            **self._drawn(),
        }

    def emptied(self) -> Self:
        """Implement `Recipe.emptied`: with the first function, too."""
        made = super().emptied()
        made.replace(**made._drawn())
        return made

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`."""
        occupied = self.count().occupied
        return {
            "space": self.slots / occupied if occupied else math.nan,
            "most_probes": self.fields["most_probes"],
            "family": self.plan.settings["family"],
            "mapping": "one-to-one",
        }

    def _drawn(self) -> dict[str, Any]:
        """Return the hash function for this seed."""
        random = np.random.Generator(np.random.MT19937(self.seed))
        a, b = int(random.integers(1, _PRIME)), int(random.integers(0, _PRIME))
        return {"function": {"a": a, "b": b}, "printed": int(self.generation < _PRINTED)}


class Linear(Probed):
    """Linear probing: the next slot each time."""

    steps = "LinearSteps"


class Quadratic(Probed):
    """Quadratic probing: 1, 4, 9, … slots from the first one."""

    steps = "QuadraticSteps"


class DoubleHashing(Probed):
    """Double hashing: steps of a second hash of the key."""

    steps = "DoubleSteps"


def _row(name: str, recipe: type[Probed], when: str) -> Method:
    return Method(
        name=name,
        paper="Alcantara",
        section="ch. 3",
        nouns={"set": recipe, "map": recipe},
        settings={
            "space": Setting(1.25, 1.02, 16.0, size=True),
            "family": Setting("multiply", choices=("multiply", "xor")),
        },
        verbs=(*VERBS,),
        when=when,
    )


METHODS = (
    _row("linear", Linear, "comparison; much space, where neighbouring slots share lines"),
    _row("quadratic", Quadratic, "comparison; the thesis' fastest open addressing"),
    _row("double", DoubleHashing, "comparison; the fewest probes of full tables"),
)
