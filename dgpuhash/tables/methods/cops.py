"""Method ``cops``: WarpCore's cooperative probing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.tables.methods.method import VERBS, Method, Setting
from dgpuhash.tables.methods.recipe import Recipe

__all__ = ["METHODS"]

# Slots of a window, as in probe/cops.cuh.
_WINDOW = 32
_LAYOUTS = {("packed", 4): "packed", ("auto", 4): "packed", ("auto", 8): "aos"}


class Cops(Recipe):
    """A prime number of windows of 32 slots each, in which pairs stand as the layout says."""

    unit = "windows"

    @property
    def layout(self) -> str:
        """Name of the layout: of a set, keys alone; ``"auto"`` is one word where a pair fits in it."""
        plan = self.plan
        chosen: str = plan.settings["layout"]
        if plan.value is None:
            return "soa"
        if chosen in ("aos", "soa"):
            return chosen
        if (chosen, plan.key.itemsize) not in _LAYOUTS:
            raise SpecError(
                f"layout={chosen!r} with words of {plan.key.itemsize} bytes: a pair of 4 and 4 bytes "
                f"fits in one word; use layout='aos'"
            )
        return _LAYOUTS[chosen, plan.key.itemsize]

    @property
    def table(self) -> str:
        """See `Recipe`."""
        return f"dg::Cops<{self.types},dg::Layout::{self.layout}>"

    @property
    def slots(self) -> int:
        """See `Recipe`."""
        windows: int = self.fields["windows"]
        return windows * _WINDOW

    @property
    def whole_pairs(self) -> bool:
        """See `Recipe`: elsewhere the key is there before its value."""
        in_one_swap = self.backend.swaps_pairs and self.plan.key.itemsize == 8
        return self.plan.value is None or self.layout == ("aos" if in_one_swap else "packed")

    def allocate(self, keys: int) -> dict[str, Any]:
        """See `Recipe`."""
        plan, backend = self.plan, self.backend
        windows = _prime_from(math.ceil(keys / plan.settings["load"] / _WINDOW))
        slots, values = windows * _WINDOW, None
        if self.layout == "packed":
            pairs = backend.empty(slots, np.uint64)
        elif self.layout == "aos":
            pairs = backend.empty(2 * slots, plan.key)
        else:
            pairs = backend.empty(slots, plan.key)
            values = None if plan.value is None else backend.empty(slots, plan.value)
        return {"keys": pairs, "values": values, "windows": windows}

    def width(self, verb: str) -> int | None:
        """See `Recipe`: tiles that look for keys have the chosen width."""
        chosen: int = self.plan.settings["width"]
        return chosen if verb in ("insert", "find", "erase") else None

    def certain(self, rows: int) -> bool:
        """See `Recipe`: a search that finds no place has read every window."""
        return True

    def figures(self) -> dict[str, Any]:
        """See `Recipe`."""
        width = self.plan.settings["width"]
        return {
            "windows": self.fields["windows"],
            "layout": self.layout,
            "mapping": "one-to-one" if width == 1 else "many-to-one",
        }


def _prime_from(number: int) -> int:
    """Return the least prime that is not below a number."""
    made = max(number, 2)
    while any(made % part == 0 for part in range(2, math.isqrt(made) + 1)):
        made += 1
    return made


METHODS = (
    Method(
        name="cops",
        paper="WarpCore",
        section="§IV-B",
        nouns={"set": Cops, "map": Cops},
        settings={
            "load": Setting(0.8, 0.05, 0.98, size=True),
            "width": Setting(4, choices=(1, 2, 4, 8, 16, 32)),
            "layout": Setting("auto", choices=("auto", "packed", "aos", "soa")),
        },
        verbs=(*VERBS, "combine"),
        when="comparison with WarpCore; a chosen width or layout",
    ),
)
