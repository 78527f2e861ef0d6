"""Files of minimizer indexes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.index_file import SavedIndex, read_index, write_index
from dgpuhash.kmer.minimizers.building import empty_table, refilled, seed_of
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap
from dgpuhash.tables.open_addressing.slot_image import SlotImage

_SEED = "seed"
# Of slots that are written as they are: with a lower one, minimizers alone take half of the room.
_LEAST_LOAD = 0.4
_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)


def save_table(
    path: str | os.PathLike[str],
    backend: Backend,
    table: HashMap,
    *,
    told: Mapping[str, Any],
    **others: Any,
) -> None:
    """Write a map of minimizers to a file, and what else `write_index` takes.

    It has the slots as they are, so that a load maps them, unless most of them are free.
    """
    slots = table._opened().slots
    if _LEAST_LOAD * slots.slots <= len(table):
        arrays, of_arrays = SlotImage.of(slots).buffers(), {_SEED: seed_of(table)}
    else:
        arrays, of_arrays = arrays_of(backend, table, others["taxonomy"])
    write_index(path, arrays=arrays, told={**told, **of_arrays}, **others)


def arrays_of(
    backend: Backend, table: HashMap, taxonomy: Taxonomy
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a map that a file has, on the host, and what it tells of them."""
    keys, nodes = map(backend.to_host, table.items())
    return {"minimizers": keys, "nodes": nodes}, {_SEED: seed_of(table)}


def items_of(saved: SavedIndex) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield minimizers of a file and the numbers of their taxa, of one part after another.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    n = len(_taxonomy_of(saved).taxids)
    if SlotImage.is_in(saved.arrays):
        yield from _image_in(saved).slices()
        return
    for arrays in saved.parts:
        keys = arrays.get("minimizers", _KEY)
        nodes = arrays.get("nodes", _NODE, len(keys))
        arrays.check(not len(nodes) or int(nodes.max()) < n, "it has unknown taxa")
        yield keys, nodes


def load_table(
    path: str | os.PathLike[str], backend: Backend, rule: str
) -> tuple[MinimizerSettings, Taxonomy, Targets, HashMap, dict[str, Any]]:
    """Return settings, taxonomy, targets, map and what else is told in a file.

    Raises
    ------
    FormatError
        When the file is another one, or damaged.
    """
    saved = read_index(path, rule)
    taxonomy = _taxonomy_of(saved)
    settings = MinimizerSettings.of_saved(saved.settings)
    saved.arrays.check({"letters", "notes"} <= saved.told.keys(), "its header is malformed")
    seed = saved.told.pop(_SEED, None)
    saved.arrays.check(type(seed) is int and 0 <= seed < 2**64, "its map has no seed")
    table = empty_table(backend.name, seed=seed)
    if not (SlotImage.is_in(saved.arrays) and table._take(_image_in(saved).slots)):
        items = list(items_of(saved))
        stored = sum(len(keys) for keys, _ in items)
        put = backend.from_host
        table = refilled(backend, ((put(keys), put(nodes)) for keys, nodes in items), stored, seed)
        saved.arrays.check(len(table) == stored, "its minimizers are not distinct")
    return settings, taxonomy, saved.targets, table, saved.told


def _taxonomy_of(saved: SavedIndex) -> Taxonomy:
    saved.arrays.check(saved.taxonomy is not None, "it has no taxonomy")
    assert saved.taxonomy is not None
    return saved.taxonomy


def _image_in(saved: SavedIndex) -> SlotImage:
    """Return the slots of a file, whose values are numbers of taxa."""
    image = SlotImage.of_buffers(saved.arrays, _KEY, _NODE)
    n = len(_taxonomy_of(saved).taxids)
    saved.arrays.check(image.has_values_below(n), "it has unknown taxa")
    return image
