"""The tables to measure, by the bits of their keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.keys import values_of
from dgpuhash.errors import SpecError
from dgpuhash.tables import HashMap, HashSet

__all__ = ["MAPS", "NAMES", "Pairs"]

MAPS = ("32/32", "64/64", "32/64", "64/32")
NAMES = (*MAPS, "set32", "set64")


@dataclass(frozen=True, slots=True)
class Pairs:
    """A set, or a map, of unsigned integers; verbs that are spelled the same for both.

    Attributes
    ----------
    name : str
        Such as ``"32/64"``: 32 bits of key, 64 of value; or ``"set32"``.
    key, value : dtype
        `value` is None for sets.

    Examples
    --------
    >>> Pairs.of("32/64").row_bytes
    12
    """

    name: str
    key: np.dtype[Any]
    value: np.dtype[Any] | None

    @classmethod
    def of(cls, name: str) -> Pairs:
        """What one of `NAMES` says.

        Raises
        ------
        SpecError
            When it is none of them.
        """
        if name not in NAMES:
            raise SpecError(f"dtypes {name!r}; use {', '.join(NAMES)} (bits of key/value)")
        if name.startswith("set"):
            return cls(name, np.dtype(f"u{int(name[3:]) // 8}"), None)
        key, value = (np.dtype(f"u{int(bits) // 8}") for bits in name.split("/"))
        return cls(name, key, value)

    @property
    def row_bytes(self) -> int:
        """Bytes of a key and its value: the payload."""
        return self.key.itemsize + (0 if self.value is None else self.value.itemsize)

    @property
    def floor_bits(self) -> int:
        """The wider of key and value: what a floor is measured with."""
        return 8 * max(self.key.itemsize, 0 if self.value is None else self.value.itemsize)

    def values(self, keys: Any) -> Any:
        """The value of each key; None for sets."""
        return None if self.value is None else values_of(keys, self.value)

    def table(self, backend: Backend, capacity: int, load: float) -> HashMap | HashSet:
        """An empty table with room for `capacity` keys at that load."""
        if self.value is None:
            return HashSet(self.key, capacity, max_load=load, device=backend.name)
        return HashMap(self.key, self.value, capacity, max_load=load, device=backend.name)

    def build(self, keys: Any, values: Any, load: float) -> HashMap | HashSet:
        """A table of a batch, which alone says how large it has to be."""
        if self.value is None:
            return HashSet.from_keys(keys, max_load=load)
        return HashMap.from_arrays(keys, values, max_load=load)

    def insert(self, table: Any, keys: Any, values: Any) -> Any:
        """Which rows were new."""
        return table.insert(keys) if self.value is None else table.insert(keys, values)

    def find(self, table: Any, keys: Any) -> tuple[Any, Any]:
        """Values, None for sets, and which keys were found."""
        return (None, table.contains(keys)) if self.value is None else table.find(keys)
