"""Sketch reads slice by slice and return their top candidate targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Reads, slices
from dgpuhash.kmer.sketches.candidates import TargetLineages, TopLists, top_lists
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_reads

# Letters of reads whose hits are there at once, fewer where these could be more than so many.
_SLICE_LETTERS = {"cpu": 2**19, "cuda": 2**27}
_MOST_HITS = {"cpu": 2**25, "cuda": 2**31}
# Hits that are counted at once; it takes three times their memory.
_COUNTED_HITS = {"cpu": 2**22, "cuda": 2**28}


@dataclass(frozen=True, slots=True)
class SketchedReads:
    """Features of some reads.

    Attributes
    ----------
    features : array
        Those of all reads, and in places that some do not need the highest number.
    firsts : array of int64
        Where each read's begin, and the last one's end.
    reaches : array of uint32
        Windows that a run of each read spans at most.
    """

    features: Any
    firsts: Any
    reaches: Any


def sketched(
    backend: Backend, settings: SketchSettings, sides: list[Reads], options: CallOptions
) -> Iterator[SketchedReads]:
    """Yield the features of reads and their mates, some reads at a time."""
    most = _MOST_HITS[backend.name] * settings.stride // (settings.sketch * settings.cap)
    most = min(most, _SLICE_LETTERS[backend.name])
    for some in slices(backend, sides, most):
        arrays = [array for side in some for array in (side.letters, side.offsets)]
        features, firsts = sketch_reads(backend, settings, *arrays)
        lengths = sum(backend.xp.diff(side.offsets) for side in some)
        reaches = backend.xp.maximum(lengths, options.insertsize) // settings.stride + 2
        yield SketchedReads(features, firsts, reaches.astype(np.uint32))


def candidates_of(
    backend: Backend,
    hits: Any,
    places: Any,
    reads: SketchedReads,
    lineages: TargetLineages,
    options: CallOptions,
    *,
    runs: bool = False,
) -> Iterator[TopLists]:
    """Yield the best candidates of reads by their features' hits, some reads at a time.

    `places` tells where each feature's hits begin, and the last one's end.
    """
    places = places[reads.firsts]
    for rows, span in _counted_at_once(backend, places, len(hits)):
        yield top_lists(
            backend, hits[span], places[rows.start : rows.stop + 1] - span.start,
            reads.reaches[rows], lineages, options, runs=runs,
        )  # fmt: skip


def _counted_at_once(backend: Backend, places: Any, hits: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows of reads with the span of their hits, in groups of limited size."""
    n, most = len(places) - 1, _COUNTED_HITS[backend.name]
    if hits <= most:
        yield slice(0, n), slice(0, hits)
        return
    ends = backend.to_host(places)
    marks = np.searchsorted(ends[1:], np.arange(most, hits, most), side="right")
    for first, last in pairwise(np.unique([0, *marks, n]).tolist()):
        yield slice(first, last), slice(int(ends[first]), int(ends[last]))
