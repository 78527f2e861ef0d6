"""Calls of a batch of reads by parts of an index of sketches, as tasks make them."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import numpy as np

from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.sketches.candidates import TopLists, calls_of, concatenated, merged
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.kmer.sketches.parts import SketchPart
from dgpuhash.kmer.sketches.reads import Batch, SketchedReads, candidates_of, joined, sketched
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.select import spread
from dgpuhash.typing import Device


def context_of(
    settings: SketchSettings, taxonomy: Taxonomy | None, targets: Targets, device: Device | None
) -> SketchIndex:
    """Return an index of the targets that has no locations."""
    made = SketchIndex(settings, taxonomy, device)
    made._targets = targets
    return made


def called_here(
    context: SketchIndex, part: SketchPart, batch: Any, options: Any, wanted: str
) -> Any:
    """Return the calls of a batch, or its candidates, by a part that has all locations."""
    index = _with_table(context, part)
    tops = list(index._top_lists(_arrays_of(context, batch), options[0], runs=wanted == "runs"))
    return _called(context, tops, options, wanted)


def sketched_batch(context: SketchIndex, batch: Any, options: Any) -> list[SketchedReads]:
    """Return the features of a batch."""
    arrays = _arrays_of(context, batch)
    return list(sketched(context._backend, context.settings, arrays, options[0]))


def candidates_in(
    context: SketchIndex, part: SketchPart, reads: list[SketchedReads], options: Any, runs: bool
) -> list[TopLists]:
    """Return the candidates of reads among the targets of a part."""
    made = []
    for each in reads:
        found = part.table.find(each.features)
        made.append(_candidates(context, *found, each, options, runs=runs))
    return made


def called_of_candidates(
    context: SketchIndex, tops: list[list[TopLists]], options: Any, wanted: str
) -> Any:
    """Return the calls of a batch, or its candidates, from those of all parts."""
    found = [merged(context._backend, each) for each in zip(*tops, strict=True)]
    return _called(context, found, options, wanted)


def dealt_batch(context: SketchIndex, batch: Any, options: Any, n: int) -> list[Any]:
    """Return the features of a batch for each of n owners, and what is left to know of it."""
    none = np.iinfo(context.settings.feature).max
    xp = context._backend.xp
    dealt: list[list[Any]] = [[] for _ in range(n)]
    rest = []
    for reads in sketched_batch(context, batch, options):
        features = reads.features
        owners = part_numbers(features, n)
        owners[features == none] = n
        places = []
        for owner in range(n):
            rows = xp.flatnonzero(owners == owner)
            dealt[owner].append(features[rows])
            places.append(rows)
        rest.append((reads.firsts, reads.reaches, places, len(features)))
    return [*dealt, rest]


def found_in(context: SketchIndex, part: SketchPart, features: list[Any]) -> list[tuple[Any, Any]]:
    """Return locations of features, and where each one's begin."""
    return [part.table.find(each) for each in features]


def called_of_locations(
    context: SketchIndex, rest: list[Any], found: list[list[tuple[Any, Any]]], options: Any,
    wanted: str,
) -> Any:  # fmt: skip
    """Return the calls of a batch, or its candidates, from the locations of its features."""
    backend = context._backend
    xp, tops = backend.xp, []
    for (firsts, reaches, rows, n), *answers in zip(rest, *found, strict=True):
        sizes = backend.zeros(n, np.int64)
        for own, (_, places) in zip(rows, answers, strict=True):
            sizes[own] = xp.diff(places)
        offsets = backend.zeros(n + 1, np.int64)
        xp.cumsum(sizes, out=offsets[1:])
        hits = backend.empty(int(offsets[-1]), np.uint64)
        for own, (locations, places) in zip(rows, answers, strict=True):
            begin = spread(backend, offsets[own] - places[:-1], places, len(locations))
            hits[begin + xp.arange(len(locations))] = locations
        reads = SketchedReads(None, firsts, reaches)
        tops.append(_candidates(context, hits, offsets, reads, options, runs=wanted == "runs"))
    return _called(context, tops, options, wanted)


def _candidates(
    context: SketchIndex, hits: Any, places: Any, reads: SketchedReads, options: Any, *, runs: bool
) -> TopLists:
    """Return the best candidates of reads by the hits of their features."""
    backend = context._backend
    found = list(
        candidates_of(backend, hits, places, reads, context._lineages, options[0], runs=runs)
    )
    return concatenated(backend, found)


def _called(context: SketchIndex, tops: list[TopLists], options: Any, wanted: str) -> Any:
    """Return calls on the host, or candidates with their runs."""
    backend, (chosen, kept) = context._backend, options
    if wanted == "runs":
        return [
            TopLists(*(backend.to_host(getattr(top, each.name)) for each in fields(top)))
            for top in tops
        ]
    kept = None if kept is None else backend.from_host(kept)
    found = [
        calls_of(backend, top, context._lineages, chosen, kept=kept, detail=wanted == "detail")
        for top in tops
    ]
    return joined(backend, found).on_host(backend)


def _arrays_of(context: SketchIndex, batch: Any) -> Batch:
    arrays, _ = batch
    put = context._backend.from_host
    return tuple(None if each is None else put(each) for each in arrays)


def _with_table(context: SketchIndex, part: SketchPart) -> SketchIndex:
    # Lineages are made once for all.
    _ = context._lineages
    index = copy.copy(context)
    index._table = part.table
    return index
