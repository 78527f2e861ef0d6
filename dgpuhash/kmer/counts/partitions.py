"""Partition super-k-mers by minimizer, in memory or an unlinked temporary file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.unnamed_file import UnnamedFile


class Partitions:
    """Super-k-mers of batches, readable partition by partition.

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
        """Return the first partition of each group of neighbours, and `PARTS`.

        Groups have about `kmers` k-mers, but parts are not divided.
        """
        before = np.append(0, np.cumsum(self.kmers))
        n = max(int(before[-1] // max(kmers, 1)), 1)
        edges = np.searchsorted(before, np.linspace(0, before[-1], n + 1)[1:-1])
        return sorted({0, *edges.tolist(), PARTS})

    def read(self, first: int, last: int, kmers: int) -> Iterator[tuple[Any, Any]]:
        """Yield `packed` and `kmers` of partitions [first, last).

        At a time there are about so many k-mers, or the share of one batch.
        """
        gathered: list[tuple[Any, Any]] = []
        size = 0
        for packed, counts, n in self._shares(first, last):
            if n == 0:
                continue
            if gathered and size + n > kmers:
                yield self._join(gathered)
                gathered, size = [], 0
            gathered.append((packed, counts))
            size += n
        if gathered:
            yield self._join(gathered)

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

    def _join(self, shares: list[tuple[Any, Any]]) -> tuple[Any, Any]:
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


PARTS = 4096
# Of minimizers: long enough for many of them, short enough for long super-k-mers.
_MINIMIZER = 10
_SEGMENT_ROWS = {"cpu": 8192, "cuda": 256}
WORD_BASES = 32


@dataclass(slots=True)
class SuperKmers:
    """Super-k-mers of one batch of letters, ordered by partition.

    Attributes
    ----------
    packed : array of uint8
        Bases, each super-k-mer from a byte of its own on.
    kmers : array of uint16
        K-mers of each.
    first_rows, first_bytes, first_kmers : array of int64
        Where each part begins in `kmers`, in `packed` and among all k-mers; and the last one's
        end. On the host.
    """

    packed: Any
    kmers: Any
    first_rows: np.ndarray
    first_bytes: np.ndarray
    first_kmers: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes to store or send."""
        return int(self.packed.nbytes + self.kmers.nbytes)


def split(backend: Backend, letters: Any, offsets: Any, k: int) -> SuperKmers:
    """Return the super-k-mers of records in `letters`, delimited by `offsets`.

    Only A, C, G and T, of any case, are bases; k-mers have no other letters.
    """
    starts, kmers, parts = _runs(backend, letters, offsets, k, by_part=True)
    byte_ends = _sums(backend, _nbytes(kmers, k))
    packed = _pack(backend, letters, starts, kmers, byte_ends, k)
    edges = backend.xp.searchsorted(parts, backend.xp.arange(PARTS + 1))
    kmer_ends = _sums(backend, kmers)
    return SuperKmers(
        packed,
        kmers,
        backend.to_host(edges).astype(np.int64, copy=False),
        backend.to_host(byte_ends[edges]),
        backend.to_host(kmer_ends[edges]),
    )


def unpack(
    backend: Backend, packed: Any, kmers: Any, k: int, *, canonical: bool
) -> tuple[Any, Any]:
    """Return the k-mers of super-k-mers (uint64): the last 32 bases, and those before.

    The second array is None for k of at most 32. `canonical`: the lower one of a k-mer and its
    reverse complement.
    """
    is_wide = k > WORD_BASES
    rows = _sums(backend, kmers)
    n = int(rows[-1])
    low = backend.empty(n, np.uint64)
    high = backend.empty(n, np.uint64) if is_wide else None
    backend.run(
        kernel_named("super_kmer_unpack_wide" if is_wide else "super_kmer_unpack"), len(kmers),
        packed=packed, places=_sums(backend, _nbytes(kmers, k)), kmers=kmers, rows=rows,
        low=low, high=high, k=k, canonical=int(canonical),
    )  # fmt: skip
    return low, high


def single_kmers(
    backend: Backend, letters: Any, k: int, *, canonical: bool
) -> tuple[Any, Any, Any]:
    """Return partition, last 32 bases and earlier bases of consecutive k-mers.

    All letters are bases.
    """
    n = len(letters) // k
    offsets = backend.xp.arange(n + 1, dtype=np.int64) * k
    starts, kmers, parts = _runs(backend, letters, offsets, k)
    packed = _pack(backend, letters, starts, kmers, _sums(backend, _nbytes(kmers, k)), k)
    return parts, *unpack(backend, packed, kmers, k, canonical=canonical)


def as_text(backend: Backend, low: Any, high: Any, counts: Any, k: int) -> np.ndarray:
    """Return lines of k-mers, tabs and counts, as bytes (uint8) on the host."""
    xp = backend.xp
    counts = counts.astype(np.uint64)
    sizes = xp.full(len(low), k + 3, np.int64)
    power, most = 10, int(counts.max()) if len(counts) else 0
    while power <= most:
        sizes += counts >= np.uint64(power)
        power *= 10
    ends = xp.cumsum(sizes)
    text = backend.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    backend.run(
        kernel_named("kmer_text"), len(low),
        low=low, high=high, counts=counts, ends=ends, text=text, k=k,
    )  # fmt: skip
    return backend.to_host(text)


def _runs(
    backend: Backend, letters: Any, offsets: Any, k: int, *, by_part: bool = False
) -> tuple[Any, Any, Any]:
    """Return first letter, k-mer count and partition of each super-k-mer."""
    xp, segment_rows = backend.xp, _SEGMENT_ROWS[backend.name]
    segments = math.ceil(len(letters) / segment_rows)
    counts = backend.empty(segments, np.int64)
    # A super-k-mer has four k-mers or more on average, unless k is small.
    room, most = 0, segment_rows // 4
    while room < most:
        room = most
        starts, kmers, parts = (
            backend.empty(segments * room, word) for word in (np.int64, np.uint16, np.uint16)
        )
        backend.run(
            kernel_named("super_kmer_find"), segments,
            letters=letters, offsets=offsets, counts=counts, starts=starts, kmers=kmers,
            parts=parts, k=k, m=min(k, _MINIMIZER), n_parts=PARTS, records=len(offsets) - 1,
            rows=len(letters), segment_rows=segment_rows, room=room,
        )  # fmt: skip
        most = int(counts.max()) if segments else 0
    rows = xp.flatnonzero(xp.arange(room) < counts[:, None])
    if by_part:
        rows = rows[backend.stable_order(parts[rows])]
    return starts[rows], kmers[rows], parts[rows]


def _pack(backend: Backend, letters: Any, starts: Any, kmers: Any, places: Any, k: int) -> Any:
    """Return the packed bases of super-k-mers, at the byte offsets `places`."""
    packed = backend.empty(int(places[-1]), np.uint8)
    backend.run(
        kernel_named("super_kmer_pack"), len(kmers),
        letters=letters, starts=starts, kmers=kmers, places=places, packed=packed, k=k,
    )  # fmt: skip
    return packed


def _nbytes(kmers: Any, k: int) -> Any:
    """Return the bytes of each super-k-mer."""
    return (kmers.astype(np.int64) + (k + 2)) // 4


def _sums(backend: Backend, sizes: Any) -> Any:
    """Return where each of these sizes begins, and the last one's end (int64)."""
    sums = backend.zeros(len(sizes) + 1, np.int64)
    backend.xp.cumsum(sizes, dtype=np.int64, out=sums[1:])
    return sums
