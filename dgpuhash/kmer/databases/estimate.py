"""Estimate the size of an index, and check it against the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.constants import overflow_bits
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.kmer.databases.owners import DistinctSample
from dgpuhash.kmer.databases.taxon_words import (
    WHOLE_KEY_NBYTES,
    WORD_BITS,
    WordLayout,
    usual_taxa,
    why_whole_keys,
)
from dgpuhash.tables.open_addressing.extent import Extent, slot_nbytes
from dgpuhash.tables.open_addressing.slots import LoadFactor
from dgpuhash.typing import Device

# How far the truth may be: after a pass over all letters, or from the files' sizes.
_SURE, _QUICK = 0.15, 0.40
_MOST_WORKERS = 4096
_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Memory:
    """Memory available to an index.

    Attributes
    ----------
    nbytes : int
        Free bytes of the device, or of each worker.
    device : {"cpu", "cuda"}
    workers : int
        Of a cluster; 0: this process.
    mode : str
        Where the index is then, as for `SketchIndex.build`.

    Examples
    --------
    >>> Memory(2**30, "cpu", 4, "distributed").share(2**31, 2**30)
    1342177280
    """

    nbytes: int
    device: Device
    workers: int = 0
    mode: str = ""

    @classmethod
    def of(cls, backend: Backend) -> Memory:
        """Return the memory of a device, for this process."""
        free = backend.memory()[0]
        if backend.name == "cpu" and _LIMIT.exists():
            limit = _LIMIT.read_text().strip()
            free = min(free, int(limit)) if limit.isdecimal() else free
        return cls(free, backend.name)

    def share(self, nbytes: int, beside: int = 0) -> int:
        """Return the bytes of an index that fall to one worker, or to this process.

        `beside` of them each one takes.
        """
        if self.workers and self.mode != "replicated":
            return -(-(nbytes - beside) // self.workers) + beside
        return nbytes

    def fits(self, sizes: Sizes) -> bool:
        """Return whether a build fits."""
        return self.share(sizes.build, sizes.beside) <= self.nbytes


@dataclass(frozen=True)
class Estimate:
    """Estimated size of an index and of its build.

    Attributes
    ----------
    rule : str
    letters : int
        Of the references.
    distinct : int
        Features or minimizers.
    stored : int
        Locations of features; of minimizers their number.
    nbytes, build_nbytes, file_nbytes : int
        Of the index, of memory while it is built, and of its file.
    beside_nbytes : int
        Of `build_nbytes`: what each worker of a cluster takes, however many there are.
    memory : Memory
    error : float
        How far numbers may be from the truth: 0.15, or 0.4 from the files' sizes alone.
    remedies : list of str
        What would make it fit.
    whole_keys_nbytes : int
        Of the index by the rule of Kraken 2 if it had minimizers as whole keys, as it has where
        words of eight bytes have no bits for them.

    Examples
    --------
    >>> memory = Memory(2**20, "cpu")
    >>> Estimate("kraken2", 10, 3, 3, 100, 200, 30, 50, memory, 0.15).fits
    True
    """

    rule: str
    letters: int
    distinct: int
    stored: int
    nbytes: int
    build_nbytes: int
    file_nbytes: int
    beside_nbytes: int
    memory: Memory
    error: float
    remedies: list[str] = field(default_factory=list)
    whole_keys_nbytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the memory suffices for the build."""
        return self.nbytes_each <= self.memory.nbytes

    @property
    def nbytes_each(self) -> int:
        """Bytes that each worker, or this process, needs during the build."""
        return self.memory.share(self.build_nbytes, self.beside_nbytes)

    def lines(self) -> Iterator[str]:
        """Yield names, tabs and values, as `dgpuhash kmer estimate` prints them."""
        memory = self.memory
        yield f"rule\t{self.rule}"
        yield f"letters\t{self.letters}"
        if self.rule == "kraken2":
            yield f"minimizers\t{self.distinct}"
        else:
            yield f"features\t{self.distinct}"
            yield f"locations\t{self.stored}"
        yield f"nbytes\t{self.nbytes}"
        if self.rule == "kraken2":
            yield f"whole_keys_nbytes\t{self.whole_keys_nbytes}"
        yield f"build_nbytes\t{self.build_nbytes}"
        yield f"file_nbytes\t{self.file_nbytes}"
        yield f"within\t{self.error:.0%}"
        if memory.workers:
            yield f"workers\t{memory.workers}"
            yield f"mode\t{memory.mode}"
            yield f"build_nbytes_per_worker\t{self.nbytes_each}"
        yield f"memory\t{memory.nbytes}"
        yield f"fits\t{str(self.fits).lower()}"
        yield from (f"remedy\t{each}" for each in self.remedies)


