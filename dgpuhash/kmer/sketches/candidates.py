"""Turn hits into candidates, candidates into calls, and compute targets' coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.sketches.settings import CallOptions
from dgpuhash.kmer.taxonomy.ranks import SLOTS
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

# Places of a hash table for each hit, as kernels/kmer/candidates.cuh has it.
_PLACES_OF_HIT = 2
_WORD = np.dtype(np.uint32)
_WORD_BITS = 32


class TargetLineages:
    """Ancestor of each target at each rank.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    taxonomy : Taxonomy or None
    taxids : array of int64
        Of each target, 0 of those without a place.

    Attributes
    ----------
    numbers : array of uint32
        Of shape (targets, 21): numbers of taxa, 0 where there is none; that of the sequence is the
        target's own, from 1.
    taxids : array of int64
        The taxid of each number of a taxon; that of 0 is 0.
    """

    def __init__(self, backend: Backend, taxonomy: Taxonomy | None, taxids: np.ndarray) -> None:
        self._backend = backend
        n = len(taxids)
        if taxonomy is None:
            ranked = np.zeros((n, len(SLOTS)), np.int64)
        else:
            distinct, places = np.unique(taxids, return_inverse=True)
            ranked = taxonomy.ranked(distinct)[places]
        ranked[:, 0] = 0
        found, places = np.unique(np.append(0, ranked), return_inverse=True)
        numbers = places[1:].reshape(n, len(SLOTS)).astype(np.uint32)
        numbers[:, 0] = np.arange(1, n + 1)
        self._numbers = numbers
        self.numbers: Any = backend.from_host(numbers)
        self.taxids: Any = backend.from_host(found)
        self._taxa: dict[int, Any] = {}

    def taxa(self, lowest: int) -> Any:
        """Return each target's taxon number at its first rank from `lowest` on, or 0."""
        if lowest not in self._taxa:
            above = self._numbers[:, lowest:]
            first = np.argmax(above != 0, axis=1)
            found = np.ascontiguousarray(above[np.arange(len(above)), first])
            self._taxa[lowest] = self._backend.from_host(found)
        return self._taxa[lowest]

    def taxids_of(self, taxa: Any, lowest: int) -> Any:
        """Return the taxids of numbers from `taxa`; targets are negative, from -1."""
        return -taxa.astype(np.int64) if lowest == 0 else self.taxids[taxa.astype(np.int64)]


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
    """Return the calls of reads, given their candidates.

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


def concatenate_candidates(backend: Backend, parts: Sequence[TopLists]) -> TopLists:
    """Return the candidates of two sets of reads concatenated."""
    if len(parts) == 1:
        return parts[0]
    columns = ([getattr(part, each.name) for part in parts] for each in fields(TopLists))
    return TopLists(
        *(None if column[0] is None else backend.xp.concatenate(column) for column in columns)
    )


def merge_candidates(backend: Backend, parts: Sequence[TopLists]) -> TopLists:
    """Return the best candidates of reads over all parts of the targets.

    Of each taxon it is the one with most hits, of these that with the lowest target; then those
    with most hits, and of as many those with the lowest targets.
    """
    if len(parts) == 1:
        return parts[0]
    xp = backend.xp
    n, most = parts[0].targets.shape
    names = [each.name for each in fields(TopLists) if getattr(parts[0], each.name) is not None]
    joined = {name: xp.stack([getattr(part, name) for part in parts], axis=1) for name in names}
    rows = xp.repeat(xp.arange(n), len(parts) * most)
    flat = {name: array.ravel() for name, array in joined.items()}
    there = xp.flatnonzero(flat["counts"] != 0)
    rows, flat = rows[there], {name: array[there] for name, array in flat.items()}
    fewer = xp.iinfo(np.uint32).max - flat["counts"]
    order = xp.lexsort(xp.stack([flat["targets"], fewer, flat["taxa"], rows]))
    taxa, of = flat["taxa"][order], rows[order]
    is_first = xp.ones(len(order), bool)
    is_first[1:] = (of[1:] != of[:-1]) | (taxa[1:] != taxa[:-1])
    order = order[is_first]
    order = order[xp.lexsort(xp.stack([flat["targets"][order], fewer[order], rows[order]]))]
    rows = rows[order]
    ranks = xp.arange(len(rows)) - xp.searchsorted(rows, rows)
    stays = ranks < most
    made = {name: backend.zeros((n, most), _WORD) for name in names}
    for name, array in made.items():
        array[rows[stays], ranks[stays]] = flat[name][order[stays]]
    return TopLists(**made)


class Coverage:
    """Windows of targets that are covered by reads' candidates.

    Parameters
    ----------
    backend : Backend
    windows : array of int64
        How many each target has.
    """

    def __init__(self, backend: Backend, windows: np.ndarray) -> None:
        self._backend, self._windows = backend, windows
        self._firsts = np.append(0, np.cumsum(windows))
        words = int(self._firsts[-1]) // _WORD_BITS + 1
        self._on_device = backend.from_host(self._firsts)
        self._bits = backend.zeros(words, _WORD)

    def add(self, top: TopLists, options: CallOptions) -> None:
        """Mark the windows of the best candidates with enough hits."""
        self._backend.run(
            kernel_named("candidate_cover"), top.targets.size,
            targets=top.targets, counts=top.counts, firsts=top.firsts, lasts=top.lasts,
            windows=self._on_device, covered=self._bits, least=options.hitmin,
        )  # fmt: skip

    def kept(self, percentile: float) -> Any:
        """Return a mask of the targets to keep (uint8).

        Those go that make up `percentile` percent of the sum of all shares of windows, the least
        covered first, and those without a window.
        """
        words = self._backend.to_host(self._bits)
        before = np.append(0, np.cumsum(np.bitwise_count(words), dtype=np.int64))
        at, bit = np.divmod(self._firsts, _WORD_BITS)
        lower = words[at] & ((np.int64(1) << bit) - 1).astype(_WORD)
        marked = np.diff(before[at] + np.bitwise_count(lower))
        shares = marked / np.maximum(self._windows, 1)
        order = np.argsort(shares, kind="stable")
        sums_of_shares = np.cumsum(shares[order])
        total = sums_of_shares[-1] if len(order) else 0.0
        goes = (sums_of_shares <= percentile / 100 * total) | (shares[order] == 0)
        stays = np.ones(len(order), np.uint8)
        stays[order[goes]] = 0
        return self._backend.from_host(stays)
