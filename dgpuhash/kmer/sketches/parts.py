"""Parts of an index of sketches, as tasks make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.index_file import read_index
from dgpuhash.kmer.sketches.building import (
    batches_of_references,
    filled,
    sketches_of,
    stored,
    table_settings,
)
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.target_runs import TargetRun
from dgpuhash.kmer.worker_index import part_numbers
from dgpuhash.tables import HashSet, MultiMap

__all__ = [
    "SketchPart",
    "contents_of",
    "counts_in",
    "features_of_run",
    "features_with",
    "folded",
    "limited",
    "loaded_part",
    "part_of_run",
    "stacked",
    "united",
]


@dataclass(frozen=True, slots=True)
class SketchPart:
    """Locations of features, and features that were dropped; a task's result."""

    table: MultiMap
    dropped: HashSet
    found: int

    def __sizeof__(self) -> int:
        return self.table.nbytes + 2**10


def features_of_run(
    settings: SketchSettings, device: str | None, run: TargetRun, n: int
) -> list[Any]:
    """Return the features and locations of a run for each of n owners, on the host."""
    backend = backends.get(device)
    batches = sketches_of(backend, settings, batches_of_references(backend, run, settings))
    made: list[list[tuple[Any, Any]]] = [[] for _ in range(n)]
    for batch in batches:
        features, locations = map(backend.to_host, batch)
        if n == 1:
            made[0].append((features, locations))
            continue
        owners = part_numbers(features, n)
        for owner in range(n):
            own = owners == owner
            made[owner].append((features[own], locations[own]))
    return [*made]


def folded(
    settings: SketchSettings,
    device: str | None,
    before: SketchPart | None,
    pieces: list[list[tuple[Any, Any]]],
) -> SketchPart:
    """Return a part with the features of pieces, too."""
    backend = backends.get(device)
    before = before or _empty(settings, backend)
    dropped = before.dropped.copy()
    batches = [each for piece in pieces for each in piece]
    put = backend.from_host
    on_device = ((put(features), put(locations)) for features, locations in batches)
    table = stored(backend, before.table, on_device, settings, dropped)
    return SketchPart(table, dropped, before.found + sum(len(each[0]) for each in batches))


def part_of_run(
    settings: SketchSettings, device: str | None, run: TargetRun, before: SketchPart | None
) -> SketchPart:
    """Return the part of a run of targets, without the features that were dropped before."""
    backend = backends.get(device)
    empty = _empty(settings, backend)
    dropped = empty.dropped if before is None else before.dropped.copy()
    batches = batches_of_references(backend, run, settings)
    apart = replace(settings, remove_overpopulated=False)
    table, found = filled(backend, empty.table, batches, apart, dropped)
    return SketchPart(table, dropped, found)


def features_with(part: SketchPart, least: int) -> np.ndarray:
    """Return the features of a part with so many locations or more, on the host."""
    backend = backends.get(part.table.device)
    features, offsets, _ = part.table.lists()
    return backend.to_host(features[offsets[1:] - offsets[:-1] >= least])


def united(features: list[np.ndarray]) -> np.ndarray:
    """Return distinct features, ascending."""
    return np.unique(np.concatenate(features))


def counts_in(part: SketchPart, features: np.ndarray) -> np.ndarray:
    """Return how many locations of some features a part has."""
    backend = backends.get(part.table.device)
    counts = part.table.count(backend.from_host(features))
    return backend.to_host(counts).astype(np.int64, copy=False)


def stacked(counts: list[np.ndarray]) -> np.ndarray:
    """Return counts of parts, a row of each."""
    return np.stack(counts)


def limited(
    settings: SketchSettings, part: SketchPart, at: int, crowded: np.ndarray, counts: np.ndarray
) -> SketchPart:
    """Return a part with as many locations of crowded features as those before it leave."""
    allowed = np.maximum(settings.cap - counts[:at].sum(axis=0), 0)
    over = np.zeros(len(crowded), bool)
    if settings.remove_overpopulated:
        over = counts.sum(axis=0) >= settings.cap
        allowed[over] = 0
    if not over.any() and (counts[at] <= allowed).all():
        return part
    backend = backends.get(part.table.device)
    features, offsets, locations = map(backend.to_host, part.table.lists())
    sizes = np.diff(offsets)
    places = np.minimum(np.searchsorted(crowded, features), len(crowded) - 1)
    most = np.where(crowded[places] == features, allowed[places], settings.cap)
    stays = np.arange(len(locations)) - np.repeat(offsets[:-1], sizes) < np.repeat(most, sizes)
    left = np.minimum(sizes, most)
    put = backend.from_host
    table = MultiMap.from_lists(
        put(features[left > 0]), put(np.append(0, np.cumsum(left[left > 0]))),
        put(locations[stays]), **table_settings(settings, backend.name),
    )  # fmt: skip
    dropped = part.dropped.copy()
    dropped.insert(put(crowded[over]))
    return SketchPart(table, dropped, part.found)


def contents_of(part: SketchPart) -> tuple[Any, Any, Any, int]:
    """Return the features and locations of a part, what it dropped, and what it was given."""
    host = backends.get(part.table.device).to_host
    features, locations = map(host, part.table.items())
    return features, locations, host(part.dropped.items()), part.found


def loaded_part(
    path: str, mode: str, n: int, at: int, span: Sequence[int], device: str | None
) -> SketchPart:
    """Return the part of a file's index that a worker has."""
    saved = read_index(path, "metacache")
    settings, arrays = SketchSettings(**saved.settings), saved.arrays
    features = arrays.get("features", settings.feature)
    offsets = arrays.get("offsets", np.dtype(np.int64), len(features) + 1)
    locations = arrays.get("locations", np.dtype(np.uint64))
    sizes = np.diff(offsets)
    if mode == "independent":
        owned = (locations >> np.uint64(32)).astype(np.int64)
        stays = (owned >= span[0]) & (owned < span[1])
    elif mode == "distributed":
        stays = np.repeat(part_numbers(features, n) == at, sizes)
    else:
        stays = np.ones(len(locations), bool)
    sums = np.append(0, np.cumsum(stays))
    left = sums[offsets[1:]] - sums[offsets[:-1]]
    backend = backends.get(device)
    put = backend.from_host
    table = MultiMap.from_lists(
        put(features[left > 0]), put(np.append(0, np.cumsum(left[left > 0]))),
        put(locations[stays]), **table_settings(settings, backend.name),
    )  # fmt: skip
    dropped = HashSet(settings.feature, device=backend.name)
    dropped.insert(put(arrays.get("dropped", settings.feature)))
    found = saved.told["found"] if at == 0 or mode == "replicated" else 0
    return SketchPart(table, dropped, found)


def _empty(settings: SketchSettings, backend: Backend) -> SketchPart:
    table = MultiMap(settings.feature, np.uint64, **table_settings(settings, backend.name))
    return SketchPart(table, HashSet(settings.feature, device=backend.name), 0)
