"""Hits of reads into candidates, and these into calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.sketches.lineages import TargetLineages
from dgpuhash.kmer.sketches.settings import CallOptions

__all__ = ["TopLists", "calls_of", "top_lists"]

# Places of a hash table for each hit, as kernels/kmer/candidates.cuh has it.
_PLACES_OF_HIT = 2
_WORD = np.dtype(np.uint32)


@dataclass(slots=True)
class TopLists:
    """The best candidates of reads, arrays of shape (reads, maxcand).

    Attributes
    ----------
    targets, counts, taxa : array of uint32
        The target of each candidate, its hits, and the taxon at the lowest rank; 0 hits of none.
    firsts, lasts : array of uint32, optional
        The windows of its best run.
    """

    targets: Any
    counts: Any
    taxa: Any
    firsts: Any = None
    lasts: Any = None


def top_lists(
    backend: Backend,
    hits: Any,
    offsets: Any,
    reaches: Any,
    lineages: TargetLineages,
    options: CallOptions,
    *,
    runs: bool = False,
) -> TopLists:
    """Return the best candidates of reads.

    Parameters
    ----------
    backend : Backend
    hits : array of uint64
        Locations of the features of all reads.
    offsets : array of int64
        Where each read's hits begin, and the last one's end.
    reaches : array of uint32
        Windows that a run of each read spans at most.
    lineages : TargetLineages
    options : CallOptions
    runs : bool
        Whether the windows of the best runs are asked for.
    """
    n, most = len(reaches), options.maxcand
    made = TopLists(*(backend.empty((n, most), _WORD) for _ in range(5 if runs else 3)))
    places = len(hits) * _PLACES_OF_HIT
    backend.run(
        kernel_named("candidate_find"), n,
        hits=hits, offsets=offsets, reaches=reaches, taxa=lineages.taxa(options.lowest),
        counted_hits=backend.empty(places, np.uint64), hit_counts=backend.empty(places, _WORD),
        targets=made.targets, counts=made.counts, top_taxa=made.taxa,
        firsts=made.firsts, lasts=made.lasts, most=most,
    )  # fmt: skip
    return made


def calls_of(
    backend: Backend,
    top: TopLists,
    lineages: TargetLineages,
    options: CallOptions,
    *,
    kept: Any = None,
    detail: bool = False,
) -> Calls:
    """Return the calls of reads with some candidates.

    `kept`: of each target, whether it may be a candidate (uint8); None: all may.
    """
    n, most = top.targets.shape
    made = Calls(backend.empty(n, np.int64), backend.empty(n, _WORD))
    backend.run(
        kernel_named("lineage_call"), n,
        targets=top.targets, counts=top.counts, lineages=lineages.numbers,
        taxids=lineages.taxids, kept=kept, calls=made.taxids, hits=made.hits,
        hitmin=options.hitmin, lowest=options.lowest, highest=options.highest, most=most,
        share=options.share,
    )  # fmt: skip
    if detail:
        shown = top.counts != 0
        if kept is not None:
            shown &= kept[top.targets.astype(np.int64)] != 0
        made.detail_offsets = backend.zeros(n + 1, np.int64)
        backend.xp.cumsum(shown.sum(axis=1), out=made.detail_offsets[1:])
        made.detail_taxids = lineages.taxids_of(top.taxa[shown], options.lowest)
        made.detail_counts = top.counts[shown]
    return made
