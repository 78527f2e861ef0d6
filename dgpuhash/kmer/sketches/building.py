"""References into the features of an index and their locations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.bucket_list.storage import pair_slices
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun

Batch = tuple[Any, Any, np.ndarray, np.ndarray, bool]

_LOCATION = np.dtype(np.uint64)
# Features of reads are often absent: searches for these end sooner in a table with more room.
LOAD = 0.7
# Bytes of features and locations that are held on a CPU, and at least on a GPU: a quarter there.
HELD_NBYTES = 2**28
# Lists grow where they are for less than one of so many locations; else all are stored anew.
_FEW = 8
# Letters that are sketched at once.
_BATCH_LETTERS = {"cpu": 2**20, "cuda": 2**26}


def table_settings(settings: SketchSettings, device: Device) -> dict[str, Any]:
    """Return the settings of a multimap of features."""
    return {"cap": settings.cap, "max_load": LOAD, "device": device}


def are_few(rows: int, table: MultiMap) -> bool:
    """Return whether so many locations are best added to lists that stay where they are."""
    return rows * _FEW < len(table)


def append(
    table: MultiMap,
    found: Iterable[tuple[Any, Any]],
    settings: SketchSettings,
    dropped: HashSet,
) -> None:
    """Add features and locations to a table as `stored` does, beside the lists that it has."""
    for features, locations in found:
        if len(dropped):
            stays = ~dropped.contains(features)
            features, locations = features[stays], locations[stays]
        table.insert(features, locations)
        if settings.remove_overpopulated:
            over = features[table.count(features) >= settings.cap]
            table.erase(over)
            dropped.insert(over)


def stored(
    backend: Backend,
    table: MultiMap,
    found: Iterable[tuple[Any, Any]],
    settings: SketchSettings,
    dropped: HashSet,
) -> MultiMap:
    """Return a table with features and locations, too.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """

    def kept() -> Iterator[tuple[Any, Any]]:
        if len(table):
            yield from pair_slices(table._lists)
        for features, locations in found:
            if len(dropped):
                stays = ~dropped.contains(features)
                features, locations = features[stays], locations[stays]
            yield features, locations

    def has_room(features: Any, counts: Any) -> Any:
        is_full = counts >= settings.cap
        dropped.insert(features[is_full])
        return ~is_full

    return MultiMap.from_batches(
        kept(), settings.feature, _LOCATION, memory=held_nbytes(backend),
        keep=has_room if settings.remove_overpopulated else None,
        **table_settings(settings, backend.name),
    )  # fmt: skip


def held_nbytes(backend: Backend) -> int:
    """Return how many bytes of features and locations are held before they go to a file."""
    if backend.name == "cpu":
        return HELD_NBYTES
    return max(backend.memory()[0] // 4, HELD_NBYTES)


def batches_of_references(
    backend: Backend, references: References | TargetRun, settings: SketchSettings
) -> Iterator[Batch]:
    """Yield letters and offsets on the backend, targets and starts of pieces, and if one goes on.

    See `ReferenceBatch`.
    """
    for batch in references.batches(
        overlap=settings.window - 1,
        stride=settings.stride,
        batch_letters=_BATCH_LETTERS[backend.name],
    ):
        letters, offsets = map(backend.from_host, (batch.letters, batch.offsets))
        yield letters, offsets, batch.targets, batch.starts, batch.is_cut


def batches_of_letters(
    backend: Backend, settings: SketchSettings, letters: Any, offsets: np.ndarray, first: int
) -> Iterator[Batch]:
    """Yield the same of references in one array, whose offsets are on the host.

    `first` is the number of the first target.
    """
    start, total = 0, len(letters)
    while start < total:
        end = min(start + max(_BATCH_LETTERS[backend.name], 2 * settings.window), total)
        row = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, end, side="left")) - 1
        begins = offsets[row : last + 1]
        edges = np.clip(offsets[row : last + 2], start, end) - start
        is_cut = end < offsets[last + 1]
        yield (
            letters[start:end],
            backend.from_host(edges),
            np.arange(row, last + 1, dtype=np.int64) + first,
            np.maximum(start - begins, 0),
            is_cut,
        )
        # The next piece begins with the first window that is not whole yet.
        full = (end - int(begins[-1]) - settings.window) // settings.stride + 1
        start = int(begins[-1]) + max(full, 0) * settings.stride if is_cut else end
