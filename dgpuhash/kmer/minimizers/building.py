"""Build the map from minimizers to lowest common ancestors from references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.databases.taxon_words import minimizer_bits_of, why_whole_keys
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.minimizers.taxon_map import TaxonMap
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap
from dgpuhash.tables.open_addressing.slot_image import SlotImage
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun


Batch = tuple[Any, Any, np.ndarray, np.ndarray]
_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)
# Of letters: what a CPU works at stays in its caches, and in memory that it had before.
BATCH_LETTERS = {"cpu": 2**20, "cuda": 2**25}
_SLICE_LETTERS = {"cpu": 2**20, "cuda": 2**28}
# Numbers of taxa that are changed at once.
_SLICE_NODES = 2**18
# Places for each minimizer: with a few more than needed, searches read one line.
_ROOM = 1.25
# Minimizers that are given room before they come: the same ones may come again and again.
_MOST_ROOM = {"cpu": 2**27, "cuda": 2**30}


def empty_table(device: Device, keys: int = 0, seed: int | None = None) -> HashMap:
    """Return an empty map of minimizers to taxon numbers, with a capacity."""
    return HashMap(_KEY, _NODE, keys, device=device, seed=seed)


def empty_map(
    backend: Backend,
    settings: MinimizerSettings,
    keys: int,
    taxa: int,
    *,
    room: float = 1.0,
    seed: int | None = None,
) -> HashMap | TaxonMap:
    """Return a map for a number of minimizers, in words of eight bytes if these have the bits.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings
    keys : int
    taxa : int
        Numbers of taxa are below.
    room : float
        Places of a `HashMap` for each minimizer.
    seed : int, optional
        That of a `HashMap`.
    """
    if why_whole_keys(minimizer_bits_of(settings), keys, taxa):
        return empty_table(backend.name, int(keys * room), seed)
    return TaxonMap(backend, settings, keys, taxa=taxa)


def writable_map(
    backend: Backend,
    settings: MinimizerSettings,
    table: HashMap | TaxonMap,
    numbers: np.ndarray,
    *,
    keys: int,
    taxa: int,
    is_owned: bool,
) -> HashMap | TaxonMap:
    """Return a writable map for a number of minimizers, with other numbers of taxa.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings
    table : HashMap or TaxonMap
        What the map has; where that `is_owned` it may be the map.
    numbers : array of uint32
        What becomes of each number of a taxon, on the host.
    keys : int
        Minimizers, those of `table` included.
    taxa : int
        New numbers are below.
    is_owned : bool
    """
    is_whole = bool(why_whole_keys(minimizer_bits_of(settings), keys, taxa))
    packed = table if isinstance(table, TaxonMap) else None
    if (packed is not None) is is_whole or (packed and not packed.layout.has_bits_for(taxa)):
        made = empty_map(backend, settings, keys, taxa)
        given = backend.from_host(numbers)
        for some, nodes in [table.items()] if packed is None else packed.slices():
            made._add(some, given[nodes])
        return made
    made = renumber_taxa(backend, table, numbers, taxa)
    if made is table and not is_owned:
        made = table.copy()
    made.reserve(keys)
    return made


def fill_by_seed(
    backend: Backend,
    settings: MinimizerSettings,
    items: Iterable[tuple[Any, Any]],
    *,
    keys: int,
    taxa: int,
    seed: int | None,
) -> HashMap | TaxonMap:
    """Copy some keys of a map, with their nodes, into another one in hash order.

    Neighbours then go to neighbouring places, in a quarter of the time of keys in no order.
    """
    made = empty_map(backend, settings, keys, taxa, room=_ROOM, seed=seed)
    for some, nodes in items:
        made._add(some, nodes)
    return made


def room_for(settings: MinimizerSettings, letters: int, device: Device) -> int:
    """Return the expected number of minimizers of references with a number of letters."""
    return min(int(letters * settings.density * settings.sample * 1.02), _MOST_ROOM[device])


def taxonomy_of(whole: Taxonomy, targets: Targets, held: Taxonomy) -> Taxonomy:
    """Return the taxa of targets and of the index, and all their ancestors.

    Raises
    ------
    TaxonomyError
        When a taxon of the index has another parent in `whole`.
    """
    made = whole.subset(np.union1d(targets.taxids, held.taxids))
    numbers = made.numbers(held.taxids)
    is_moved = made.taxids[made.parents[numbers]] != held.taxids[held.parents]
    if is_moved.any():
        taxid = held.taxids[np.argmax(is_moved)]
        raise TaxonomyError(
            f"taxid {taxid} of the index has another parent in this taxonomy; pass the one that "
            "the index was built with, or build again"
        )
    return made


def renumber_taxa(
    backend: Backend, table: HashMap | TaxonMap, numbers: np.ndarray, taxa: int
) -> HashMap | TaxonMap:
    """Return the map with other taxon numbers; itself if they are the same."""
    if (numbers == np.arange(len(numbers))).all():
        return table
    changed, given = table.copy(), backend.from_host(numbers)
    if isinstance(changed, TaxonMap):
        changed.renumber(given, taxa)
        return changed
    # Keys stay where they are. Words beside free slots are above all numbers, and stay, too.
    last = np.uint32(len(numbers) - 1)
    for words in changed._value_words(_SLICE_NODES):
        words[...] = backend.xp.where(words <= last, given[backend.xp.minimum(words, last)], words)
    return changed


def batches_of_references(
    backend: Backend, settings: MinimizerSettings, references: References | TargetRun
) -> Iterator[Batch]:
    """Yield letters, offsets, targets and starts of references in files."""
    for batch in references.batches(
        overlap=settings.k - 1, batch_letters=BATCH_LETTERS[backend.name]
    ):
        letters, offsets = map(backend.from_host, (batch.letters, batch.offsets))
        yield letters, offsets, batch.targets, batch.starts


def batches_of_letters(
    backend: Backend, settings: MinimizerSettings, letters: Any, offsets: Any, before: int
) -> Iterator[Batch]:
    """Yield the same for references in arrays, numbered from `before`."""
    size, offsets = _SLICE_LETTERS[backend.name], backend.to_host(offsets)
    for start in range(0, len(letters), size):
        end = min(start + size + settings.k - 1, len(letters))
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, end))
        edges = np.clip(offsets[first : last + 1], start, end) - start
        starts = np.maximum(start - offsets[first:last], 0)
        targets = np.arange(first, last) + before
        yield letters[start:end], backend.from_host(edges), targets, starts


def slots_of(table: HashMap | TaxonMap) -> int:
    """Return how many places a map has."""
    return table.layout.words if isinstance(table, TaxonMap) else table._opened().slots.slots


def counts_of_nodes(backend: Backend, table: HashMap | TaxonMap, n: int) -> Any:
    """Return the number of minimizers of each of n taxa (int64), on the host."""
    counts = backend.zeros(n, np.int64)
    for nodes in table._value_slices():
        counts += backend.xp.bincount(nodes, minlength=n)
    return backend.to_host(counts)


_SEED = "seed"
# Of slots that are written as they are: with a lower one, minimizers alone take half of the room.
_LEAST_LOAD = 0.4
# Of the minimizers that words have room for: with fewer, a file has fewer words.
_FULL = 0.95


def saved_arrays(
    backend: Backend, table: HashMap | TaxonMap
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a map for a file of its own, on the host, and header fields.

    It has words, or slots as they are, so that a load maps them, unless most slots are free.
    """
    if isinstance(table, HashMap):
        slots = table._opened().slots
        if _LEAST_LOAD * slots.slots <= len(table):
            return SlotImage.of(slots).buffers(), {_SEED: table._seed}
    return arrays_of(backend, table)


