"""Bracken's rule in plain Python: how reads of references are called, and how reads are shared."""

from __future__ import annotations

from collections import Counter

from kmer.models import Reference
from kmer.models.minimizers import MinimizerModel
from kmer.taxonomy_model import Model


def distribution(
    made: MinimizerModel, references: list[Reference], length: int
) -> Counter[tuple[int, int]]:
    """Return the number of reads by the taxid of their reference and their call."""
    found: Counter[tuple[int, int]] = Counter()
    size = length - made.k + 1
    for reference in references:
        kmers = [
            0 if each is None else made.taxids.get(each, 0)
            for each in made.minimizers(reference.letters)
        ]
        for at in range(len(kmers) - size + 1):
            hits = Counter(taxid for taxid in kmers[at : at + size] if taxid)
            found[reference.taxid, made.resolve(hits, 0)] += 1
    return found


def shares(
    taxonomy: Model,
    calls: Counter[int],
    counts: Counter[tuple[int, int]],
    rank: str,
    threshold: int,
) -> dict[int, tuple[int, float]]:
    """Return the reads in the clade of each taxon of a rank, and those that it gets."""
    clades: Counter[int] = Counter()
    for taxid, reads in calls.items():
        for above in taxonomy.lineage(taxid) if taxid else ():
            clades[above] += reads

    def level(taxid: int) -> int:
        return next((each for each in taxonomy.lineage(taxid) if taxonomy.taxa[each][1] == rank), 0)

    totals: Counter[int] = Counter()
    for (own, _), reads in counts.items():
        totals[own] += reads
    kept = {
        taxid for taxid in clades
        if taxonomy.taxa[taxid][1] == rank and clades[taxid] >= max(threshold, 1)
    }  # fmt: skip
    added = dict.fromkeys(kept, 0.0)
    for taxid, reads in calls.items():
        if not taxid or level(taxid):
            continue
        weights = {}
        for (own, call), some in counts.items():
            if call == taxid and level(own) in kept and clades[own]:
                alone = counts[own, own] / totals[own] if counts[own, own] else 1.0
                weights[own] = some / totals[own] * calls[own] / alone
        for own, weight in weights.items():
            if sum(weights.values()):
                added[level(own)] += reads * weight / sum(weights.values())
    return {taxid: (clades[taxid], added[taxid]) for taxid in kept}
