"""Profiles of samples for other programs: Krona's text and CAMI's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dgpuhash.kmer.formats.report import by_number, in_order
from dgpuhash.kmer.taxonomy.ranks import slot_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

_CAMI_RANKS = ("superkingdom", "phylum", "class", "order", "family", "genus", "species")
_CAMI_VERSION = "0.10.0"


def krona_lines(taxonomy: Taxonomy, taxids: Any, counts: Any = None) -> Iterator[str]:
    """Yield a line for each taxon with reads: their number, and the names from below the root.

    That is the text that ktImportText of Krona reads. Reads of the root have no names, and those
    without a taxon the name "unclassified".

    Parameters
    ----------
    taxonomy : Taxonomy
    taxids : array of int
        The taxid of each read, 0 of those without; or distinct ones with `counts`.
    counts : array of int, optional
        How many reads each of `taxids` has.

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
    >>> list(krona_lines(taxonomy, [taxonomy.taxid("Nanoarchaeota"), 1, 0], [4, 1, 2]))
    ['2\\tunclassified', '1', '4\\tArchaea\\tNanoarchaeota']
    """
    own = by_number(taxonomy, taxids, counts)
    if own[0]:
        yield f"{own[0]}\tunclassified"
    shown = in_order(taxonomy, taxonomy.tree.sums(own), zero_counts=False)
    paths: dict[int, str] = {}
    columns = zip(
        shown.tolist(),
        taxonomy.parents[shown].tolist(),
        taxonomy.names(taxonomy.taxids[shown]),
        own[shown].tolist(),
        strict=True,
    )
    for number, parent, name, count in columns:
        paths[number] = f"{paths[parent]}\t{name}" if parent in paths else ""
        if count:
            yield f"{count}{paths[number]}"


def cami_lines(
    taxonomy: Taxonomy, taxids: Any, counts: Any = None, *, sample: str = ""
) -> Iterator[str]:
    """Yield a profile in CAMI's format: taxa of seven ranks and their percentages of all reads.

    A taxon has the reads of all below it. Taxa of a rank follow each other by their reads, of equal
    ones the lower taxid first; ranks that a lineage lacks are empty in its path. Percentages of a
    rank are 100 less those of reads that have no taxon of that rank.

    Parameters
    ----------
    taxonomy, taxids, counts
        As for `krona_lines`.
    sample : str
        Its name; what the format does not allow in it becomes ``_``.

    Raises
    ------
    TaxonomyError
        When a taxid is unknown or deleted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
    >>> _ = file.write_text("GCA_1.1\\td__Archaea\\n")
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> for line in cami_lines(taxonomy, [taxonomy.taxid("Archaea"), 0], sample="one"):
    ...     print(line.replace("\\t", " "))
    @SampleID:one
    @Version:0.10.0
    @Ranks:superkingdom|phylum|class|order|family|genus|species
    @@TAXID RANK TAXPATH TAXPATHSN PERCENTAGE
    10764658325130 superkingdom 10764658325130 Archaea 50.000000
    """
    own = by_number(taxonomy, taxids, counts)
    total = int(own.sum())
    yield f"@SampleID:{re.sub('[^A-Za-z0-9._]', '_', sample) or 'sample'}"
    yield f"@Version:{_CAMI_VERSION}"
    yield f"@Ranks:{'|'.join(_CAMI_RANKS)}"
    yield "@@TAXID\tRANK\tTAXPATH\tTAXPATHSN\tPERCENTAGE"
    numbers = 1 + np.flatnonzero(own[1:])
    if not len(numbers):
        return
    slots = [slot_of(rank) for rank in _CAMI_RANKS]
    lineages = taxonomy.ranked(taxonomy.taxids[numbers])[:, slots]
    for level, rank in enumerate(_CAMI_RANKS):
        taxa, places = np.unique(lineages[:, level], return_inverse=True)
        reads = np.zeros(len(taxa), np.int64)
        np.add.at(reads, places, own[numbers])
        first = int(not taxa[0])
        taxa, reads = taxa[first:], reads[first:]
        if not len(taxa):
            continue
        order = np.lexsort((taxa, -reads))
        taxa, reads = taxa[order], reads[order]
        paths = taxonomy.ranked(taxa)[:, slots[: level + 1]]
        names = iter(taxonomy.names(paths[paths > 0]))
        for taxid, path, count in zip(taxa.tolist(), paths.tolist(), reads.tolist(), strict=True):
            texts = [str(each) if each else "" for each in path]
            named = [next(names) if each else "" for each in path]
            share = f"{100 * count / total:.6f}"
            yield "\t".join([str(taxid), rank, "|".join(texts), "|".join(named), share])
