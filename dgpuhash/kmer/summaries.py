"""Reports, profiles and abundances of calls that were counted."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.abundance import abundance_frame, abundances, by_rank
from dgpuhash.kmer.formats.biom import biom_lines
from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.formats.metacache import abundance_lines
from dgpuhash.kmer.formats.outputs import check_output, write_lines
from dgpuhash.kmer.formats.profiles import cami_lines, krona_lines
from dgpuhash.kmer.formats.report import kreport, mpa_report

if TYPE_CHECKING:
    from typing import Literal


_REPORTS = ("kraken", "mpa")


class Summaries(ABC):
    """What programs ask of calls once they are counted; a `Classification` counts them."""

    @property
    @abstractmethod
    def labels(self) -> Labels:
        """Names and ranks of calls."""

    @property
    @abstractmethod
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct calls, ascending, and how many reads each has."""

    def _minimizers(self) -> Any:
        """Return what reports have of minimizers, None without."""
        return None

    def by_taxon(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return the taxonomy, taxids with those of targets in their place, and counts of reads.

        Raises
        ------
        TaxonomyError
            When the index has no taxonomy.
        """
        calls, counts = self.counts
        return self.labels.taxonomy, self.labels.lifted(calls), counts

    def report_lines(
        self, *, style: Literal["kraken", "mpa"] = "kraken", zero_counts: bool = False
    ) -> Iterator[str]:
        """Yield the lines of a report; calls of targets are those of their taxa.

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
        """Write the reads of each taxon and its path of names, as ktImportText of Krona reads them.

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
        """Write a profile in CAMI's format: taxa of seven ranks and their percentages of all reads.

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
        """Write the reads of each taxon as a BIOM 1.0 table, in JSON, of one sample.

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
        self,
        path: str | os.PathLike[str],
        ranks: Sequence[str] = (),
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the reads of each call, and what taxa of ranks have by `abundance`, to a file.

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
        """Return a DataFrame with the taxa of a rank and the reads that they have.

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
