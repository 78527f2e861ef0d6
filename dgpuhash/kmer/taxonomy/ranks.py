"""Ranks: names in NCBI's files, slots of ranked lineages, codes in reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.taxonomy.taxa import Taxa

# From the lowest to the highest; a ranked lineage has one place for each.
SLOTS = (
    "sequence",
    "form",
    "variety",
    "subspecies",
    "species",
    "subgenus",
    "genus",
    "subtribe",
    "tribe",
    "subfamily",
    "family",
    "suborder",
    "order",
    "subclass",
    "class",
    "subphylum",
    "phylum",
    "subkingdom",
    "kingdom",
    "domain",
    "root",
)
# NCBI's other ranks, by the slot that takes them. All that are in neither have no slot.
_FOLDED = {
    "genome": "sequence",
    "forma": "form",
    "varietas": "variety",
    "species group": "subgenus",
    "species subgroup": "subgenus",
    "superfamily": "suborder",
    "parvorder": "suborder",
    "infraorder": "suborder",
    "superorder": "subclass",
    "infraclass": "subclass",
    "superclass": "subphylum",
    "superphylum": "subkingdom",
    "division": "phylum",
    "subdomain": "kingdom",
    "superkingdom": "domain",
    "acellular root": "domain",
}
_SLOT_OF = {
    **{name: slot for slot, name in enumerate(SLOTS)},
    **{name: SLOTS.index(slot) for name, slot in _FOLDED.items()},
}
CODES = {
    "superkingdom": "D",
    "domain": "D",
    "acellular root": "D",
    "kingdom": "K",
    "phylum": "P",
    "class": "C",
    "order": "O",
    "family": "F",
    "genus": "G",
    "species": "S",
}


def slot_of(rank: str) -> int:
    """Return the slot of a rank in ranked lineages.

    Raises
    ------
    TaxonomyError
        When the rank has none.

    Examples
    --------
    >>> slot_of("species"), slot_of("superkingdom")
    (4, 19)
    """
    found = _SLOT_OF.get(rank)
    if found is None:
        raise TaxonomyError(f"{rank!r} is not a rank of lineages; use one of {', '.join(SLOTS)}")
    return found


def slots_of(names: Sequence[str]) -> np.ndarray:
    """Return the slot of each rank, -1 for those without."""
    return np.array([_SLOT_OF.get(name, -1) for name in names], np.int8)


def codes_of(names: Sequence[str]) -> np.ndarray:
    """Return the letter of each rank in reports, "" for those without."""
    return np.array([CODES.get(name, "") for name in names], "U1")


def slots_by_number(taxa: Taxa) -> np.ndarray:
    """Return the slot of each taxon number, -1 without one; the root has the last slot."""
    found = np.append(np.int8(-1), slots_of(taxa.rank_names)[taxa.ranks])
    found[1] = len(SLOTS) - 1
    return found


def ranked_lineages(taxa: Taxa, slots: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the taxid in each slot of each number's lineage, 0 for none.

    All go up one level at a time; what is higher takes the slot from what is lower.
    """
    tree, at = taxa.tree, numbers.copy()
    found = np.zeros((len(at), len(SLOTS)), np.int64)
    rows = np.flatnonzero(at)
    while len(rows):
        here = at[rows]
        has = slots[here] >= 0
        found[rows[has], slots[here][has]] = tree.taxids[here[has]]
        at[rows] = tree.parents[here]
        rows = rows[at[rows] != 0]
    return found


def letters_and_steps(taxa: Taxa) -> tuple[np.ndarray, np.ndarray]:
    """Return by number the report letter of the nearest ranked ancestor, and the steps to it."""
    tree = taxa.tree
    letters = np.append("U", codes_of(taxa.rank_names)[taxa.ranks])
    letters[1] = letters[1] or "R"
    steps = np.zeros(len(letters), np.int64)
    for low, high in zip(tree.edges[1:-1], tree.edges[2:], strict=True):
        without = low + np.flatnonzero(letters[low:high] == "")
        parents = tree.parents[without]
        letters[without], steps[without] = letters[parents], steps[parents] + 1
    return letters, steps
