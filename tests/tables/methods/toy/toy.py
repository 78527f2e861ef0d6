"""Recipe of the toy."""

from __future__ import annotations

import math
from typing import Any

from dgpuhash.tables.methods.method import VERBS, Method, Setting
from dgpuhash.tables.methods.recipe import Recipe

__all__ = ["METHODS"]


class Toy(Recipe):
    """A table of two arrays."""

    unit = "slots"

    @property
    def table(self) -> str:
        return f"dg::Toy<{self.types}>"

    @property
    def slots(self) -> int:
        slots: int = self.fields["slots"]
        return slots

    def allocate(self, keys: int) -> dict[str, Any]:
        plan, slots = self.plan, math.ceil(keys * self.plan.settings["space"])
        values = None if plan.value is None else self.backend.empty(slots, plan.value)
        return {"keys": self.backend.empty(slots, plan.key), "values": values, "slots": slots}

    def figures(self) -> dict[str, Any]:
        return {"space": self.slots / self.keys}


METHODS = (
    Method(
        name="toy",
        paper="none",
        section="",
        nouns={"set": Toy, "map": Toy},
        settings={"space": Setting(1.6, 1.05, 4.0, size=True)},
        verbs=(*VERBS, "combine"),
        when="a test is to see a method",
    ),
)
