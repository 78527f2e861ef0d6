"""K-mers of sequences: FASTA and FASTQ in, exact counts out, on a CPU or a GPU."""

from __future__ import annotations

from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.counts.kmer_counts import KmerCounts
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.databases.provenance import SourceFile, Step
from dgpuhash.kmer.loading import load_index
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.placement import Placement, Reference, place_references
from dgpuhash.kmer.sequences.batches import SequenceBatch, read_pairs, read_sequences
from dgpuhash.kmer.sequences.samples import Sample, read_samples
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

__all__ = [
    "Classification",
    "Estimate",
    "KmerCounts",
    "MinimizerIndex",
    "Placement",
    "Reference",
    "Sample",
    "SequenceBatch",
    "SketchIndex",
    "SourceFile",
    "Step",
    "Taxonomy",
    "load_index",
    "place_references",
    "read_pairs",
    "read_samples",
    "read_sequences",
]
