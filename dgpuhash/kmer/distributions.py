"""Read distributions: an index's calls of every read-length window of its references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.options import whole_number

_ARRAY, _INT64 = "distributions", np.dtype(np.int64)
_COLUMNS = 4
_LONGEST = 1_000_000
_HEAD = "mapped_taxid\tgenome_taxids:kmers_mapped:total_genome_kmers"


@dataclass(frozen=True, slots=True)
class ReadDistribution:
    """Calls of all windows of one read length, by the taxon of their reference.

    Attributes
    ----------
    length : int
        Letters of each window.
    taxids, calls : array of int64
        Pairs of a reference's taxid and the taxid of a call, 0 for windows without a call. Pairs
        are distinct, in the order of calls.
    reads : array of int64
        Number of windows of the taxon with the call.

    Examples
    --------
    >>> counts = np.array([[562, 561, 3], [562, 562, 7]])
    >>> list(ReadDistribution(100, *counts.T).lines())[1:]
    ['561\\t562:3:10', '562\\t562:7:10']
    """

    length: int
    taxids: np.ndarray
    calls: np.ndarray
    reads: np.ndarray

    def totals(self) -> dict[int, int]:
        """Return the number of reads of each taxon."""
        distinct, places = np.unique(self.taxids, return_inverse=True)
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, places, self.reads)
        return dict(zip(distinct.tolist(), sums.tolist(), strict=True))

    def lines(self) -> Iterator[str]:
        """Yield the lines of Bracken's file of this distribution."""
        totals, texts = self.totals(), dict[int, list[str]]()
        rows = zip(self.taxids.tolist(), self.calls.tolist(), self.reads.tolist(), strict=True)
        for taxid, call, reads in rows:
            texts.setdefault(call, []).append(f"{taxid}:{reads}:{totals[taxid]}")
        yield _HEAD
        for call, each in texts.items():
            yield f"{call}\t{' '.join(each)}"


def checked_lengths(lengths: Iterable[int], k: int) -> list[int]:
    """Return lengths of reads, distinct and ascending.

    Raises
    ------
    SpecError
        When one is shorter than a k-mer, or no whole number.
    """
    return sorted({whole_number("distributions", each, k, _LONGEST) for each in lengths})


def distribution_array(distributions: Mapping[int, ReadDistribution]) -> dict[str, np.ndarray]:
    """Return the distributions in file form, empty without any."""
    rows = [
        np.stack([np.full(len(each.reads), length), each.taxids, each.calls, each.reads], 1)
        for length, each in distributions.items()
    ]
    return {_ARRAY: np.concatenate(rows).astype(_INT64).ravel()} if rows else {}


def saved_distributions(saved: SavedIndex) -> dict[int, ReadDistribution]:
    """Return the distributions in a file, by length.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    if not saved.arrays.has(_ARRAY):
        return {}
    flat = saved.arrays.get(_ARRAY, _INT64)
    saved.arrays.check(len(flat) % _COLUMNS == 0, "its distributions have other columns")
    rows = flat.reshape(-1, _COLUMNS)
    saved.arrays.check(bool((rows >= 0).all()), "its distributions have numbers below 0")
    return {
        length: ReadDistribution(length, *rows[rows[:, 0] == length, 1:].T)
        for length in np.unique(rows[:, 0]).tolist()
    }


def chosen_distribution(
    distributions: Mapping[int, ReadDistribution], length: int | None
) -> ReadDistribution:
    """Return the distribution of a length, or the only one.

    Raises
    ------
    SpecError
        When there is none of that length, or none or several where no length is passed.
    """
    lengths = ", ".join(map(str, distributions))
    if not distributions:
        raise SpecError(
            "the index has no distributions of reads; build it with --distributions 150 "
            "(distributions=[150]), of as many letters as reads have"
        )
    if length is None and len(distributions) > 1:
        raise SpecError(
            f"the index has distributions of reads of {lengths} letters; choose one with "
            "--read-length"
        )
    if length is not None and length not in distributions:
        raise SpecError(
            f"the index has no distribution of reads of {length} letters; choose one of {lengths}, "
            "or build it with further --distributions"
        )
    return distributions[next(iter(distributions)) if length is None else length]
