"""How many reads the taxa of one rank have, with the reads of higher and lower ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.taxonomy.ranks import slot_of


def abundances(
    labels: Labels, calls: np.ndarray, counts: np.ndarray, rank: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return calls at a rank, as far as there are any, and how many reads each has (float64).

    Reads below the rank are those of the ancestor that has it, or else of the next higher one.
    Reads above are shared among the nearest taxa below that have any, by all reads below these;
    without such they stay. Taxa without a place in ranked lineages count as the next higher one.

    Parameters
    ----------
    labels : Labels
    calls : array of int64
        Distinct; 0 for reads without one, which stay.
    counts : array of int64
    rank : str
        From sequence to domain.

    Raises
    ------
    TaxonomyError
        When the rank is none of the ranked lineages.
    """
    wanted = slot_of(rank)
    found: dict[tuple[int, int], float] = {}
    rows = np.flatnonzero(calls)
    lineages = labels.lineages(calls[rows])
    for lineage, count in zip(lineages.tolist(), counts[rows].tolist(), strict=True):
        lowest = next(slot for slot, taxid in enumerate(lineage) if taxid)
        slot = next((at for at in range(wanted, len(lineage)) if lineage[at]), lowest)
        slot = max(slot, lowest)
        found[slot, lineage[slot]] = found.get((slot, lineage[slot]), 0.0) + count
    taxa = {
        (slot, lineage[slot]): lineage
        for lineage in lineages.tolist()
        for slot in range(len(lineage))
        if (slot, lineage[slot]) in found
    }
    _share_down(found, taxa)
    kept = [(taxid, count) for (_, taxid), count in found.items()]
    kept += [(0, float(count)) for count in counts[calls == 0].tolist()]
    taxids, numbers = zip(*kept, strict=True) if kept else ((), ())
    return by_rank(labels, np.array(taxids, np.int64), np.array(numbers, np.float64))


def by_rank(labels: Labels, calls: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return calls and their counts from the highest rank to the lowest, 0 last.

    Calls of one rank are in the order of their numbers.
    """
    slots = np.full(len(calls), -2)
    rows = np.flatnonzero(calls)
    if len(rows):
        slots[rows] = (labels.lineages(calls[rows]) != 0).argmax(1)
    order = np.lexsort((calls, -slots))
    return calls[order], counts[order]


def _share_down(
    found: dict[tuple[int, int], float], taxa: dict[tuple[int, int], list[int]]
) -> None:
    """Share the counts of taxa among those next below them that have counts."""
    children: dict[tuple[int, int], list[tuple[int, int]]] = {}
    below = dict.fromkeys(found, 0.0)
    for taxon in sorted(found):
        lineage = taxa[taxon]
        above = ((slot, lineage[slot]) for slot in range(taxon[0] + 1, len(lineage)))
        parent = next((each for each in above if each in below), None)
        if parent is not None:
            below[parent] += below[taxon] + found[taxon]
            children.setdefault(parent, []).append(taxon)
    for taxon in sorted(children, reverse=True):
        for child in children[taxon]:
            found[child] += found[taxon] * (found[child] + below[child]) / below[taxon]
        del found[taxon]


def abundance_frame(labels: Labels, calls: np.ndarray, counts: np.ndarray, rank: str) -> Any:
    """Return what `abundances` tells as a DataFrame, with names and shares of all reads."""
    import pandas as pd

    found, reads = abundances(labels, calls, counts, rank)
    total = float(reads.sum())
    return pd.DataFrame(
        {
            "taxid": found,
            "name": labels.names(found),
            "rank": labels.ranks(found),
            "reads": reads,
            "share": reads / total if total else reads,
        }
    )
