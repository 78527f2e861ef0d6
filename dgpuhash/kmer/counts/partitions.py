"""Super-k-mers of a whole input by their parts, in memory or in a file without a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.unnamed_file import UnnamedFile
from dgpuhash.kmer.counts.super_kmers import PARTS, SuperKmers


class Partitions:
    """Super-k-mers of batches, read part by part.

    What is more than `memory` bytes goes to an `UnnamedFile`.

    Parameters
    ----------
    backend : Backend
        Where the super-k-mers are.
    memory : int
        Bytes.
    """

    def __init__(self, backend: Backend, memory: int) -> None:
        self._backend, self._memory = backend, memory
        self._held: list[SuperKmers] = []
        self._held_nbytes = 0
        self._file = UnnamedFile("k-mers")
        self._written: list[tuple[SuperKmers, int, int]] = []
        self.kmers: np.ndarray = np.zeros(PARTS, np.int64)
        self.super_kmers: int = 0
        self.nbytes: int = 0
        self.spilled: int = 0

    def append(self, made: SuperKmers) -> None:
        """Add the super-k-mers of a batch."""
        self.kmers += np.diff(made.first_kmers)
        self.super_kmers += len(made.kmers)
        self.nbytes += made.nbytes
        self._held.append(made)
        self._held_nbytes += made.nbytes
        if self._held_nbytes > self._memory:
            self._spill()

    def groups(self, kmers: int) -> list[int]:
        """Return where groups of neighbouring parts begin, and `PARTS`.

        Groups have about `kmers` k-mers, but parts are not divided.
        """
        before = np.append(0, np.cumsum(self.kmers))
        n = max(int(before[-1] // max(kmers, 1)), 1)
        edges = np.searchsorted(before, np.linspace(0, before[-1], n + 1)[1:-1])
        return sorted({0, *edges.tolist(), PARTS})

    def read(self, first: int, last: int, kmers: int) -> Iterator[tuple[Any, Any]]:
        """Yield `packed` and `kmers` of the parts [first, last).

        At a time there are about so many k-mers, or the share of one batch.
        """
        gathered: list[tuple[Any, Any]] = []
        size = 0
        for packed, counts, n in self._shares(first, last):
            if n == 0:
                continue
            if gathered and size + n > kmers:
                yield self._joined(gathered)
                gathered, size = [], 0
            gathered.append((packed, counts))
            size += n
        if gathered:
            yield self._joined(gathered)

    def close(self) -> None:
        """Free the memory and the file."""
        self._held, self._written = [], []
        self._file.close()

    def _shares(self, first: int, last: int) -> Iterator[tuple[Any, Any, int]]:
        for made, packed_at, kmers_at in self._written:
            rows, nbytes, n = _spans(made, first, last)
            yield (
                self._from_file(packed_at + nbytes.start, nbytes.stop - nbytes.start, np.uint8),
                self._from_file(kmers_at + 2 * rows.start, rows.stop - rows.start, np.uint16),
                n,
            )
        for made in self._held:
            rows, nbytes, n = _spans(made, first, last)
            yield made.packed[nbytes], made.kmers[rows], n

    def _joined(self, shares: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        packed, kmers = zip(*shares, strict=True)
        if len(shares) == 1:
            return packed[0], kmers[0]
        join = self._backend.xp.concatenate
        return join(packed), join(kmers)

    def _spill(self) -> None:
        for made in self._held:
            packed, kmers = map(self._backend.to_host, (made.packed, made.kmers))
            places = self._file.append(packed), self._file.append(kmers)
            self.spilled += made.nbytes
            self._written.append((replace(made, packed=None, kmers=None), *places))
        self._held, self._held_nbytes = [], 0

    def _from_file(self, at: int, n: int, dtype: Any) -> Any:
        return self._backend.from_host(self._file.read(at, n, dtype))


def _spans(made: SuperKmers, first: int, last: int) -> tuple[slice, slice, int]:
    return (
        slice(int(made.first_rows[first]), int(made.first_rows[last])),
        slice(int(made.first_bytes[first]), int(made.first_bytes[last])),
        int(made.first_kmers[last] - made.first_kmers[first]),
    )
