"""Classify every read-length window of the references, and count the calls by taxon.

The counts are those of Bracken's k-mer distribution file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.native import native
from dgpuhash.kmer.calls import Reads
from dgpuhash.kmer.distributions import ReadDistribution
from dgpuhash.kmer.minimizers.building import BATCH_LETTERS
from dgpuhash.kmer.minimizers.calling import FoundRuns
from dgpuhash.kmer.references import ReferenceBatch, References

if TYPE_CHECKING:
    from dgpuhash.kmer.minimizers.rule import MinimizerRule
    from dgpuhash.kmer.target_runs import TargetRun

Counts = dict[int, Counter[tuple[int, int]]]
"""Reads of each length, by the numbers of the taxa of their references and of their calls."""


def count_reads(
    rule: MinimizerRule, part: Any, references: References, lengths: Sequence[int]
) -> dict[int, ReadDistribution]:
    """Return the calls of all windows of an index's own references, by read length.

    A window begins at each letter of a reference. As in Bracken, only the taxa of its k-mers decide
    its call: no least number of minimizers applies. K-mers whose taxon is the root count only in a
    window without others.

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
    query = rule.query({})

    def counted() -> Iterator[Counts]:
        for batch in _batches(rule, references, lengths):
            keys, rest = _dealt(rule, [batch], query, 1)
            yield counted_windows(rule, (lengths, *rest), [rule.find(part, keys, query)], query)

    return distributions_of(rule, lengths, counted())


def dealt_windows(
    rule: MinimizerRule, run: TargetRun, lengths: Sequence[int], query: Any, n: int
) -> list[Any]:
    """Return the minimizers of a run of targets for each of n parts, and the state to count."""
    *keys, rest = _dealt(rule, _batches(rule, run, lengths), query, n)
    return [*keys, (lengths, *rest)]


def counted_windows(rule: MinimizerRule, rest: Any, found: list[Any], query: Any) -> Counts:
    """Count the windows of each length by reference taxon and call, from all parts' results."""
    lengths, batches, sides = rest
    counts: Counts = {length: Counter() for length in lengths}
    tree, host = rule.taxonomy.tree, rule.backend.to_host
    places = np.where(tree.preorder < 0, 0, tree.preorder).astype(np.uint32)
    for batch, (side,) in zip(batches, rule.runs_with_taxa(sides, found, query), strict=True):
        runs = [host(array) for array in (side.runs.starts, side.runs.kmers, side.taxa)]
        for length, own in counts.items():
            # Shorter reads that lie in what pieces share are those of the piece before.
            skipped = np.where(batch.starts > 0, lengths[-1] - length, 0)
            rows = native().count_read_calls(
                *runs, batch.offsets, skipped, rule.nodes[batch.targets], rule.settings.k, length,
                tree.parents, places, tree.sizes.astype(np.uint32),
            )  # fmt: skip
            own.update({(node, call): reads for node, call, reads in rows if node})
    return counts


def distributions_of(
    rule: MinimizerRule, lengths: Sequence[int], counted: Iterable[Counts]
) -> dict[int, ReadDistribution]:
    """Sum the counts of `counted_windows` into distributions."""
    sums: Counts = {length: Counter() for length in lengths}
    for counts in counted:
        for length, own in counts.items():
            sums[length].update(own)
    return {length: _distribution(length, rule.taxonomy.taxids, sums[length]) for length in lengths}


def _batches(
    rule: MinimizerRule, references: References | TargetRun, lengths: Sequence[int]
) -> Iterator[ReferenceBatch]:
    size = BATCH_LETTERS[rule.backend.name]
    return references.batches(overlap=lengths[-1] - 1, batch_letters=size)


def _dealt(rule: MinimizerRule, batches: Iterable[ReferenceBatch], query: Any, n: int) -> list[Any]:
    """Return the minimizers of pieces for each of n parts; then the pieces, and their runs."""
    without_letters: list[ReferenceBatch] = []

    def runs() -> Iterator[list[FoundRuns]]:
        for batch in batches:
            without_letters.append(replace(batch, letters=batch.letters[:0]))
            yield [rule.runs(Reads.of(rule.backend, batch.letters, batch.offsets), query.options)]

    *keys, rest = rule.deal_runs(runs(), n)
    return [*keys, (without_letters, rest)]


def _distribution(
    length: int, taxids: np.ndarray, counts: Counter[tuple[int, int]]
) -> ReadDistribution:
    rows = np.array([(call, node, reads) for (node, call), reads in counts.items()], np.int64)
    calls, nodes, reads = rows.reshape(-1, 3).T
    order = np.lexsort((nodes, calls))
    own, called = taxids[nodes[order]], taxids[calls[order]]
    return ReadDistribution(length, own.astype(np.int64), called.astype(np.int64), reads[order])
