"""Reads of a batch on a device, cut into slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import DeviceError, SequenceError
from dgpuhash.kmer.counts.tally import checked_letters

# Of both mates. What a CPU works at stays in its caches, and in memory that it had before.
_SLICE_LETTERS = {"cpu": 2**20, "cuda": 2**28}


@dataclass(frozen=True, slots=True)
class Reads:
    """Single reads, or the first or second mates.

    Attributes
    ----------
    letters : array of uint8
    offsets : array of int64
        Where each read begins, and the last one's end.
    qualities : array of uint8 or None
        Of each letter, as FASTQ writes them.
    """

    letters: Any
    offsets: Any
    qualities: Any

    @classmethod
    def of(cls, backend: Backend, letters: Any, offsets: Any, qualities: Any) -> Reads:
        """Return reads in arrays of any device on a backend.

        Raises
        ------
        SequenceError
            When the offsets are not those of records in the letters, or there is another number of
            qualities.
        """
        came_from = backends.get(None, letters)
        letters, offsets = checked_letters(came_from, letters, offsets)
        if qualities is not None:
            qualities = came_from.asarray(qualities, np.uint8)
            if len(qualities) != len(letters):
                raise SequenceError(
                    f"{len(qualities):,} qualities of {len(letters):,} letters; pass one of each"
                )
        if came_from is backend:
            return cls(letters, offsets, qualities)
        if came_from.name != "cpu":
            raise DeviceError(
                "the reads are on a GPU and the index is on a CPU; load it with device='cuda', or "
                "pass cupy.asnumpy(letters)"
            )
        put = backend.from_host
        return cls(put(letters), put(offsets), None if qualities is None else put(qualities))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def parted(self, backend: Backend, edges: np.ndarray) -> Iterator[Reads]:
        """Yield the reads between edges (read numbers), with one wait of the host for all."""
        places = backend.to_host(self.offsets[backend.from_host(edges)]).tolist()
        for rows, (start, end) in zip(pairwise(edges.tolist()), pairwise(places), strict=True):
            yield Reads(
                self.letters[start:end],
                self.offsets[rows[0] : rows[1] + 1] - start,
                None if self.qualities is None else self.qualities[start:end],
            )


def slices(
    backend: Backend, first: Reads, second: Reads | None
) -> Iterator[tuple[Reads, Reads | None]]:
    """Yield reads and their mates, a few at a time."""
    xp, size = backend.xp, _SLICE_LETTERS[backend.name]
    letters = len(first.letters) + (0 if second is None else len(second.letters))
    if letters <= 2 * size:
        yield first, second
        return
    ends = first.offsets if second is None else first.offsets + second.offsets
    wanted = xp.arange(size, letters, size)
    inner = backend.to_host(xp.searchsorted(ends, wanted))
    edges = np.unique(np.concatenate([[0], inner, [len(first)]]))
    if second is None:
        for reads in first.parted(backend, edges):
            yield reads, None
    else:
        sides = (each.parted(backend, edges) for each in (first, second))
        yield from zip(*sides, strict=True)
