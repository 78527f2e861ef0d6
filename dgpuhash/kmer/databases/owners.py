"""Assign keys of an index to parts on workers, and deal rows to their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Of a device's memory, that rows for one owner may take.
_DEVICE_SHARE = 0.125


def part_numbers(keys: Any, n: int) -> Any:
    """Return the part, of n, that owns each key, by its hash."""
    return (keys.astype(np.uint64) * _FACTOR >> np.uint64(40)) % np.uint64(n)


def stay_on_device(backend: Backend, nbytes: int) -> bool:
    """Return whether rows of this size travel from device to device.

    Else they wait in the memory of the host, from which they travel slower.
    """
    return nbytes <= backend.memory()[1] * _DEVICE_SHARE


def dealt(
    backend: Backend, n: int, keys: Any, values: Any, *, stay: bool = False
) -> list[tuple[Any, Any]]:
    """Return the keys and values of each of n parts, in row order.

    They are on the host, or where they were if they `stay`.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> keys, values = np.arange(6, dtype=np.uint64), np.arange(0, 60, 10)
    >>> [pairs[1].tolist() for pairs in dealt(backend.get("cpu"), 2, keys, values)]
    [[0, 40, 50], [10, 20, 30]]
    """
    ends, sizes = [len(keys)], [len(keys)]
    if n > 1:
        order, counts = backend.multisplit(part_numbers(keys, n).astype(np.uint32), n)
        keys, values = keys[order], values[order]
        ends, sizes = np.cumsum(counts).tolist(), counts.tolist()
    if not stay:
        keys, values = backend.to_host(keys), backend.to_host(values)
    return [
        (keys[end - size : end], values[end - size : end])
        for end, size in zip(ends, sizes, strict=True)
    ]


def on_device(backend: Backend, array: Any) -> Any:
    """Return an array of dealt rows on the device of their owner."""
    return backend.asarray(array) if hasattr(array, "get") else backend.from_host(array)


# Keys of a sample, of which half go when there are more.
_MOST_KEYS = 2**18
_WORD = np.uint64
# Those of MurmurHash3's finalizer.
_SHIFT, _FACTORS = _WORD(33), (_WORD(0xFF51AFD7ED558CCD), _WORD(0xC4CEB9FE1A85EC53))


class DistinctSample:
    """Sample of the distinct keys whose hashes end in zeros, with their counts.

    A key is in the sample whenever it comes, or never, so that counts are those of all keys. With
    2^17 keys or more, numbers are right within one percent.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> sample = DistinctSample()
    >>> sample.add(backend.get("cpu"), np.array([7, 7, 9], np.uint32))
    >>> sample.found, sample.scale, sample.counts().tolist()
    (3, 1, [2, 1])
    """

    def __init__(self) -> None:
        self.found: int = 0
        """Keys that came, each as often as it did."""
        self._halvings = 0
        self._keys = np.empty(0, _WORD)
        self._counts = np.empty(0, np.int64)
        self._new: list[np.ndarray] = []
        self._n_new = 0

    @property
    def scale(self) -> int:
        """Number of distinct keys per sampled key."""
        return 1 << self._halvings

    def add(self, backend: Backend, keys: Any) -> None:
        """Add keys in an array on a device."""
        self.found += len(keys)
        chosen = keys.astype(_WORD)
        if self._halvings:
            chosen = chosen[self._is_sampled(chosen)]
        self._new.append(backend.to_host(chosen))
        self._n_new += len(chosen)
        if self._n_new > _MOST_KEYS:
            self._settle()

    def _is_sampled(self, keys: Any) -> Any:
        # Their ends: minimizers may have been chosen by how high hashes are.
        return key_hashes(keys) & _WORD(self.scale - 1) == 0

    def join(self, other: DistinctSample) -> None:
        """Add another sample."""
        other._settle()
        self.found += other.found
        self._halvings = max(self._halvings, other._halvings)
        self._settle(other._keys, other._counts)

    def counts(self) -> np.ndarray:
        """Return how often each sampled key occurred (int64)."""
        self._settle()
        return self._counts

    def _settle(self, *more: np.ndarray) -> None:
        keys = np.concatenate([self._keys, *self._new, *more[:1]])
        counts = np.concatenate([self._counts, np.ones(self._n_new, np.int64), *more[1:]])
        self._new, self._n_new = [], 0
        distinct, places = np.unique(keys, return_inverse=True)
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, places, counts)
        while True:
            if self._halvings:
                stays = self._is_sampled(distinct)
                distinct, sums = distinct[stays], sums[stays]
            if len(distinct) <= _MOST_KEYS:
                break
            self._halvings += 1
        self._keys, self._counts = distinct, sums


def key_hashes(keys: Any) -> Any:
    """Return the finalizer of MurmurHash3 of each key (uint64).

    Examples
    --------
    >>> key_hashes(np.array([0, 1], np.uint64)).tolist()
    [0, 12994781566227106604]
    """
    mixed = keys
    for factor in _FACTORS:
        mixed = (mixed ^ mixed >> _SHIFT) * factor
    return mixed ^ mixed >> _SHIFT
