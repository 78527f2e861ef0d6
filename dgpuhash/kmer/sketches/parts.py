"""Parts of an index of sketches, as tasks make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.databases.owners import dealt, on_device, part_numbers, stay_on_device
from dgpuhash.kmer.databases.part_files import PartArrays, part_arrays
from dgpuhash.kmer.index_file import read_index
from dgpuhash.kmer.sketches.building import (
    batches_of_references,
    filled,
    sketches_of,
    stored,
    table_settings,
)
from dgpuhash.kmer.sketches.contents import arrays_of, lines_of, lists_in, size_of, texts_of
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.sketches.sketching import n_windows
from dgpuhash.kmer.target_runs import TargetRun
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device


@dataclass(frozen=True, slots=True)
class SketchPart:
    """Locations of features, and features that were dropped; a task's result."""

    table: MultiMap
    dropped: HashSet
    found: int

    def __sizeof__(self) -> int:
        return self.table.nbytes + 2**10


def features_of_run(
    settings: SketchSettings, device: Device | None, run: TargetRun, n: int, nbytes: int
) -> list[Any]:
    """Return the features and locations of a run for each of n owners.

    All runs together have about `nbytes` for an owner.
    """
    backend = backends.get(device)
    stay = stay_on_device(backend, nbytes)
    batches = sketches_of(backend, settings, batches_of_references(backend, run, settings))
    made: list[list[tuple[Any, Any]]] = [[] for _ in range(n)]
    for features, locations in batches:
        pieces = dealt(backend, n, features, locations, stay=stay)
        for own, piece in zip(made, pieces, strict=True):
            own.append(piece)
    return [*made]


def folded(
    settings: SketchSettings,
    device: Device | None,
    before: SketchPart | None,
    pieces: list[list[tuple[Any, Any]]],
) -> SketchPart:
    """Return a part with the features of pieces, too."""
    backend = backends.get(device)
    before = before or _empty(settings, backend)
    dropped = before.dropped.copy()
    batches = [each for piece in pieces for each in piece]
    there = (tuple(on_device(backend, array) for array in batch) for batch in batches)
    table = stored(backend, before.table, there, settings, dropped)
    return SketchPart(table, dropped, before.found + sum(len(each[0]) for each in batches))


