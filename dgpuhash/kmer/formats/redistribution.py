"""Redistribute reads of higher taxa among the taxa of a rank, as Bracken does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.distributions import ReadDistribution
from dgpuhash.kmer.formats.report import by_number, in_order
from dgpuhash.kmer.taxonomy.ranks import CODES
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.typing import KeysLike

_RANKS = ("domain", "phylum", "class", "order", "family", "genus", "species")
_TITLES = (
    "name", "taxonomy_id", "taxonomy_lvl", "kraken_assigned_reads", "added_reads",
    "new_est_reads", "fraction_total_reads",
)  # fmt: skip


class SharedReads(NamedTuple):
    """Reads of the taxa of a rank, in the order of a report.

    Attributes
    ----------
    taxids : array of int64
    reads : array of int64
        That are called as the taxon, or one below it.
    added : array of float64
        Of taxa above, that are estimated to be the taxon's.

    Examples
    --------
    >>> found = SharedReads(np.array([562]), np.array([30]), np.array([4.5]))
    >>> found.reads + found.added
    array([34.5])
    """

    taxids: np.ndarray
    reads: np.ndarray
    added: np.ndarray


def share_reads(
    taxonomy: Taxonomy,
    taxids: KeysLike,
    counts: KeysLike,
    distribution: ReadDistribution,
    rank: str = "species",
    *,
    threshold: int = 10,
) -> SharedReads:
    """Return the reads of each taxon of a rank, with its share of higher taxa's reads.

    The share is Bayes' estimate of Lu and others, PeerJ Comput. Sci. 3:e104, 2017,
    https://doi.org/10.7717/peerj-cs.104: the chance that a read of a taxon's references is called
    so, times the reads that the taxon itself has over the chance that its reads are called as it.

    Parameters
    ----------
    taxonomy : Taxonomy
    taxids : array of int
        Distinct calls, 0 of reads without one.
    counts : array of int
        How many reads have each.
    distribution : ReadDistribution
        Of the index that made the calls, for reads of their length.
    rank : str
        From domain to species.
    threshold : int
        Taxa with fewer reads get none, and are left out.

    Raises
    ------
    SpecError
        When there is no such rank.
    TaxonomyError
        When a taxid is unknown.

    Examples
    --------
    Of reads of the first species' references half are called as the genus, of the second's none.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> above = "d__D;p__P;c__C;o__O;f__F;g__G"
    >>> lines = [f"GCA_{name}.1\\t{above};s__G {name}\\n" for name in ("one", "two")]
    >>> _ = file.write_text("".join(lines))
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> genus, one, two = map(taxonomy.taxid, ("G", "G one", "G two"))
    >>> counts = np.array([[one, genus, 5], [one, one, 5], [two, two, 10]])
    >>> distribution = ReadDistribution(150, *counts.T)
    >>> found = share_reads(taxonomy, [genus, one, two], [20, 30, 40], distribution)
    >>> sorted(zip(taxonomy.names(found.taxids), found.added.tolist()))
    [('G one', 20.0), ('G two', 0.0)]
    """
    level = _taxa_of_rank(taxonomy, rank)
    own = by_number(taxonomy, taxids, counts)
    clades = taxonomy.tree.sums(own)
    is_kept = clades[level] >= max(threshold, 1)
    is_kept[0] = False
    added = np.zeros(len(own))
    rows = zip(*_shares(taxonomy, own, clades, level, is_kept, distribution), strict=True)
    for taxon, reads in rows:
        added[level[taxon]] += reads
    shown = in_order(taxonomy, clades, zero_counts=False)
    shown = shown[(level[shown] == shown) & is_kept[level[shown]] & (level[shown] > 0)]
    found = taxonomy.taxids[shown].astype(np.int64)
    return SharedReads(found, clades[shown], added[shown])


def _taxa_of_rank(taxonomy: Taxonomy, rank: str) -> np.ndarray:
    """Return by number the ancestor at a rank, or the taxon itself; 0 if there is none."""
    if rank not in _RANKS:
        raise SpecError(f"rank {rank!r} of estimated reads; use one of {', '.join(_RANKS)}")
    letters, steps = taxonomy.letters_and_steps
    numbers = np.arange(len(letters))
    level = np.where((letters == CODES[rank]) & (steps == 0), numbers, 0)
    edges = taxonomy.tree.edges
    for low, high in pairwise(edges.tolist()):
        above = level[taxonomy.tree.parents[low:high]]
        level[low:high] = np.where(above, above, level[low:high])
    return level


def _shares(
    taxonomy: Taxonomy,
    own: np.ndarray,
    clades: np.ndarray,
    level: np.ndarray,
    is_kept: np.ndarray,
    distribution: ReadDistribution,
) -> tuple[np.ndarray, np.ndarray]:
    """Return taxa with references, and each one's share of the reads of a higher taxon."""
    taxa, calls = taxonomy.numbers(distribution.taxids), taxonomy.numbers(distribution.calls)
    totals = np.zeros(len(own))
    np.add.at(totals, taxa, distribution.reads)
    chances = distribution.reads / totals[taxa]
    as_itself = np.ones(len(own))
    is_itself = taxa == calls
    as_itself[taxa[is_itself]] = chances[is_itself]
    reads = own / as_itself
    is_shared = (
        (level[calls] == 0) & (calls > 0) & (own[calls] > 0)
        & is_kept[level[taxa]] & (clades[taxa] > 0)
    )  # fmt: skip
    taxa, calls = taxa[is_shared], calls[is_shared]
    weights = chances[is_shared] * reads[taxa]
    sums = np.zeros(len(own))
    np.add.at(sums, calls, weights)
    parts = np.divide(weights, sums[calls], out=np.zeros(len(weights)), where=sums[calls] > 0)
    return taxa, parts * own[calls]


def shared_lines(taxonomy: Taxonomy, rank: str, found: SharedReads) -> Iterator[str]:
    """Yield the lines of Bracken's table: whole reads of each taxon and their fraction.

    Raises
    ------
    SpecError
        When no taxon of the rank has reads enough.
    """
    estimates = found.reads + found.added
    if not len(estimates):
        raise SpecError(f"no {rank} has reads enough; lower --threshold, or report another rank")
    total = int(estimates.sum())
    yield "\t".join(_TITLES)
    names = taxonomy.names(found.taxids)
    rows = zip(names, found.taxids.tolist(), found.reads.tolist(), estimates.tolist(), strict=True)
    for name, taxid, reads, estimate in rows:
        whole = int(estimate)
        columns = (name, taxid, CODES[rank], reads, whole - reads, whole, f"{whole / total:.5f}")
        yield "\t".join(map(str, columns))
