"""Call all reads of the references, and count the calls by the references' taxa."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.native import native
from dgpuhash.kmer.distributions import ReadDistribution
from dgpuhash.kmer.minimizers.building import BATCH_LETTERS
from dgpuhash.kmer.minimizers.runs import minimizer_runs
from dgpuhash.kmer.references import ReferenceBatch, References

if TYPE_CHECKING:
    from dgpuhash.kmer.minimizers.rule import MinimizerRule

_Counts = dict[int, Counter[tuple[int, int]]]


def count_reads(
    rule: MinimizerRule, part: Any, references: References, lengths: Sequence[int]
) -> dict[int, ReadDistribution]:
    """Return how an index calls each read of its own references, by length.

    A read begins at each letter of a reference, and is called by the taxa of its k-mers alone, as
    Bracken has it: without a least number of minimizers, and those that only the root has count
    where there are no others.

    Parameters
    ----------
    rule : MinimizerRule
    part : MinimizerPart
        All minimizers, by the numbers of the rule's taxonomy.
    references : References
        Those of the index, in the order of its targets.
    lengths : sequence of int
        Ascending; each at least k.
    """
    counts: _Counts = {length: Counter() for length in lengths}
    settings = {"overlap": lengths[-1] - 1, "batch_letters": BATCH_LETTERS[rule.backend.name]}
    for batch in references.batches(**settings):
        _count(rule, part, batch, counts)
    taxids = rule.taxonomy.taxids
    return {length: _distribution(length, taxids, found) for length, found in counts.items()}


def _count(rule: MinimizerRule, part: Any, batch: ReferenceBatch, counts: _Counts) -> None:
    backend, tree, longest = rule.backend, rule.taxonomy.tree, max(counts)
    put, host = backend.from_host, backend.to_host
    nodes = rule.nodes[batch.targets]
    runs = minimizer_runs(backend, rule.settings, put(batch.letters), put(batch.offsets))
    taxa, _ = part.table.find(runs.minimizers)
    places = np.where(tree.preorder < 0, 0, tree.preorder).astype(np.uint32)
    for length, found in counts.items():
        # Shorter reads that lie in what pieces share are those of the piece before.
        skipped = np.where(batch.starts > 0, longest - length, 0)
        rows = native().count_read_calls(
            *map(host, (runs.starts, runs.kmers, taxa)), batch.offsets, skipped, nodes,
            rule.settings.k, length, tree.parents, places, tree.sizes.astype(np.uint32),
        )  # fmt: skip
        found.update({(node, call): reads for node, call, reads in rows if node})


def _distribution(
    length: int, taxids: np.ndarray, counts: Counter[tuple[int, int]]
) -> ReadDistribution:
    rows = np.array([(call, node, reads) for (node, call), reads in counts.items()], np.int64)
    calls, nodes, reads = rows.reshape(-1, 3).T
    order = np.lexsort((nodes, calls))
    own, called = taxids[nodes[order]], taxids[calls[order]]
    return ReadDistribution(length, own.astype(np.int64), called.astype(np.int64), reads[order])
