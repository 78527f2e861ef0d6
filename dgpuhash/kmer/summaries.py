"""Write reports, profiles and abundances from counted calls."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.formats.outputs import check_output, write_lines
from dgpuhash.kmer.formats.profiles import biom_lines, cami_lines, krona_lines
from dgpuhash.kmer.formats.read_calls import abundance_lines
from dgpuhash.kmer.formats.report import kreport, mpa_report
from dgpuhash.kmer.taxonomy.ranks import slot_of

if TYPE_CHECKING:
    from typing import Literal


_REPORTS = ("kraken", "mpa")


class Summaries(ABC):
    """Reports of counted calls; base of `Classification`."""

    @property
    @abstractmethod
    def labels(self) -> Labels:
        """Names and ranks of calls."""

    @property
    @abstractmethod
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct calls, ascending, and the number of reads of each."""

    def _minimizers(self) -> Any:
        """Minimizer counts for reports; None without them."""
        return None

    def by_taxon(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return the taxonomy, taxids (also in place of targets), and read counts.

        Raises
        ------
        TaxonomyError
            When the index has no taxonomy.
        """
        calls, counts = self.counts
        return self.labels.taxonomy, self.labels.lift(calls), counts

    def report_lines(
        self, *, style: Literal["kraken", "mpa"] = "kraken", zero_counts: bool = False
    ) -> Iterator[str]:
        """Yield the lines of a report, with targets counted under their taxa.

        Parameters
        ----------
        style : {"kraken", "mpa"}
            As `kreport` or `mpa_report` of the formats.
        zero_counts : bool
            Whether taxa without reads have lines.

        Raises
        ------
        SpecError
            When the style is another.
        TaxonomyError
            When the index has no taxonomy.
        """
        if style not in _REPORTS:
            raise SpecError(f"style={style!r}; use one of {', '.join(_REPORTS)}")
        arguments = self.by_taxon()
        if style == "mpa":
            return mpa_report(*arguments, zero_counts=zero_counts)
        minimizers = self._minimizers()
        return kreport(*arguments, zero_counts=zero_counts, minimizers=minimizers)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        style: Literal["kraken", "mpa"] = "kraken",
        zero_counts: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write a report of reads by taxon to a file.

        Parameters
        ----------
        path, overwrite
            As for `write`.
        style, zero_counts
            As for `report_lines`.

        Raises
        ------
        ExistsError
            When the file is there.
        OSError
            When it cannot be written.
        """
        check_output(path, overwrite=overwrite)
        lines = self.report_lines(style=style, zero_counts=zero_counts)
        write_lines(path, lines, overwrite=overwrite)

    def write_krona(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write each taxon's reads and path of names, as ktImportText of Krona reads them.

        Parameters
        ----------
        path, overwrite
            As for `report`.

        Raises
        ------
        TaxonomyError
            When the index has no taxonomy.
        ExistsError
            When the file is there.
        OSError
            When it cannot be written.
        """
        check_output(path, overwrite=overwrite)
        write_lines(path, krona_lines(*self.by_taxon()), overwrite=overwrite)

    def write_cami(
        self, path: str | os.PathLike[str], *, sample: str = "", overwrite: bool = False
    ) -> None:
        """Write a profile in CAMI's format: taxa of seven ranks with percentages of all reads.

        Parameters
        ----------
        path, overwrite
            As for `report`.
        sample : str
            Its name in the profile.

        Raises
        ------
        TaxonomyError
            When the index has no taxonomy.
        ExistsError
            When the file is there.
        OSError
            When it cannot be written.
        """
        check_output(path, overwrite=overwrite)
        write_lines(path, cami_lines(*self.by_taxon(), sample=sample), overwrite=overwrite)

    def write_biom(
        self, path: str | os.PathLike[str], *, sample: str = "sample", overwrite: bool = False
    ) -> None:
        """Write each taxon's reads as a BIOM 1.0 table, in JSON, of one sample.

        Parameters
        ----------
        path, sample, overwrite
            As for `write_cami`.

        Raises
        ------
        TaxonomyError
            When the index has no taxonomy.
        ExistsError
            When the file is there.
        OSError
            When it cannot be written.
        """
        check_output(path, overwrite=overwrite)
        taxonomy, *pair = self.by_taxon()
        write_lines(path, biom_lines(taxonomy, {sample: pair}), overwrite=overwrite)

    def write_abundances(
        self, path: str | os.PathLike[str], ranks: Sequence[str] = (), *, overwrite: bool = False
    ) -> None:
        """Write each call's reads, and the `abundance` of taxa at ranks, to a file.

        Parameters
        ----------
        path, overwrite
            As for `write`.
        ranks : sequence of str
            A table for each follows.

        Raises
        ------
        TaxonomyError
            When there is no such rank.
        ExistsError
            When the file is there.
        OSError
            When it cannot be written.
        """
        check_output(path, overwrite=overwrite)
        called = "# query summary: number of queries mapped per taxon"
        tables = [(called, by_rank(self.labels, *self.counts))]
        for rank in ranks:
            title = f"# estimated abundance (number of queries) per {rank}"
            tables.append((title, abundances(self.labels, *self.counts, rank)))
        lines = (abundance_lines(self.labels, *table, [title]) for title, table in tables)
        write_lines(path, chain.from_iterable(lines), overwrite=overwrite)

    def abundance(self, rank: str = "species") -> Any:
        """Return a DataFrame of the taxa of a rank with their reads.

        Reads of lower taxa are added, those of higher ones shared among the taxa below in
        proportion to what these have. Columns are taxid, name, rank, reads (float64) and share, of
        all reads; the last row is that of reads without a call.

        Parameters
        ----------
        rank : str
            From sequence to domain.

        Raises
        ------
        TaxonomyError
            When there is no such rank.
        """
        return abundance_frame(self.labels, *self.counts, rank)


def abundances(
    labels: Labels, calls: np.ndarray, counts: np.ndarray, rank: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return calls lifted to a rank where possible, and the reads of each (float64).

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
    """Share the counts of taxa among the next lower taxa with counts."""
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
    """Return `abundances` as a DataFrame, with names and shares of all reads."""
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