def arrays_of(
    backend: Backend, table: HashMap | TaxonMap
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a map for any file, and header fields.

    Words have few free ones among them.
    """
    if isinstance(table, TaxonMap):
        is_full = len(table) >= _FULL * table.layout.room
        return (table if is_full else table.of_room(len(table))).buffers(), {}
    keys, nodes = map(backend.to_host, table.items())
    return {"minimizers": keys, "nodes": nodes}, {_SEED: table._seed}


def items_of(
    saved: SavedIndex, settings: MinimizerSettings
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the minimizers and taxon numbers of a file, part by part.

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
        if TaxonMap.is_in(arrays):
            yield from TaxonMap.in_file(arrays, backends.get("cpu"), settings, n).slices()
            continue
        keys = arrays.get("minimizers", _KEY)
        nodes = arrays.get("nodes", _NODE, len(keys))
        arrays.check(not len(nodes) or int(nodes.max()) < n, "it has unknown taxa")
        yield keys, nodes


def load_table(
    saved: SavedIndex, backend: Backend, settings: MinimizerSettings
) -> HashMap | TaxonMap:
    """Return the map in a file.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    saved.arrays.check({"letters", "notes"} <= saved.told.keys(), "its header is malformed")
    taxa = _taxa_of(saved)
    if TaxonMap.is_in(saved.arrays) and len(saved.parts) == 1:
        return TaxonMap.in_file(saved.parts[0], backend, settings, taxa)
    seed = saved.told.get(_SEED)
    is_seed = type(seed) is int and 0 <= seed < 2**64
    has_words = any(map(TaxonMap.is_in, saved.parts))
    saved.arrays.check(is_seed or has_words, "its map has no seed")
    if SlotImage.is_in(saved.arrays):
        table = empty_table(backend.name, seed=seed)
        if table._take(_image_in(saved).slots):
            return table
    items = list(items_of(saved, settings))
    stored = sum(len(keys) for keys, _ in items)
    put = backend.from_host
    made = fill_by_seed(
        backend, settings, ((put(keys), put(nodes)) for keys, nodes in items),
        keys=stored, taxa=taxa, seed=seed,
    )  # fmt: skip
    saved.arrays.check(len(made) == stored, "its minimizers are not distinct")
    return made


def _taxa_of(saved: SavedIndex) -> int:
    """Return the number of taxa in a file."""
    saved.arrays.check(saved.taxonomy is not None, "it has no taxonomy")
    assert saved.taxonomy is not None
    return len(saved.taxonomy.taxids)


def _image_in(saved: SavedIndex) -> SlotImage:
    """Return the slots in a file, with taxon numbers as values."""
    image = SlotImage.of_buffers(saved.arrays, _KEY, _NODE)
    n = _taxa_of(saved)
    saved.arrays.check(image.has_values_below(n), "it has unknown taxa")
    return image
