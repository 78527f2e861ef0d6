"""References into the features of an index and their locations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_references
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["batches_of_letters", "batches_of_references", "filled", "table_settings"]

Batch = tuple[Any, Any, np.ndarray, np.ndarray, bool]

_LOCATION = np.dtype(np.uint64)
# Features of reads are often absent: searches for these end sooner in a table with more room.
_LOAD = 0.7
# Letters that are sketched at once.
_BATCH_LETTERS = {"cpu": 2**20, "cuda": 2**26}


def table_settings(settings: SketchSettings, device: str) -> dict[str, Any]:
    """Return the settings of a multimap of features."""
    return {"cap": settings.cap, "max_load": _LOAD, "device": device}


def filled(
    backend: Backend,
    table: MultiMap,
    batches: Iterable[Batch],
    settings: SketchSettings,
    dropped: HashSet,
) -> tuple[MultiMap, int]:
    """Return a table with the features of references, too, and how many locations they have.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """
    found = 0

    def sketched() -> Iterator[tuple[Any, Any]]:
        nonlocal found
        if len(table):
            yield table.items()
        for letters, offsets, targets, starts, is_cut in batches:
            features, locations = sketch_references(
                backend, settings, letters, offsets, targets, starts, is_cut=is_cut
            )
            found += len(features)
            if len(dropped):
                stays = ~dropped.contains(features)
                features, locations = features[stays], locations[stays]
            yield features, locations

    made = MultiMap.from_batches(
        sketched(), settings.feature, _LOCATION, **table_settings(settings, backend.name)
    )
    if settings.remove_overpopulated:
        features, offsets, _ = made.lists()
        over = features[offsets[1:] - offsets[:-1] >= settings.cap]
        made.erase(over)
        dropped.insert(over)
    return made, found


def batches_of_references(
    backend: Backend, references: References, settings: SketchSettings
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
