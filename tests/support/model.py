"""Dictionaries that define the correct answers of the tables.

Keys and values are NumPy arrays; inside, a key is its canonical bytes and a value its bytes, so
that NaN, NaT, -0.0 and padded records compare as the tables promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["MapModel", "MultiMapModel", "SetModel", "key_of", "keys_of", "rows_of"]


def key_of(key: Any) -> bytes:
    """Return the identity of a key: -0.0 is 0.0, and all NaNs are one."""
    scalar = np.asarray(key)
    if scalar.dtype.kind == "f":
        if np.isnan(scalar):
            return b"nan"
        if scalar == 0:
            scalar = np.zeros((), scalar.dtype)
    return scalar.tobytes()


def keys_of(keys: Any) -> list[bytes]:
    """Return `key_of` of every element."""
    return [key_of(key) for key in np.asarray(keys)]


def rows_of(values: Any) -> list[bytes]:
    """Return the bytes of every element."""
    flat = np.ascontiguousarray(values)
    raw, width = flat.tobytes(), flat.dtype.itemsize
    return [raw[start : start + width] for start in range(0, len(raw), width)]


class SetModel:
    """Model of a set of keys."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.keys)

    def insert(self, keys: Any) -> list[bool]:
        """Add keys; return a mask of the first row of each new key."""
        fresh = []
        for key in keys_of(keys):
            fresh.append(key not in self.keys)
            self.keys.add(key)
        return fresh

    def erase(self, keys: Any) -> list[bool]:
        """Remove keys; return a mask of the first row of each stored key."""
        gone = []
        for key in keys_of(keys):
            gone.append(key in self.keys)
            self.keys.discard(key)
        return gone

    def contains(self, keys: Any) -> list[bool]:
        """Return whether each key is stored."""
        return [key in self.keys for key in keys_of(keys)]


class MapModel:
    """Model of a map with one value for each key."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self.pairs)

    def insert(self, keys: Any, values: Any, keep: str = "first") -> list[bool]:
        """Add pairs of new keys; return a mask of the rows that were stored.

        The first or the last row of a key is stored, as `keep` says.
        """
        rows = list(zip(keys_of(keys), rows_of(values), strict=True))
        chosen: dict[bytes, int] = {}
        for number, (key, _) in enumerate(rows):
            if key not in self.pairs and (keep == "last" or key not in chosen):
                chosen[key] = number
        for key, number in chosen.items():
            self.pairs[key] = rows[number][1]
        return [chosen.get(key) == number for number, (key, _) in enumerate(rows)]

    def candidates(self, keys: Any, values: Any) -> dict[bytes, set[bytes]]:
        """Return the values of each new key that `keep='any'` may choose from."""
        found: dict[bytes, set[bytes]] = {}
        for key, value in zip(keys_of(keys), rows_of(values), strict=True):
            if key not in self.pairs:
                found.setdefault(key, set()).add(value)
        return found

    def upsert(self, keys: Any, values: Any) -> None:
        """Store pairs; the last row of a key counts."""
        self.pairs.update(zip(keys_of(keys), rows_of(values), strict=True))

    def erase(self, keys: Any) -> list[bool]:
        """Remove keys; return a mask of the first row of each stored key."""
        return [self.pairs.pop(key, None) is not None for key in keys_of(keys)]

    def contains(self, keys: Any) -> list[bool]:
        """Return whether each key is stored."""
        return [key in self.pairs for key in keys_of(keys)]

    def find(self, keys: Any, default: bytes) -> list[bytes]:
        """Return the value of each key, `default` where it is absent."""
        return [self.pairs.get(key, default) for key in keys_of(keys)]


class MultiMapModel:
    """Model of a multimap: a list of values a key, in insertion order."""

    def __init__(self) -> None:
        self.lists: dict[bytes, list[bytes]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.lists.values()))

    def insert(self, keys: Any, values: Any) -> None:
        """Append each value to its key's list."""
        for key, value in zip(keys_of(keys), rows_of(values), strict=True):
            self.lists.setdefault(key, []).append(value)

    def erase(self, keys: Any) -> list[bool]:
        """Remove keys with all values; return a mask like `MapModel.erase`."""
        return [self.lists.pop(key, None) is not None for key in keys_of(keys)]

    def contains(self, keys: Any) -> list[bool]:
        """Return whether each key is stored."""
        return [key in self.lists for key in keys_of(keys)]

    def count(self, keys: Any) -> list[int]:
        """Return the number of values of each key."""
        return [len(self.lists.get(key, ())) for key in keys_of(keys)]

    def find(self, keys: Any) -> tuple[list[bytes], list[int]]:
        """Return the keys' values in query order, and the offset of each key."""
        values: list[bytes] = []
        offsets = [0]
        for key in keys_of(keys):
            values += self.lists.get(key, [])
            offsets.append(len(values))
        return values, offsets

    def pairs(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all pairs, in no particular order between keys."""
        return ((key, value) for key, values in self.lists.items() for value in values)
