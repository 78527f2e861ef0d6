"""K-mers of sequences: FASTA and FASTQ in, exact counts out, on a CPU or a GPU."""

from __future__ import annotations

from dgpuhash.kmer.counts.kmer_counts import KmerCounts
from dgpuhash.kmer.placement import Placement, Reference, place_references
from dgpuhash.kmer.sequences.batches import SequenceBatch, read_pairs, read_sequences
from dgpuhash.kmer.sequences.samples import Sample, read_samples
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

__all__ = [
    "KmerCounts",
    "Placement",
    "Reference",
    "Sample",
    "SequenceBatch",
    "Taxonomy",
    "place_references",
    "read_pairs",
    "read_samples",
    "read_sequences",
]
