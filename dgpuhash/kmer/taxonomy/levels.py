"""What ranks make of a tree: ranked lineages, and the codes of reports."""

from __future__ import annotations

import numpy as np

from dgpuhash.kmer.taxonomy.ranks import SLOTS, codes_of, slots_of
from dgpuhash.kmer.taxonomy.taxa import Taxa


def slots_by_number(taxa: Taxa) -> np.ndarray:
    """Return the slot of each number, -1 of those without; the root's is the last, always."""
    found = np.append(np.int8(-1), slots_of(taxa.rank_names)[taxa.ranks])
    found[1] = len(SLOTS) - 1
    return found


def ranked_lineages(taxa: Taxa, slots: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the taxid in each slot of each number's lineage, 0 where none is.

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
    """Return, by number, the letter of reports and the steps from the ancestor that has it."""
    tree = taxa.tree
    letters = np.append("U", codes_of(taxa.rank_names)[taxa.ranks])
    letters[1] = letters[1] or "R"
    steps = np.zeros(len(letters), np.int64)
    for low, high in zip(tree.edges[1:-1], tree.edges[2:], strict=True):
        without = low + np.flatnonzero(letters[low:high] == "")
        parents = tree.parents[without]
        letters[without], steps[without] = letters[parents], steps[parents] + 1
    return letters, steps
