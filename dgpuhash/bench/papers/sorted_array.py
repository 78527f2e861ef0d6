"""Baseline of the thesis: a sorted array and binary search, by the array library's own calls."""

from __future__ import annotations

from typing import Any

from dgpuhash.backend import Backend


class SortedArray:
    """Pairs in the order of their keys; a search is a binary search without an early exit.

    Parameters
    ----------
    backend : Backend
        Its array library sorts, on a GPU by radix sort, and searches.

    Examples
    --------
    >>> import numpy as np
    >>> from dgpuhash import backend
    >>> pairs = SortedArray(backend.get("cpu"))
    >>> pairs.insert(np.array([7, 3], "u4"), np.array([70, 30], "u4"))
    >>> values, found = pairs.find(np.array([3, 5], "u4"))
    >>> found.tolist(), int(values[0])
    ([True, False], 30)
    """

    def __init__(self, backend: Backend) -> None:
        self._xp = backend.xp
        self.clear()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and ends of lists."""
        held = (self._keys, self._values, self._ends)
        return sum(int(each.nbytes) for each in held if each is not None)

    def clear(self) -> None:
        """Drop all pairs."""
        self._keys, self._values, self._ends = self._xp.empty(0, "u4"), None, None

    def insert(self, keys: Any, values: Any) -> None:
        """Sort pairs of distinct keys; they replace those that were there."""
        order = self._xp.argsort(keys)
        self._keys, self._values = keys[order], values[order]

    def find(self, keys: Any) -> tuple[Any, Any]:
        """Return what stands where each key would be, and whether it is the key's value."""
        assert self._values is not None
        places, found = self._places(keys)
        return self._values[places], found

    @classmethod
    def of_distinct(cls, backend: Backend, keys: Any) -> SortedArray:
        """Return the array of the distinct keys; ids are their places in it."""
        made = cls(backend)
        made._keys = made._xp.unique(keys)
        return made

    def ids_of(self, keys: Any) -> tuple[Any, Any]:
        """Return the id of each key, and whether it is there."""
        return self._places(keys)

    def keys_of(self, ids: Any) -> Any:
        """Return the key of each id."""
        return self._keys[ids]

    def group(self, keys: Any, values: Any) -> None:
        """Sort pairs of which some have the same key, and note where each key's values end."""
        xp = self._xp
        order = xp.argsort(keys)
        ordered, self._values = keys[order], values[order]
        self._keys, counts = xp.unique(ordered, return_counts=True)
        self._ends = xp.cumsum(counts)

    def count(self, keys: Any) -> Any:
        """Return each key's number of values."""
        assert self._ends is not None
        places, found = self._places(keys)
        starts = self._xp.where(places > 0, self._ends[places - 1], 0)
        return self._xp.where(found, self._ends[places] - starts, 0)

    def _places(self, keys: Any) -> tuple[Any, Any]:
        places = self._xp.searchsorted(self._keys, keys)
        places = self._xp.minimum(places, len(self._keys) - 1)
        return places, self._keys[places] == keys
