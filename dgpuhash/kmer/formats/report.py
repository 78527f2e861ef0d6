"""Write reports of counts by taxon in the format of Kraken 2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash.errors import ShapeError
from dgpuhash.kmer.taxonomy.ranks import CODES
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy


def kreport(
    taxonomy: Taxonomy,
    taxids: Any,
    counts: Any = None,
    *,
    zero_counts: bool = False,
    minimizers: tuple[Any, Any] | None = None,
) -> Iterator[str]:
    """Yield the lines of a report: percent, clade, own, rank code, taxid and indented name.

    Taxa follow their parents, those with greater counts first, of equal ones the lower taxid.

    Parameters
    ----------
    taxonomy : Taxonomy
    taxids : array of int
        The taxid of each read, 0 of those without; or distinct ones with `counts`.
    counts : array of int, optional
        How many reads each of `taxids` has; those of one taxid are added.
    zero_counts : bool
        Whether taxa without reads have lines as well.
    minimizers : pair of arrays of int64, optional
        By number of the taxonomy, the minimizers of the reads in each clade, and the distinct ones
        of them: two more columns after the counts.

    Raises
    ------
    TaxonomyError
        When a taxid is unknown or deleted.
    ShapeError
        When arrays have other lengths.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> _ = file.write_text("GCA_1.1\\td__Archaea;p__Nanoarchaeota\\n")
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> calls = [taxonomy.taxid("Archaea"), 0, 1, 0]
    >>> for line in kreport(taxonomy, calls):
    ...     print(line.replace("\\t", " "))
     50.00 2 2 U 0 unclassified
     50.00 2 1 R 1 root
     25.00 1 1 D 10764658325130   Archaea
    """
    own = by_number(taxonomy, taxids, counts)
    clades = taxonomy.tree.sums(own)
    total = int(own.sum())
    extra = _extra_columns(taxonomy, minimizers)
    unclassified = int(own[0])
    if unclassified or zero_counts:
        yield (
            f"{_percent(unclassified, total)}\t{unclassified}\t{unclassified}{extra(0)}\tU\t0\t"
            + ("unclassified")
        )
    shown = in_order(taxonomy, clades, zero_counts)
    taxa = taxonomy.taxids[shown]
    depths = np.searchsorted(taxonomy.tree.edges, shown, side="right") - 1
    columns = zip(
        shown.tolist(),
        clades[shown].tolist(),
        own[shown].tolist(),
        taxonomy.report_codes(taxa),
        taxa.tolist(),
        depths.tolist(),
        taxonomy.names(taxa),
        strict=True,
    )
    for number, clade, count, code, taxid, depth, name in columns:
        yield (
            f"{_percent(clade, total)}\t{clade}\t{count}{extra(number)}\t{code}\t{taxid}\t"
            f"{'  ' * depth}{name}"
        )


def mpa_report(
    taxonomy: Taxonomy, taxids: Any, counts: Any = None, *, zero_counts: bool = False
) -> Iterator[str]:
    """Yield the lines of a MetaPhlAn-style report: a path of names and a clade's count.

    Paths have the ranks from domain to species alone, each name with its letter. Reads without a
    taxon have no line.

    Parameters
    ----------
    taxonomy, taxids, counts, zero_counts
        As for `kreport`.

    Raises
    ------
    TaxonomyError
        When a taxid is unknown or deleted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> _ = file.write_text("GCA_1.1\\td__Archaea;p__Nanoarchaeota\\n")
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> list(mpa_report(taxonomy, [taxonomy.taxid("Nanoarchaeota")]))
    ['d__Archaea\\t1', 'd__Archaea|p__Nanoarchaeota\\t1']
    """
    clades = taxonomy.tree.sums(by_number(taxonomy, taxids, counts))
    shown = in_order(taxonomy, clades, zero_counts)
    taxa = taxonomy.taxids[shown]
    letters = [CODES.get(rank, "").lower() for rank in taxonomy.ranks(taxa)]
    paths = {0: ""}
    columns = zip(
        shown.tolist(),
        taxonomy.parents[shown].tolist(),
        letters,
        taxonomy.names(taxa),
        clades[shown].tolist(),
        strict=True,
    )
    for number, parent, letter, name, clade in columns:
        path = paths[parent]
        if letter:
            path = f"{path}|{letter}__{name}" if path else f"{letter}__{name}"
            yield f"{path}\t{clade}"
        paths[number] = path


def taxon_texts(taxonomy: Taxonomy, taxids: Any) -> np.ndarray:
    """Return the text for each taxid, ``name (taxid N)`` if names are wanted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> _ = file.write_text("GCA_1.1\\td__Archaea\\n")
    >>> taxon_texts(Taxonomy.from_gtdb(file), [1, 0, 1]).tolist()
    ['root (taxid 1)', 'unclassified (taxid 0)', 'root (taxid 1)']
    """
    distinct, places = np.unique(np.asarray(taxids, np.int64), return_inverse=True)
    texts = [
        f"{name} (taxid {taxid})"
        for name, taxid in zip(taxonomy.names(distinct), distinct.tolist(), strict=True)
    ]
    return np.array(texts, object)[places]


def by_number(taxonomy: Taxonomy, taxids: Any, counts: Any) -> np.ndarray:
    """Return counts indexed by the taxonomy's numbers."""
    given = np.asarray(taxids, np.int64)
    amounts = np.ones(len(given), np.int64) if counts is None else np.asarray(counts, np.int64)
    if given.shape != amounts.shape or given.ndim != 1:
        raise ShapeError(
            f"{given.shape} taxids and {amounts.shape} counts; pass one count for each taxid"
        )
    found = np.zeros(len(taxonomy.taxids), np.int64)
    np.add.at(found, taxonomy.numbers(given), amounts)
    return found