def part_of_run(
    settings: SketchSettings, device: Device | None, run: TargetRun, before: SketchPart | None
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
    dropped, cut = part.dropped, counts[at] > allowed
    backend = backends.get(part.table.device)
    put = backend.from_host
    if over.any():
        dropped = dropped.copy()
        dropped.insert(put(crowded[over]))
    if not cut.any():
        return SketchPart(part.table, dropped, part.found)
    # Few lists are cut. Their locations are in order, and those that stay the first ones.
    table, features = part.table.copy(), put(crowded[cut])
    locations, offsets = table.find(features)
    host_offsets = backend.to_host(offsets)
    sizes, left = np.diff(host_offsets), allowed[cut]
    places = np.arange(host_offsets[-1]) - np.repeat(host_offsets[:-1], sizes)
    stays = put(np.flatnonzero(places < np.repeat(left, sizes)))
    table.erase(features)
    table.insert(put(np.repeat(crowded[cut], left)), locations[stays])
    return SketchPart(table, dropped, part.found)


def contents_of(part: SketchPart) -> tuple[Any, Any, Any]:
    """Return the features and locations of a part, and what it dropped."""
    host = backends.get(part.table.device).to_host
    features, locations = map(host, part.table.items())
    return features, locations, host(part.dropped.items())


def extent_of(contents: tuple[Any, Any, Any]) -> tuple[int, Any]:
    """Return how many locations `contents_of` gave, and what was dropped."""
    features, _, dropped = contents
    return len(features), dropped


def rows_of(contents: tuple[Any, Any, Any], start: int, end: int) -> tuple[Any, Any]:
    """Return some of the features and locations that `contents_of` gave."""
    features, locations, _ = contents
    return features[start:end].copy(), locations[start:end].copy()


def loaded_part(
    path: str, mode: str, n: int, at: int, span: Sequence[int], device: Device | None
) -> SketchPart:
    """Return the part of a file's index that a worker has."""
    with interpreting(path):
        saved = read_index(path, "metacache", part=(at, n) if mode == "distributed" else None)
        settings = SketchSettings(**saved.settings)
        backend = backends.get(device)
        put = backend.from_host
        dropped = HashSet(settings.feature, device=backend.name)
        for arrays in saved.parts:
            features = arrays.get("dropped", settings.feature)
            if mode == "distributed":
                features = features[part_numbers(features, n) == at]
            dropped.insert(put(features))

        windows = n_windows(saved.targets.lengths, settings, least=settings.k)
        # Parts of a file have other features each.
        lists: list[list[np.ndarray]] = [[], [], []]
        for arrays in saved.parts:
            features, offsets, locations = lists_in(arrays, settings.feature, windows)
            if mode == "independent":
                owned = (locations >> np.uint64(32)).astype(np.int64)
                stays = (owned >= span[0]) & (owned < span[1])
            elif mode == "distributed":
                stays = np.repeat(part_numbers(features, n) == at, np.diff(offsets))
            else:
                stays = np.ones(len(locations), bool)
            sums = np.append(0, np.cumsum(stays))
            left = sums[offsets[1:]] - sums[offsets[:-1]]
            for made, piece in zip(
                lists, (features[left > 0], left[left > 0], locations[stays]), strict=True
            ):
                made.append(piece)
        own, sizes, places = map(np.concatenate, lists)
        table = MultiMap.from_lists(
            put(own), put(np.append(0, np.cumsum(sizes))), put(places),
            **table_settings(settings, backend.name),
        )  # fmt: skip
        found = saved.told["found"] if at == 0 or mode == "replicated" else 0
        return SketchPart(table, dropped, found)


def dealt_part(part: SketchPart, n: int) -> list[Any]:
    """Return the features and locations of a part for each of n owners; and what it dropped."""
    backend = backends.get(part.table.device)
    made = [[piece] for piece in dealt(backend, n, *part.table.items())]
    return [*made, backend.to_host(part.dropped.items())]


def owned_part(
    settings: SketchSettings,
    device: Device | None,
    pieces: list[list[tuple[Any, Any]]],
    dropped: list[np.ndarray],
) -> SketchPart:
    """Return the part of an owner, from what it got of all parts."""
    backend = backends.get(device)
    put = backend.from_host
    empty = _empty(settings, backend)
    for features in dropped:
        empty.dropped.insert(put(features))
    table = MultiMap.from_batches(
        ((put(features), put(locations)) for piece in pieces for features, locations in piece),
        settings.feature, np.uint64, **table_settings(settings, backend.name),
    )  # fmt: skip
    return SketchPart(table, empty.dropped, 0)


def size_in(part: SketchPart) -> tuple[tuple[int, int, int, int], int, int]:
    """Return what `size_of` returns, how many features were dropped, and how many were given."""
    return size_of(part.table), len(part.dropped), part.found


def arrays_in(part: SketchPart, is_whole: bool) -> PartArrays:
    """Return the arrays of a part for a file; the order of slots only where it is the whole."""
    arrays = arrays_of(backends.get(part.table.device), part.table, part.dropped)
    if not is_whole:
        arrays = {name: arrays[name] for name in ("features", "offsets", "locations", "dropped")}
    return part_arrays(arrays, seed=part.table._seed)


@dataclass(frozen=True, slots=True)
class TextRun:
    """The lists of a part in the order of the features' text, on the host; a task's result."""

    texts: np.ndarray
    features: np.ndarray
    offsets: np.ndarray
    locations: np.ndarray

    def between(self, low: bytes, high: bytes | None) -> TextRun:
        """Return the lists of features whose text is not below `low`, and below `high`."""
        first = int(np.searchsorted(self.texts, low))
        last = len(self.texts) if high is None else int(np.searchsorted(self.texts, high))
        begin, end = self.offsets[first], self.offsets[last]
        # Copies: the rest goes elsewhere, or stays.
        return TextRun(
            self.texts[first:last].copy(), self.features[first:last].copy(),
            self.offsets[first : last + 1] - begin, self.locations[begin:end].copy(),
        )  # fmt: skip


def text_run(part: SketchPart) -> TextRun:
    """Return the lists of a part in the order of their features' text."""
    host = backends.get(part.table.device).to_host
    features, offsets, locations = map(host, part.table.lists())
    texts = texts_of(features)
    order = np.argsort(texts, kind="stable")
    sizes = np.diff(offsets)[order]
    ends = np.append(0, np.cumsum(sizes))
    rows = np.arange(ends[-1]) + np.repeat(offsets[:-1][order] - ends[:-1], sizes)
    return TextRun(texts[order], features[order], ends, locations[rows])


def marks_in(run: TextRun, n: int) -> np.ndarray:
    """Return the texts that part a run into n of about as many locations."""
    wanted = np.arange(1, n) * (len(run.locations) / n)
    return run.texts[np.searchsorted(run.offsets[1:], wanted)] if len(run.texts) else run.texts


def run_between(run: TextRun, low: bytes, high: bytes | None) -> TextRun:
    """Return a piece of a run."""
    return run.between(low, high)


def lines_of_runs(runs: list[TextRun]) -> list[tuple[bytes, bytes]]:
    """Return the lines of runs that have other features each, as `lines_of` yields them."""
    before = np.cumsum([0, *(len(run.locations) for run in runs)])
    offsets = [run.offsets[:-1] + start for run, start in zip(runs, before, strict=False)]
    found = lines_of(
        np.concatenate([run.features for run in runs]),
        np.concatenate([*offsets, before[-1:]]),
        np.concatenate([run.locations for run in runs]),
    )
    return [(bytes(places), bytes(counts)) for places, counts in found]


def _empty(settings: SketchSettings, backend: Backend) -> SketchPart:
    table = MultiMap(settings.feature, np.uint64, **table_settings(settings, backend.name))
    return SketchPart(table, HashSet(settings.feature, device=backend.name), 0)
