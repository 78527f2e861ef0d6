"""Counting and both rules of classification in plain Python; imports nothing of dgpuhash."""

from __future__ import annotations

from kmer.models.counting import dump, histogram, kmer_counts, records_of, reverse_complement
from kmer.models.minimizers import AMBIGUOUS, BORDER, Called, MinimizerModel
from kmer.models.sketches import Candidate, Reference, SketchModel, digest

__all__ = [
    "AMBIGUOUS",
    "BORDER",
    "Called",
    "Candidate",
    "MinimizerModel",
    "Reference",
    "SketchModel",
    "digest",
    "dump",
    "histogram",
    "kmer_counts",
    "records_of",
    "reverse_complement",
]