def lift_rare(
    taxonomy: Taxonomy, taxids: np.ndarray, counts: np.ndarray, amounts: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return taxids and counts with rare taxa's counts moved to the next taxon above.

    Parameters
    ----------
    taxonomy : Taxonomy
    taxids, counts : array of int64
        Distinct; taxid 0 stays, and so does the root.
    amounts : array of int64
        By number of the taxonomy: what each clade has, of which `least` make it none of the rare.
    least : int

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> _ = file.write_text("GCA_1.1\\td__Archaea;p__Nanoarchaeota\\n")
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> taxids = taxonomy.taxids[[0, 3]]
    >>> found, counts = lift_rare(
    ...     taxonomy, taxids, np.array([5, 7]), np.array([0, 9, 9, 2]), 3
    ... )
    >>> taxonomy.names(found), counts
    (['unclassified', 'Archaea'], array([5, 7]))
    """
    tree = taxonomy.tree
    above = np.arange(len(tree.taxids))
    is_rare = (amounts < least) & (above > 1)
    for low, high in pairwise(tree.edges.tolist()):
        parents = above[tree.parents[low:high]]
        above[low:high] = np.where(is_rare[low:high], parents, above[low:high])
    lifted = tree.taxids[above[taxonomy.numbers(taxids)]].astype(np.int64)
    distinct, places = np.unique(lifted, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, places, counts)
    return distinct, sums


def in_order(taxonomy: Taxonomy, clades: np.ndarray, zero_counts: bool) -> np.ndarray:
    """Return the numbers of taxa to show, each followed by its clade."""
    tree = taxonomy.tree
    numbers = np.arange(1, len(tree.taxids))
    # Numbers of siblings are in the order of their taxids already.
    ordered = numbers[np.lexsort((numbers, -clades[1:], tree.parents[1:]))]
    places = tree.places(ordered, tree.sizes)
    shown = numbers if zero_counts else numbers[clades[1:] > 0]
    return shown[np.argsort(places[shown])]


def _percent(count: int, total: int) -> str:
    return f"{100.0 * count / total if total else 0.0:6.2f}"


def _extra_columns(taxonomy: Taxonomy, minimizers: tuple[Any, Any] | None) -> Any:
    if minimizers is None:
        return lambda number: ""
    found, distinct = (np.asarray(each, np.int64) for each in minimizers)
    if not len(found) == len(distinct) == len(taxonomy.taxids):
        raise ShapeError(
            f"minimizers of {len(found):,} and {len(distinct):,} taxa; pass one of each of the "
            f"taxonomy's {len(taxonomy.taxids):,} numbers"
        )
    return lambda number: f"\t{found[number]}\t{distinct[number]}"
