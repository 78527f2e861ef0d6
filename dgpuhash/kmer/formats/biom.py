"""Tables of taxa by samples in the format BIOM 1.0."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dgpuhash.kmer.formats.report import by_number
from dgpuhash.kmer.taxonomy.ranks import CODES, slot_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

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
    """Return the names of each taxon's lineage from the domain down, "" where there is none."""
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
