"""The map from minimizers to lowest common ancestors, made from references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.minimizers.runs import minimizer_runs
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.references import ReferenceBatch, Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap, lca

__all__ = [
    "BATCH_LETTERS",
    "counts_of_taxa",
    "empty_table",
    "figures",
    "fold_references",
    "renumbered",
    "room_for",
    "taxonomy_of",
]

_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)
# Of letters: what a CPU works at stays in its caches, and in memory that it had before.
BATCH_LETTERS = {"cpu": 2**20, "cuda": 2**25}
# Minimizers that are given room before they come: the same ones may come again and again.
_MOST_ROOM = {"cpu": 2**27, "cuda": 2**30}


def empty_table(device: str, keys: int = 0) -> HashMap:
    """Return a map of minimizers to numbers of taxa with room for so many."""
    return HashMap(_KEY, _NODE, keys, device=device)


def room_for(settings: MinimizerSettings, letters: int, device: str) -> int:
    """Return how many minimizers references of so many letters may have."""
    return min(int(letters * settings.density * 1.02), _MOST_ROOM[device])


def taxonomy_of(whole: Taxonomy, targets: Targets, held: Taxonomy | None) -> Taxonomy:
    """Return the taxa of targets, those that an index holds already, and their ancestors.

    Raises
    ------
    TaxonomyError
        When a taxon of the index has another lineage in `whole`.
    """
    taxids = np.unique(targets.taxids)
    if held is None:
        return whole.subset(taxids)
    made = whole.subset(np.union1d(taxids, held.taxids))
    numbers = made.numbers(held.taxids)
    is_moved = made.taxids[made.parents[numbers]] != held.taxids[held.parents]
    if is_moved.any():
        taxid = held.taxids[np.argmax(is_moved)]
        raise TaxonomyError(
            f"taxid {taxid} of the index has another parent in this taxonomy; pass the one that "
            "the index was built with, or build again"
        )
    return made


def renumbered(table: HashMap, held: Taxonomy, made: Taxonomy, backend: Backend) -> HashMap:
    """Return the map with the numbers of another taxonomy; itself where they are the same."""
    numbers = made.numbers(held.taxids)
    if (numbers == np.arange(len(numbers))).all():
        return table
    keys, nodes = table.items()
    changed = empty_table(backend.name, len(keys))
    changed._add(keys, backend.from_host(numbers.astype(_NODE))[nodes])
    return changed


def fold_references(
    backend: Backend,
    settings: MinimizerSettings,
    table: HashMap,
    taxonomy: Taxonomy,
    batches: Iterable[ReferenceBatch],
    numbers: np.ndarray,
    first: int,
) -> None:
    """Add the minimizers of references to a map.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings
    table : HashMap
    taxonomy : Taxonomy
        Whose numbers the map has.
    batches : iterable of ReferenceBatch
        Pieces share ``k - 1`` letters.
    numbers : array of uint32
        Of each target, from the target `first` on; 0 of those without a taxon.
    first : int
    """
    change = lca(taxonomy.parents).on(backend)
    for batch in batches:
        nodes = numbers[batch.targets - first]
        runs = minimizer_runs(
            backend, settings,
            backend.from_host(batch.letters), backend.from_host(batch.offsets),
            nodes=backend.from_host(nodes),
        )  # fmt: skip
        if len(runs):
            table._insert_combined(runs.minimizers, runs.nodes, change)


def counts_of_taxa(backend: Backend, table: HashMap, taxonomy: Taxonomy) -> Any:
    """Return how many minimizers have each number of a taxonomy (int64), on the host."""
    _, nodes = table.items()
    found = backend.xp.bincount(nodes, minlength=len(taxonomy.taxids))
    return backend.to_host(found).astype(np.int64, copy=False)


def figures(settings: MinimizerSettings, table: HashMap, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was read for a map of minimizers, and its size."""
    return {
        "k": settings.k,
        "l": settings.l,
        "spaces": settings.spaces,
        "letters": told["letters"],
        "distinct": len(table),
        "nbytes": table.nbytes,
        "load": round(len(table) / max(table.stats().slots, 1), 3),
    }