def estimate(
    rule: str,
    letters: int,
    memory: Memory,
    of: Callable[..., tuple[int, int, Sizes]],
    *,
    is_quick: bool,
    choices: Mapping[str, list[Any]],
) -> Estimate:
    """Return the estimate of an index.

    Parameters
    ----------
    rule : str
    letters : int
    memory : Memory
    of : callable
        Returns distinct and stored features or minimizers and sizes; of other settings where some
        are passed.
    is_quick : bool
        Whether files were not read.
    choices : mapping
        By a setting's name, other settings that make an index smaller, the first ones least so.
    """
    distinct, stored, sizes = of()
    *_, beside, whole = sizes
    made = Estimate(
        rule, letters, distinct, stored, sizes.held, sizes.build, sizes.file, beside, memory,
        _QUICK if is_quick else _SURE, [], whole,
    )  # fmt: skip
    if not made.fits:
        made.remedies.extend(_remedies(memory, sizes, of, choices))
    return made


def _remedies(
    memory: Memory,
    sizes: Sizes,
    of: Callable[..., tuple[int, int, Sizes]],
    choices: Mapping[str, list[Any]],
) -> Iterator[str]:
    if memory.workers and replace(memory, mode="distributed").fits(sizes):
        yield "mode=distributed"
    room = memory.nbytes - sizes.beside
    needed = math.ceil((sizes.build - sizes.beside) / room) if room > 0 else 0
    if memory.workers < needed <= _MOST_WORKERS:
        yield f"{needed:,} workers of that memory and mode=distributed"
    for name, others in choices.items():
        for settings in others:
            if memory.fits(of(settings)[2]):
                yield f"{name}={getattr(settings, name)}"
                break
    if memory.device == "cuda":
        yield "device=cpu, if the host has the memory"


def check_fits(bound: Sizes, memory: Memory, sampled: Callable[[], Estimate]) -> None:
    """Raise OutOfMemoryError if a build does not fit.

    Parameters
    ----------
    bound : Sizes
        What it takes at most.
    memory : Memory
    sampled : callable
        Returns an estimate after a pass over the letters, which is made where the bound is above
        the memory.

    Raises
    ------
    OutOfMemoryError
        Says what would fit.
    """
    if memory.fits(bound):
        return
    made = sampled()
    if made.nbytes_each * (1 - _SURE) > memory.nbytes:
        where = f"each of {memory.workers} workers has" if memory.workers else "there are"
        would = "; or ".join(made.remedies)
        raise OutOfMemoryError(
            f"the index takes about {made.nbytes_each:,} bytes while it is built, and {where} "
            f"{memory.nbytes:,}; use {would or 'fewer references'}"
        )


_WORD, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)
# Of a map of minimizers; `HashMap` has it by default.
_MINIMIZER_LOAD = 0.9
# A file has the slots of a map as they are, unless more of them are free: then minimizers alone.
_LEAST_LOAD = 0.4
# As `TaxonMap` grows.
_WORDS_GROWTH = 1.5
# What batches of letters take, as it was measured on a CPU.
_SKETCHED_NBYTES = {"cpu": 100 * 10**6, "cuda": 2**31}
_MINIMIZED_NBYTES = {"cpu": 70 * 10**6, "cuda": 2**31}


