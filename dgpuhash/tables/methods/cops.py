"""Method ``cops``: WarpCore's cooperative probing.

Settings: ``load``, keys (of multimaps, pairs) for each slot before a table grows; ``width``, the
lanes of a GPU that look for a key together, 0 for the fastest, which are 4, or 8 in multimaps;
``layout``, where values stand: in one word with their keys, beside them, or in an
array of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.tables.stores.list_recipe import ListRecipe
from dgpuhash.tables.stores.method import VERBS, Method, Setting
from dgpuhash.tables.stores.recipe import Recipe
from dgpuhash.tables.stores.whole.ids import Numbered

# Slots of a window, as in probe/cops.cuh.
_WINDOW = 32
# Verbs whose tiles look for keys.
_BY_TILES = frozenset(("insert", "find", "erase", "append", "count", "gather"))


class Windows(Recipe):
    """Prime number of windows of 32 slots, with pairs in the chosen layout."""

    unit = "windows"
    best_width: ClassVar[int] = 4
    """Lanes of a tile unless the user chooses; docs/decisions/038-cops.md has the figures."""

    @classmethod
    def check(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None, settings: Mapping[str, Any]
    ) -> None:
        """Implement `Recipe.check`."""
        nbytes = cls.words(key, value)[0].itemsize
        if value is not None and settings["layout"] == "packed" and nbytes == 8:
            raise SpecError(
                "layout='packed' with keys or values of 8 bytes: one word has room for 4 and 4; "
                "use layout='aos'"
            )

    @property
    def layout(self) -> str:
        """Name of the layout; sets always have ``"soa"``."""
        plan = self.plan
        chosen: str = "soa" if plan.value is None else plan.settings["layout"]
        if chosen != "auto":
            return chosen
        return "packed" if plan.key.itemsize == 4 else "aos"

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        windows: int = self.fields["windows"]
        return windows * _WINDOW

    @property
    def whole_pairs(self) -> bool:
        """Implement `Recipe.whole_pairs`: elsewhere the key is there before its value."""
        in_one_swap = self.backend.swaps_pairs and self.plan.key.itemsize == 8
        return self.plan.value is None or self.layout == ("aos" if in_one_swap else "packed")

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`."""
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
        """Implement `Recipe.width`: tiles that look for keys have the chosen width."""
        return self.chosen_width if verb in _BY_TILES else None

    @property
    def chosen_width(self) -> int:
        """Lanes of the tile that looks up a key."""
        chosen: int = self.plan.settings["width"]
        return chosen or self.best_width

    def certain(self, rows: int) -> bool:
        """Implement `Recipe.certain`: a search that finds no place has read every window."""
        return True

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`."""
        width = self.chosen_width
        return {
            "windows": self.fields["windows"],
            "slots": self.slots,
            "layout": self.layout,
            "width": width,
            "mapping": "one-to-one" if width == 1 else "many-to-one",
        }


class Cops(Windows):
    """Sets and maps with one slot a key."""

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::Cops<{self.types},dg::Layout::{self.layout}>"


class CopsLists(Windows, ListRecipe):
    """Multimaps with one slot a value, each with the key."""

    best_width = 8

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::CopsLists<{self.types},dg::Layout::{self.layout}>"


def _prime_from(number: int) -> int:
    """Return the smallest prime at or above a number."""
    made = max(number, 2)
    while any(made % part == 0 for part in range(2, math.isqrt(made) + 1)):
        made += 1
    return made


METHODS = (
    Method(
        name="cops",
        paper="WarpCore",
        section="§IV-B",
        nouns={"set": Cops, "map": Cops, "multimap": CopsLists, "ids": Numbered(Cops)},
        settings={
            "load": Setting(0.8, 0.05, 0.98, size=True),
            "width": Setting(0, choices=(0, 1, 2, 4, 8, 16, 32)),
            "layout": Setting("auto", choices=("auto", "packed", "aos", "soa")),
        },
        verbs=(*VERBS, "combine"),
        ordered=False,
        when="comparison with WarpCore; a chosen width or layout",
    ),
)
