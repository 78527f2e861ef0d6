"""K-mers of sequences: FASTA and FASTQ in, exact counts out, on a CPU or a GPU."""

from __future__ import annotations

from dgpuhash.kmer.counts.kmer_counts import KmerCounts
from dgpuhash.kmer.sequences.batches import SequenceBatch, read_pairs, read_sequences
from dgpuhash.kmer.sequences.samples import Sample, read_samples

__all__ = [
    "KmerCounts",
    "Sample",
    "SequenceBatch",
    "read_pairs",
    "read_samples",
    "read_sequences",
]
