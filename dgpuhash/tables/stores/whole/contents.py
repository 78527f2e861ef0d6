"""Read a whole table of a method: keys, values, numbers and probe lengths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, Kernel
from dgpuhash.tables.stores.plan import Plan

# Places that one tile counts, and whose keys it writes.
_SEGMENT = {"cpu": 4096, "cuda": 512}
# Offsets of what a table's state has of the two reserved keys, and its words.
SIDE_PRESENT, SIDE_VALUE, STATE_WORDS = 4, 6, 8


class RecipeContents(ABC):
    """Mixin of `Recipe` for reading the whole table."""

    backend: Backend
    plan: Plan
    state: Any
    storage: Any

    @property
    @abstractmethod
    def places(self) -> int:
        """Number of places that may have a key, as C++'s `places()`."""

    @abstractmethod
    def kernel(self, verb: str) -> Kernel:
        """Return the kernel of a verb."""

    @abstractmethod
    def fill(self) -> None:
        """Initialize the arrays of an empty table, unless done."""

    def items(self) -> tuple[Any, Any]:
        """Return key words and value words (None for sets), reserved keys last."""
        keys, values, regular = self._items(2)
        keys, aside = self._with_aside(keys, regular)
        if values is not None:
            values = values[: len(keys)]
            if len(aside):
                beside = self._host_state()[SIDE_VALUE:][aside].astype(values.dtype)
                values[regular:] = self.backend.from_host(beside)
        return keys, values

    def number(self) -> Any:
        """Set each key's value to its number, from 0 on; return the keys by number.

        The numbers follow the places, reserved keys last.
        """
        keys, _, regular = self._items(2, "number")
        keys, aside = self._with_aside(keys, regular)
        numbers = np.full(STATE_WORDS - SIDE_VALUE, 2**64 - 1, np.uint64)
        numbers[aside] = np.arange(regular, len(keys), dtype=np.uint64)
        self.state[SIDE_VALUE:] = self.backend.from_host(numbers)
        return keys

    def probes(self, keys: Any, counts: Any = None) -> int:
        """Return the units read by all searches together; write each one's (uint32)."""
        total = self.backend.zeros(1, np.uint64)
        self.fill()
        self.backend.run(
            self.kernel("probes"), len(keys), table=self.storage, keys=keys, total=total,
            counts=counts,
        )  # fmt: skip
        return int(total[0])

    def _with_aside(self, keys: Any, regular: int) -> tuple[Any, np.ndarray]:
        """Return the `regular` keys and the reserved ones, and a mask of the latter."""
        aside = np.flatnonzero(self._host_state()[SIDE_PRESENT:SIDE_VALUE])
        keys, dtype = keys[: regular + len(aside)], self.plan.key
        if len(aside):
            marks = dtype.type(np.iinfo(dtype).max) - aside.astype(dtype)
            keys[regular:] = self.backend.from_host(marks)
        return keys, aside

    def _items(self, beside: int, verb: str = "items") -> tuple[Any, Any, int]:
        """Return the stored keys and values with spare room at the end, and their number.

        `verb` is what writes them.
        """
        self.fill()
        backend, plan, places = self.backend, self.plan, self.places
        rows = _SEGMENT[backend.name]
        segments = -(-places // rows)
        counts = backend.empty(segments, np.uint32)
        run = {"table": self.storage, "rows": places, "segment_rows": rows}
        backend.run(self.kernel("places"), segments, counts=counts, **run)
        ends = backend.zeros(segments + 1, np.uint64)
        ends[1:] = backend.xp.cumsum(counts, dtype=np.uint64)
        stored = int(ends[-1])
        keys = backend.empty(stored + beside, plan.key)
        values = None if plan.value is None else backend.empty(stored + beside, plan.value)
        backend.run(self.kernel(verb), segments, offsets=ends, keys=keys, values=values, **run)
        return keys, values, stored

    def _host_state(self) -> np.ndarray:
        self.fill()
        return self.backend.to_host(self.state)