class Contents(NamedTuple):
    """Estimated numbers of an index's distinct and stored keys.

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
        """Return the contents for a given share of distinct keys."""
        distinct = round(found * share)
        # Of those that come again, most come twice.
        again = min(found - distinct, distinct)
        return cls(found, distinct, found, again, found - distinct + again)

    @classmethod
    def of(cls, sample: DistinctSample, cap: int = 0, *, drops: bool = False) -> Contents:
        """Return the contents estimated from a sample of keys."""
        counts, scale = sample.counts(), sample.scale
        if drops:
            counts = counts[counts < cap]
        kept = np.minimum(counts, cap) if cap else counts
        lists = kept[kept > 1]
        found = [len(kept), int(kept.sum()), len(lists), int(lists.sum())]
        return cls(sample.found, *(each * scale for each in found))


class Sizes(NamedTuple):
    """Sizes in bytes of an index's parts.

    Attributes
    ----------
    held : int
        In memory, of the index.
    build : int
        The most at a time while it is built, the index included.
    file : int
    beside : int
        Of `build`: what each process takes that builds a part.
    whole : int
        In memory, of an index of minimizers as whole keys.
    """

    held: int
    build: int
    file: int
    beside: int
    whole: int = 0


def table_nbytes(key: np.dtype[Any], value: np.dtype[Any], keys: int, load: float) -> int:
    """Return the bytes of a table for a number of keys with values of 32 or 64 bits."""
    extent = Extent.of(key, value, LoadFactor(load).slots(keys))
    beside = extent.buckets * overflow_bits(slot_nbytes(key, value)) // 8
    return extent.slots * (key.itemsize + value.itemsize) + beside


def minimizers_within(nbytes: int, minimizer_bits: int) -> int:
    """Return the capacity in minimizers of a map of a given size in bytes.

    Parameters
    ----------
    nbytes : int
    minimizer_bits : int
        Bits of a minimizer that count.
    """
    least, most = 0, nbytes * 8 // WORD_BITS
    while least < most:
        middle = (least + most + 1) // 2
        if minimizers_nbytes(middle, minimizer_bits) <= nbytes:
            least = middle
        else:
            most = middle - 1
    return least


def minimizers_nbytes(minimizers: int, minimizer_bits: int) -> int:
    """Return the bytes of a map for a number of minimizers, of any usual taxonomy.

    Parameters
    ----------
    minimizers : int
    minimizer_bits : int
        Bits of a minimizer that count.

    Examples
    --------
    >>> [round(minimizers_nbytes(10**8, bits) / 10**8, 1) for bits in (48, 62)]
    [9.1, 13.5]
    """
    if why_whole_keys(minimizer_bits, minimizers):
        return table_nbytes(_WORD, _NODE, minimizers, _MINIMIZER_LOAD)
    return WordLayout.of(minimizer_bits, minimizers, usual_taxa(minimizers)).nbytes


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


def minimizer_sizes(has: Contents, device: Device, minimizer_bits: int, *, built_for: int) -> Sizes:
    """Return the bytes of an index of minimizers.

    Parameters
    ----------
    has : Contents
    device : {"cpu", "cuda"}
    minimizer_bits : int
        Bits of a minimizer that count.
    built_for : int
        Minimizers for which a build makes room at first.
    """
    beside = _MINIMIZED_NBYTES[device]
    whole = table_nbytes(_WORD, _NODE, max(built_for, has.distinct), _MINIMIZER_LOAD)
    index = build = minimizers_nbytes(built_for, minimizer_bits)
    is_packed = not why_whole_keys(minimizer_bits, has.distinct)
    if has.distinct > built_for:
        # Both tables are there while the second one is filled.
        growth = _WORDS_GROWTH if is_packed else 2
        index = minimizers_nbytes(max(int(growth * built_for), has.distinct), minimizer_bits)
        build += index
    if is_packed:
        # It has no more words than it needs in the end.
        index = minimizers_nbytes(has.distinct, minimizer_bits)
        return Sizes(index, build + beside, index, beside, whole)
    alone = has.distinct * WHOLE_KEY_NBYTES
    file = index if alone > _LEAST_LOAD * index else alone
    return Sizes(index, build + beside, file, beside, whole)
