"""Letters into runs of neighbouring k-mers that have one minimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named, struct_named
from dgpuhash.errors import SpecError
from dgpuhash.kmer.minimizers.settings import MOST_LMERS, MinimizerSettings

__all__ = ["MinimizerRuns", "minimizer_runs"]

# Letters in which a lane's k-mers start.
_SEGMENT_ROWS = {"cpu": 4096, "cuda": 256}
# Letters of a GPU's tile, which has the k-mers that end in them: 32 lanes, of as many as
# kernels/kmer/minimizers.cuh says.
_TILE_LETTERS = 256
_MOST_LETTERS = 2**32 - 1
# As kernels/kmer/minimizers.cuh has it: what is kept in registers.
_USUAL_LMERS = 5
# Runs that a segment has room for, of those that random letters have.
_ROOM = 1.5


@dataclass(slots=True)
class MinimizerRuns:
    """Runs of k-mers of one record that have one minimizer, in the order of the letters.

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

    def packed(self, backend: Backend) -> bytes:
        """Return the runs as kernels take them."""
        return backend.pack(
            struct_named("MinimizerRuns"), minimizers=self.minimizers, starts=self.starts,
            kmers=self.kmers, nodes=self.nodes,
        )  # fmt: skip

    @classmethod
    def empty(cls, backend: Backend, rows: int, *, with_nodes: bool) -> MinimizerRuns:
        """Return room for so many runs."""
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
) -> MinimizerRuns:
    """Return the runs of records in `letters`, which `offsets` part.

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

    Raises
    ------
    SpecError
        When the letters are too many for one batch.
    """
    rows, segment_rows = len(letters), _SEGMENT_ROWS[backend.name]
    if rows > _MOST_LETTERS:
        raise SpecError(f"a batch of {rows:,} letters; pass at most {_MOST_LETTERS:,} at a time")
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
        apart = MinimizerRuns.empty(backend, segments * room, with_nodes=nodes is not None)
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
    runs = MinimizerRuns.empty(backend, total, with_nodes=nodes is not None)
    backend.run(
        kernel_named("minimizer_pack"), segments,
        apart=apart.packed(backend), packed=runs.packed(backend), places=places, room=room,
        segment_rows=segment_rows,
    )  # fmt: skip
    return runs
