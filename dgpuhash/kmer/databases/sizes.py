"""Bytes of an index, of its build and of its file, by what it has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend.constants import overflow_bits
from dgpuhash.kmer.databases.distinct import DistinctSample
from dgpuhash.tables.open_addressing.extent import Extent, slot_nbytes
from dgpuhash.tables.open_addressing.rehash import LoadFactor
from dgpuhash.typing import Device

_WORD, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)
# Of a map of minimizers; `HashMap` has it by default.
_MINIMIZER_LOAD = 0.9
# A file has the slots of a map as they are, unless more of them are free: then minimizers alone.
_LEAST_LOAD, _MINIMIZER_NBYTES = 0.4, 12
# What batches of letters take, as it was measured on a CPU.
_SKETCHED_NBYTES = {"cpu": 100 * 10**6, "cuda": 2**31}
_MINIMIZED_NBYTES = {"cpu": 70 * 10**6, "cuda": 2**31}


class Contents(NamedTuple):
    """What an index has.

    Attributes
    ----------
    found : int
        Features or minimizers that come, each as often as it does.
    distinct : int
        Of them that are stored.
    stored : int
        Locations that are stored, no more of a feature than the cap.
    lists : int
        Features with two or more of them.
    listed : int
        Locations of these.

    Examples
    --------
    >>> Contents.of_all(1000).distinct
    1000
    """

    found: int
    distinct: int
    stored: int
    lists: int = 0
    listed: int = 0

    @classmethod
    def of_all(cls, found: int, share: float = 1.0) -> Contents:
        """Return what an index has if this share of all that comes is distinct."""
        distinct = round(found * share)
        # Of those that come again, most come twice.
        again = min(found - distinct, distinct)
        return cls(found, distinct, found, again, found - distinct + again)

    @classmethod
    def of(cls, sample: DistinctSample, cap: int = 0, *, drops: bool = False) -> Contents:
        """Return what an index has of keys that were sampled."""
        counts, scale = sample.counts(), sample.scale
        if drops:
            counts = counts[counts < cap]
        kept = np.minimum(counts, cap) if cap else counts
        lists = kept[kept > 1]
        found = [len(kept), int(kept.sum()), len(lists), int(lists.sum())]
        return cls(sample.found, *(each * scale for each in found))


class Sizes(NamedTuple):
    """Bytes.

    Attributes
    ----------
    held : int
        In memory, of the index.
    build : int
        The most at a time while it is built, the index included.
    file : int
    beside : int
        Of `build`: what each process takes that builds a part.
    """

    held: int
    build: int
    file: int
    beside: int


def table_nbytes(key: np.dtype[Any], value: np.dtype[Any], keys: int, load: float) -> int:
    """Return the bytes of a table with room for so many keys, and 32 or 64 bits beside each."""
    extent = Extent.of(key, value, LoadFactor(load).slots(keys))
    beside = extent.buckets * overflow_bits(slot_nbytes(key, value)) // 8
    return extent.slots * (key.itemsize + value.itemsize) + beside


def sketch_sizes(
    feature: np.dtype[Any], has: Contents, device: Device, *, load: float, held: int
) -> Sizes:
    """Return the bytes of an index of sketches.

    Parameters
    ----------
    feature : dtype
    has : Contents
    device : {"cpu", "cuda"}
    load : float
        Load factor of its table.
    held : int
        Bytes of features and locations that a build holds at most.
    """
    index = table_nbytes(feature, _WORD, has.distinct, load) + 8 * has.listed + 4 * has.lists
    pairs = has.found * (feature.itemsize + 8)
    beside = min(pairs, held) + _SKETCHED_NBYTES[device]
    file = has.distinct * (feature.itemsize + 8) + 8 * has.stored
    return Sizes(index, index + beside, file, beside)


def minimizer_sizes(has: Contents, device: Device, *, built_for: int) -> Sizes:
    """Return the bytes of an index of minimizers.

    Parameters
    ----------
    has : Contents
    device : {"cpu", "cuda"}
    built_for : int
        Minimizers for which a build makes room at first.
    """
    index = build = table_nbytes(_WORD, _NODE, built_for, _MINIMIZER_LOAD)
    if has.distinct > built_for:
        # Both tables are there while the second one is filled.
        index = table_nbytes(_WORD, _NODE, max(2 * built_for, has.distinct), _MINIMIZER_LOAD)
        build += index
    beside = _MINIMIZED_NBYTES[device]
    alone = has.distinct * _MINIMIZER_NBYTES
    return Sizes(index, build + beside, index if alone > _LEAST_LOAD * index else alone, beside)
