"""Find minimizers of letters: runs of neighbouring k-mers with one minimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend, kernel_named, struct_named
from dgpuhash.errors import SpecError
from dgpuhash.kmer.minimizers.settings import MOST_LMERS, MinimizerSettings

# Letters in which a lane's k-mers start.
_SEGMENT_ROWS = {"cpu": 4096, "cuda": 256}
# Letters of a GPU's tile, which has the k-mers that end in them: 32 lanes, of as many as
# kernels/kmer/minimizers.cuh says.
_TILE_LETTERS = 256
_MOST_LETTERS = 2**32 - 1
# As kernels/kmer/minimizers.cuh has it: what is kept in registers.
_USUAL_LMERS = 5
# Into which kraken2-build cuts references; with several threads into so many parts each.
BLOCK_LETTERS = 2**14
# Runs that a segment has room for, of those that random letters have.
_ROOM = 1.5


@dataclass(slots=True)
class MinimizerRuns:
    """Runs of consecutive k-mers with one minimizer, in letter order.

    Attributes
    ----------
    minimizers : array of uint64
    starts : array of uint32
        Where each run's first k-mer begins.
    kmers : array of uint16
        K-mers of each run.
    nodes : array of uint32 or None
        The node of its record.
    """

    minimizers: Any
    starts: Any
    kmers: Any
    nodes: Any = None

    def __len__(self) -> int:
        return len(self.minimizers)

    def at(self, rows: Any) -> MinimizerRuns:
        """Return some of the runs."""
        nodes = None if self.nodes is None else self.nodes[rows]
        return MinimizerRuns(self.minimizers[rows], self.starts[rows], self.kmers[rows], nodes)

    def packed(self, backend: Backend) -> bytes:
        """Return the runs as a kernel argument."""
        return backend.pack(
            struct_named("MinimizerRuns"), minimizers=self.minimizers, starts=self.starts,
            kmers=self.kmers, nodes=self.nodes,
        )  # fmt: skip

    @classmethod
    def empty(cls, backend: Backend, rows: int, *, with_nodes: bool) -> MinimizerRuns:
        """Return uninitialised memory for a number of runs."""
        return cls(
            backend.empty(rows, np.uint64),
            backend.empty(rows, np.uint32),
            backend.empty(rows, np.uint16),
            backend.empty(rows, np.uint32) if with_nodes else None,
        )


def minimizer_runs(
    backend: Backend,
    settings: MinimizerSettings,
    letters: Any,
    offsets: Any,
    *,
    nodes: Any = None,
    qualities: Any = None,
    least_quality: int = 0,
    starts: np.ndarray | None = None,
) -> MinimizerRuns:
    """Return the runs of records in `letters`, delimited by `offsets`.

    With ``ambiguous="kraken2"`` in the settings also those that Kraken 2 finds beside them.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    settings : MinimizerSettings
    letters, offsets : array of uint8, array of int64
        Only A, C, G and T, of any case, are bases; k-mers have no other letters.
    nodes : array of uint32, optional
        The node of each record; those of node 0 have no runs.
    qualities : array of uint8, optional
        Of letters, as FASTQ writes them; those below `least_quality` are no bases.
    least_quality : int
        With the offset of FASTQ.
    starts : array of int64, optional
        Where each record, a piece of a reference, begins in it; on the host.

    Raises
    ------
    SpecError
        When the letters are too many for one batch.
    """
    given = _Letters(letters, offsets, nodes, qualities, least_quality)
    found = _Found.of(backend, settings, given)
    if starts is None or settings.ambiguous == "exact" or settings.k == settings.l:
        return found.packed(backend)
    return found.packed(backend, _early_runs(backend, settings, given, starts))


class _Letters(NamedTuple):
    """Records as arguments of `minimizer_runs`."""

    letters: Any
    offsets: Any
    nodes: Any = None
    qualities: Any = None
    least_quality: int = 0

    def pieces(self, xp: Any, places: Any, size: int) -> _Letters:
        """Return a number of letters from each position on, as records."""
        rows = (places[:, None] + xp.arange(size)).ravel()
        return _Letters(
            self.letters[rows],
            xp.arange(len(places) + 1) * size,
            None,
            None if self.qualities is None else self.qualities[rows],
            self.least_quality,
        )


def _early_runs(
    backend: Backend, settings: MinimizerSettings, given: _Letters, starts: np.ndarray
) -> MinimizerRuns | None:
    """Return runs of the first ``k - 1`` letters of references' blocks, in order.

    Kraken 2 takes a window for full that lacks one l-mer, as it is where a block begins.
    """
    xp, size, offsets = backend.xp, settings.k - 1, given.offsets
    joined = backend.from_host(_block_starts(backend.to_host(offsets), starts, size))
    if not len(joined):
        return None
    pieces = given.pieces(xp, joined, size)
    of_pieces = replace(settings, k=size, ambiguous="exact")
    early = _Found.of(backend, of_pieces, pieces).packed(backend)
    at = joined[early.starts.astype(np.int64) // size]
    owners = xp.searchsorted(offsets, at, side="right") - 1
    # The letter before a piece that begins with a block is in another one.
    early.starts = xp.maximum(at - 1, offsets[owners]).astype(np.uint32)
    order = xp.argsort(early.starts, kind="stable")
    if given.nodes is not None:
        early.nodes = given.nodes[owners]
        order = order[early.nodes[order] != 0]
    return early.at(order)


def _block_starts(offsets: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """Return the block starts of references, in pieces with `size` extra letters."""
    lengths = np.diff(offsets)
    first = -(-np.maximum(starts, 1) // BLOCK_LETTERS)
    counts = np.maximum((starts + lengths - size) // BLOCK_LETTERS - first + 1, 0)
    owners = np.repeat(np.arange(len(starts)), counts)
    numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places: np.ndarray = (first[owners] + numbers) * BLOCK_LETTERS - starts[owners]
    return places + offsets[:-1][owners]


class _Found(NamedTuple):
    """Unordered output of the kernel that finds runs."""

    apart: MinimizerRuns
    room: int  # for runs of a segment
    segment_rows: int
    places: Any  # of each segment's runs when packed, and the end of the last one's
    total: int

    @classmethod
    def of(cls, backend: Backend, settings: MinimizerSettings, given: _Letters) -> _Found:
        """Find the runs of records."""
        letters, offsets, nodes, qualities, least_quality = given
        rows, segment_rows = len(letters), _SEGMENT_ROWS[backend.name]
        if rows > _MOST_LETTERS:
            raise SpecError(
                f"a batch of {rows:,} letters; pass at most {_MOST_LETTERS:,} at a time"
            )
        lmers, memory = settings.k - settings.l + 1, None
        if lmers == _USUAL_LMERS and backend.name == "cuda":
            segment_rows = _TILE_LETTERS - settings.k + 1
        segments = math.ceil(rows / segment_rows)
        counts = backend.empty(segments, np.int64)
        read = backend.pack(
            struct_named("ReadLetters"), letters=letters, qualities=qualities, least=least_quality
        )
        if lmers != _USUAL_LMERS:
            memory = backend.empty(segments * MOST_LMERS, np.uint64)
        kernel = kernel_named("minimizer_find" if memory is None else "minimizer_find_any")
        places = backend.zeros(segments + 1, np.int64)
        room, most, total = 0, math.ceil(min(_ROOM * settings.density, 1) * segment_rows), 0
        while room < most:
            room = most
            # The last segment may be read beyond its room.
            size = segments * room + segment_rows
            apart = MinimizerRuns.empty(backend, size, with_nodes=nodes is not None)
            backend.run(
                kernel, segments,
                rule=settings.rule(backend), letters=read, offsets=offsets, nodes=nodes,
                counts=counts, runs=apart.packed(backend), memory=memory,
                memory_step=1 if backend.name == "cpu" else segments, records=len(offsets) - 1,
                rows=rows, segment_rows=segment_rows, room=room,
            )  # fmt: skip
            backend.xp.cumsum(counts, out=places[1:])
            if segments:
                # The only numbers that the host waits for.
                sizes = backend.xp.stack([counts.max(), places[-1]])
                most, total = backend.to_host(sizes).tolist()
        return cls(apart, room, segment_rows, places, total)

    def packed(self, backend: Backend, early: MinimizerRuns | None = None) -> MinimizerRuns:
        """Return the runs, and early ones, in the order of the letters."""
        xp, places, n = backend.xp, self.places, 0 if early is None else len(early)
        if early is not None:
            segments = (early.starts // np.uint32(self.segment_rows)).astype(np.int64)
            counts = xp.bincount(segments, minlength=len(places) - 1)
            places = places.copy()
            places[1:] += xp.cumsum(counts)
        with_nodes = self.apart.nodes is not None
        runs = MinimizerRuns.empty(backend, self.total + n, with_nodes=with_nodes)
        backend.run(
            kernel_named("minimizer_pack"), len(places) - 1,
            apart=self.apart.packed(backend), packed=runs.packed(backend), places=places,
            room=self.room, segment_rows=self.segment_rows,
        )  # fmt: skip
        if early is None:
            return runs
        # The kernel left room for early ones behind the others of their segments, which are moved.
        ends = places[segments + 1]
        behind = self.places[segments + 1] + xp.arange(n)
        runs.starts[behind] = xp.minimum((segments + 1) * self.segment_rows, _MOST_LETTERS)
        # Of those of one segment that come before.
        earlier = behind - ends + counts[segments]
        to = xp.searchsorted(runs.starts, early.starts, side="right") + earlier
        sizes = xp.minimum(xp.append(to[1:], ends[-1:]), ends) - to - 1
        moved = _ranges(xp, to + 1, sizes)
        rows = _ranges(xp, to - earlier, sizes)
        for name in ("minimizers", "starts", "kmers", "nodes"):
            array = getattr(runs, name)
            if array is not None:
                array[moved] = array[rows]
                array[to] = getattr(early, name)
        return runs


def _ranges(xp: Any, firsts: Any, sizes: Any) -> Any:
    """Return concatenated ranges of numbers."""
    firsts, sizes = firsts[sizes > 0], sizes[sizes > 0]
    ends = xp.cumsum(sizes)
    steps = xp.ones(int(sizes.sum()), np.int64)
    steps[ends - sizes] = firsts
    steps[ends[:-1]] -= (firsts + sizes)[:-1] - 1
    return xp.cumsum(steps, out=steps)
