"""References into the features of an index and their locations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_references
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["filled", "table_settings"]

_LOCATION = np.dtype(np.uint64)
# Features of reads are often absent: searches for these end sooner in a table with more room.
_LOAD = 0.7
# Letters that are sketched at once.
_BATCH_LETTERS = {"cpu": 2**22, "cuda": 2**26}


def table_settings(settings: SketchSettings, device: str) -> dict[str, Any]:
    """Return the settings of a multimap of features."""
    return {"cap": settings.cap, "max_load": _LOAD, "device": device}


def filled(
    backend: Backend,
    table: MultiMap,
    references: References,
    settings: SketchSettings,
    dropped: HashSet,
) -> tuple[MultiMap, int]:
    """Return a table with the features of references, too, and how many locations they have.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """
    sketched = _Sketched(backend, references, settings, dropped)
    made = MultiMap.from_batches(
        chain([table.items()] if len(table) else [], sketched),
        settings.feature, _LOCATION, **table_settings(settings, backend.name),
    )  # fmt: skip
    if settings.remove_overpopulated:
        features, offsets, _ = made.lists()
        over = features[offsets[1:] - offsets[:-1] >= settings.cap]
        made.erase(over)
        dropped.insert(over)
    return made, sketched.found


class _Sketched:
    """Features and locations of references, batch by batch; `found` counts them."""

    def __init__(
        self,
        backend: Backend,
        references: References,
        settings: SketchSettings,
        dropped: HashSet,
    ) -> None:
        self._backend, self._references = backend, references
        self._settings, self._dropped = settings, dropped
        self.found = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        backend, settings = self._backend, self._settings
        batches = self._references.batches(
            overlap=settings.window - 1,
            stride=settings.stride,
            batch_letters=_BATCH_LETTERS[backend.name],
        )
        for batch in batches:
            features, locations = sketch_references(
                backend, settings, backend.from_host(batch.letters),
                backend.from_host(batch.offsets), batch.targets, batch.starts, is_cut=batch.is_cut,
            )  # fmt: skip
            self.found += len(features)
            if len(self._dropped):
                stays = ~self._dropped.contains(features)
                features, locations = features[stays], locations[stays]
            yield features, locations
