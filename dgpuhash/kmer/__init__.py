"""K-mers of sequences: exact counts, and classification of reads, on a CPU or a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.counts.kmer_counts import KmerCounts
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.databases.provenance import SourceFile, Step
from dgpuhash.kmer.distributions import ReadDistribution
from dgpuhash.kmer.formats.redistribution import SharedReads, share_reads
from dgpuhash.kmer.loading import load_index
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.placement import Placement, Reference, place_references
from dgpuhash.kmer.sequences.batches import SequenceBatch, read_pairs, read_sequences
from dgpuhash.kmer.sequences.samples import Sample, read_samples
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

if TYPE_CHECKING:
    from dgpuhash.kmer.server.client import ServedIndex

__all__ = [
    "Classification",
    "Estimate",
    "KmerCounts",
    "MinimizerIndex",
    "Placement",
    "ReadDistribution",
    "Reference",
    "Sample",
    "SequenceBatch",
    "ServedIndex",
    "SharedReads",
    "SketchIndex",
    "SourceFile",
    "Step",
    "Taxonomy",
    "load_index",
    "place_references",
    "read_pairs",
    "read_samples",
    "read_sequences",
    "share_reads",
]


def __getattr__(name: str) -> object:
    if name == "ServedIndex":
        # Few need a client, and its connections import much.
        from dgpuhash.kmer.server.client import ServedIndex

        return ServedIndex
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
