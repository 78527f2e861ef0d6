"""Recipe of the toy."""

from __future__ import annotations

import math
from typing import Any

from dgpuhash.tables.stores.method import VERBS, Method, Setting
from dgpuhash.tables.stores.recipe import Recipe

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
        plan, settings = self.plan, self.plan.settings
        slots = math.ceil(keys * settings["space"])
        return {
            "keys": self.backend.empty(slots, plan.key),
            "values": None if plan.value is None else self.backend.empty(slots, plan.value),
            "slots": slots,
            "bound": settings["bound"],
        }

    def figures(self) -> dict[str, Any]:
        return {"space": self.slots / self.keys}


def _row(name: str, bound: int) -> Method:
    return Method(
        name=name,
        paper="none",
        section="",
        nouns={"set": Toy, "map": Toy},
        settings={"space": Setting(1.6, 1.05, 4.0, size=True), "bound": Setting(bound, 1, 64)},
        verbs=tuple({*VERBS, "combine"}),
        when="a test is to see a method",
    )


METHODS = (_row("toy", 16), _row("toy_that_refuses", 3))
