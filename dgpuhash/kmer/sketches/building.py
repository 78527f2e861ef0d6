"""References into the features of an index and their locations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.sketches.sketching import sketch_references
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["fill"]

# Locations that are inserted at once.
_HELD_ROWS = {"cpu": 2**24, "cuda": 2**27}
# Letters that are sketched at once.
_BATCH_LETTERS = {"cpu": 2**22, "cuda": 2**26}


def fill(
    backend: Backend,
    table: MultiMap,
    references: References,
    settings: SketchSettings,
    dropped: HashSet,
) -> int:
    """Insert the features of references, and return how many locations were found.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """
    total = 0
    for features, locations in _held(backend, references, settings):
        total += len(features)
        if len(dropped):
            stays = ~dropped.contains(features)
            features, locations = features[stays], locations[stays]
        table.insert(features, locations)
    table.compact()
    if settings.remove_overpopulated:
        features, offsets, _ = table.lists()
        over = features[offsets[1:] - offsets[:-1] >= settings.cap]
        table.erase(over)
        dropped.insert(over)
    return total


def _held(
    backend: Backend, references: References, settings: SketchSettings
) -> Iterator[tuple[Any, Any]]:
    """Yield features and locations, many at a time."""
    xp, held, rows = backend.xp, [], 0
    for batch in references.batches(
        overlap=settings.window - 1,
        stride=settings.stride,
        batch_letters=_BATCH_LETTERS[backend.name],
    ):
        made = sketch_references(
            backend, settings, backend.from_host(batch.letters), backend.from_host(batch.offsets),
            batch.targets, batch.starts, is_cut=batch.is_cut,
        )  # fmt: skip
        held.append(made)
        rows += len(made[0])
        if rows >= _HELD_ROWS[backend.name]:
            yield tuple(map(xp.concatenate, zip(*held, strict=True)))  # type: ignore[misc]
            held, rows = [], 0
    if held:
        yield tuple(map(xp.concatenate, zip(*held, strict=True)))  # type: ignore[misc]
