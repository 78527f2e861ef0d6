"""Write sample profiles for other programs: Krona's text, CAMI's format and BIOM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dgpuhash.kmer.formats.report import by_number, in_order
from dgpuhash.kmer.taxonomy.ranks import CODES, slot_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

_CAMI_RANKS = ("superkingdom", "phylum", "class", "order", "family", "genus", "species")
_CAMI_VERSION = "0.10.0"


def krona_lines(taxonomy: Taxonomy, taxids: Any, counts: Any = None) -> Iterator[str]:
    """Yield a line for each taxon with reads: their number, and its path of names.

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
    """Yield a profile in CAMI's format: taxa of seven ranks with percentages of all reads.

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


# As other tools of BIOM tables have them: k is the highest rank.
_LETTERS = {
    "k": "domain",
    **{
        CODES[rank].lower(): rank
        for rank in ("phylum", "class", "order", "family", "genus", "species")
    },
}


def biom_lines(taxonomy: Taxonomy, samples: Mapping[str, Sequence[np.ndarray]]) -> Iterator[str]:
    """Yield a BIOM 1.0 table as JSON: a row for each taxon with reads, a column for each sample.

    A row has the reads of the taxon itself, not of those below it; rows are in the order of taxids.
    Reads without a taxon are left out.

    Parameters
    ----------
    taxonomy : Taxonomy
    samples : mapping of str to a pair of arrays
        Taxids and how many reads each has, 0 for reads without, by the name of the sample.

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
    >>> taxids = np.array([0, taxonomy.taxid("Archaea")])
    >>> table = json.loads("".join(biom_lines(taxonomy, {"gut": (taxids, np.array([3, 5]))})))
    >>> table["shape"], table["data"], table["rows"][0]["metadata"]["taxonomy"][:2]
    ([1, 1], [[0, 0, 5]], ['k__Archaea', 'p__'])
    """
    own = [by_number(taxonomy, *pair) for pair in samples.values()]
    found = np.any(own, axis=0) if own else np.zeros(len(taxonomy.taxids), bool)
    numbers = 1 + np.flatnonzero(found[1:])
    numbers = numbers[np.argsort(taxonomy.taxids[numbers])]
    taxids = taxonomy.taxids[numbers]
    counts = np.array([each[numbers] for each in own], np.int64).reshape(len(own), -1).T
    cells = [
        [row, column, int(counts[row, column])] for row, column in np.argwhere(counts).tolist()
    ]
    rows = [
        {"id": str(taxid), "metadata": {"taxonomy": path}}
        for taxid, path in zip(taxids.tolist(), _paths(taxonomy, taxids), strict=True)
    ]
    table: dict[str, Any] = {
        "id": None,
        "format": "Biological Observation Matrix 1.0.0",
        "format_url": "http://biom-format.org",
        "type": "Taxon table",
        "generated_by": "dgpuhash",
        "date": datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds"),
        "matrix_type": "sparse",
        "matrix_element_type": "int",
        "shape": [len(rows), len(samples)],
        "rows": rows,
        "columns": [{"id": name, "metadata": None} for name in samples],
        "data": cells,
    }
    yield json.dumps(table, ensure_ascii=False)


def _paths(taxonomy: Taxonomy, taxids: np.ndarray) -> list[list[str]]:
    """Return the names of each taxon's lineage from the domain down, "" for missing ranks."""
    if not len(taxids):
        return []
    lineages = taxonomy.ranked(taxids)[:, [slot_of(rank) for rank in _LETTERS.values()]]
    names = iter(taxonomy.names(lineages[lineages > 0]))
    return [
        [
            f"{letter}__{next(names) if taxid else ''}"
            for letter, taxid in zip(_LETTERS, lineage, strict=True)
        ]
        for lineage in lineages.tolist()
    ]
