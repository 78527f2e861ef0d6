"""References into the features of an index and their locations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_references
from dgpuhash.kmer.target_runs import TargetRun
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["Sketched", "filled", "table_settings"]

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
    batches: Iterable[tuple[Any, Any]],
    settings: SketchSettings,
    dropped: HashSet,
) -> MultiMap:
    """Return a table with the features of batches, too, each with its location.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """

    def kept() -> Iterator[tuple[Any, Any]]:
        if len(table):
            yield table.items()
        for features, locations in batches:
            if not len(dropped):
                yield features, locations
                continue
            stays = ~dropped.contains(features)
            yield features[stays], locations[stays]

    made = MultiMap.from_batches(
        kept(), settings.feature, _LOCATION, **table_settings(settings, backend.name)
    )
    if settings.remove_overpopulated:
        features, offsets, _ = made.lists()
        over = features[offsets[1:] - offsets[:-1] >= settings.cap]
        made.erase(over)
        dropped.insert(over)
    return made


class Sketched:
    """Features and locations of references, batch by batch; `found` counts them.

    Parameters
    ----------
    backend : Backend
    references : References or TargetRun
    settings : SketchSettings
    """

    def __init__(
        self, backend: Backend, references: References | TargetRun, settings: SketchSettings
    ) -> None:
        self._backend, self._references, self._settings = backend, references, settings
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
            yield features, locations
