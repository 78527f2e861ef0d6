"""Files of minimizer indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.minimizers.building import empty_table, refilled
from dgpuhash.tables import HashMap
from dgpuhash.tables.open_addressing.slot_image import SlotImage

_SEED = "seed"
# Of slots that are written as they are: with a lower one, minimizers alone take half of the room.
_LEAST_LOAD = 0.4
_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)


def saved_arrays(backend: Backend, table: HashMap) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a map in a file of its own, on the host, and what it tells of them.

    It has the slots as they are, so that a load maps them, unless most of them are free.
    """
    slots = table._opened().slots
    if _LEAST_LOAD * slots.slots <= len(table):
        return SlotImage.of(slots).buffers(), {_SEED: table._seed}
    return arrays_of(backend, table)


def arrays_of(backend: Backend, table: HashMap) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a map that any file has, and what it tells of them."""
    keys, nodes = map(backend.to_host, table.items())
    return {"minimizers": keys, "nodes": nodes}, {_SEED: table._seed}


def items_of(saved: SavedIndex) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield minimizers of a file and the numbers of their taxa, of one part after another.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    n = _taxa_of(saved)
    if SlotImage.is_in(saved.arrays):
        yield from _image_in(saved).slices()
        return
    for arrays in saved.parts:
        keys = arrays.get("minimizers", _KEY)
        nodes = arrays.get("nodes", _NODE, len(keys))
        arrays.check(not len(nodes) or int(nodes.max()) < n, "it has unknown taxa")
        yield keys, nodes


def load_table(saved: SavedIndex, backend: Backend) -> HashMap:
    """Return the map in a file.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    saved.arrays.check({"letters", "notes"} <= saved.told.keys(), "its header is malformed")
    seed = saved.told.get(_SEED)
    saved.arrays.check(type(seed) is int and 0 <= seed < 2**64, "its map has no seed")
    assert seed is not None
    table = empty_table(backend.name, seed=seed)
    if not (SlotImage.is_in(saved.arrays) and table._take(_image_in(saved).slots)):
        items = list(items_of(saved))
        stored = sum(len(keys) for keys, _ in items)
        put = backend.from_host
        table = refilled(backend, ((put(keys), put(nodes)) for keys, nodes in items), stored, seed)
        saved.arrays.check(len(table) == stored, "its minimizers are not distinct")
    return table


def _taxa_of(saved: SavedIndex) -> int:
    """Return how many taxa a file has."""
    saved.arrays.check(saved.taxonomy is not None, "it has no taxonomy")
    assert saved.taxonomy is not None
    return len(saved.taxonomy.taxids)


def _image_in(saved: SavedIndex) -> SlotImage:
    """Return the slots of a file, whose values are numbers of taxa."""
    image = SlotImage.of_buffers(saved.arrays, _KEY, _NODE)
    n = _taxa_of(saved)
    saved.arrays.check(image.has_values_below(n), "it has unknown taxa")
    return image
