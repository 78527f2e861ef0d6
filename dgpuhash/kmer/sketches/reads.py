"""Sketch reads slice by slice and return their top candidate targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.sketches.candidates import TargetLineages, TopLists, top_lists
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_reads

Batch = tuple[Any, ...]
"""Letters and offsets, and those of mates, or None."""

_OFFSET = np.dtype(np.int64)
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
    backend: Backend, settings: SketchSettings, batch: Batch, options: CallOptions
) -> Iterator[SketchedReads]:
    """Yield the features of a batch, some reads at a time.

    Raises
    ------
    SequenceError
        When offsets do not part the letters, or mates are not as many.
    """
    most = _MOST_HITS[backend.name] * settings.stride // (settings.sketch * settings.cap)
    most = min(most, _SLICE_LETTERS[backend.name])
    for letters, offsets, *mates in _slices(backend, _checked(backend, batch), most):
        features, firsts = sketch_reads(backend, settings, letters, offsets, *mates)
        lengths = backend.xp.diff(offsets)
        if mates:
            lengths = lengths + backend.xp.diff(mates[1])
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


def _checked(backend: Backend, batch: Batch) -> list[Any]:
    """Return arrays of a batch on the backend; those of mates only if there are any."""
    made = []
    for letters, offsets in zip(batch[::2], batch[1::2], strict=True):
        if letters is not None:
            made += [backend.asarray(letters, np.uint8), backend.asarray(offsets, _OFFSET)]
    for letters, offsets in zip(made[::2], made[1::2], strict=True):
        if backend.name == "cuda":
            continue
        if (
            not len(offsets)
            or offsets[0] != 0
            or offsets[-1] != len(letters)
            or (np.diff(offsets) < 0).any()
        ):
            raise SequenceError(
                f"offsets do not part {len(letters):,} letters; begin with 0, end with their "
                "number, and never go down"
            )
    if len(made) == 4 and len(made[1]) != len(made[3]):
        raise SequenceError(
            f"{len(made[1]) - 1:,} first and {len(made[3]) - 1:,} second mates; pass as many"
        )
    return made


def _slices(backend: Backend, batch: list[Any], most: int) -> Iterator[list[Any]]:
    """Yield reads of about a number of letters at a time."""
    n, most = len(batch[1]) - 1, max(most, 1)
    total = sum(map(len, batch[::2]))
    if total <= most or n <= 1:
        yield batch
        return
    ends = sum(batch[1::2])
    marks = backend.xp.searchsorted(ends, backend.xp.arange(0, total, most), side="left")
    rows = np.append(np.unique(backend.to_host(marks)), n)
    # Where the slices of first and second mates begin and end: the host waits for all at once.
    wanted = backend.from_host(rows)
    places = backend.to_host(backend.xp.stack([each[wanted] for each in batch[1::2]])).tolist()
    edges = rows.tolist()
    for at, (first, last) in enumerate(pairwise(edges)):
        if last > first:
            yield [
                part
                for letters, offsets, ends in zip(batch[::2], batch[1::2], places, strict=True)
                for part in (
                    letters[ends[at] : ends[at + 1]],
                    offsets[first : last + 1] - ends[at],
                )
            ]
