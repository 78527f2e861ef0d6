"""Labels of calls: taxid, name, rank and lineage."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.formats.report import taxon_texts
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of
from dgpuhash.kmer.taxonomy.ranks import SLOTS
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy


class Labels:
    """Labels of calls, from a taxonomy and targets.

    Calls are taxids, 0 for none, and below 0 the numbers of targets, from 1. Taxids without a
    taxonomy have no names.

    Parameters
    ----------
    taxonomy : Taxonomy or None
    targets : Targets

    Examples
    --------
    >>> targets = Targets.none()._replace(names=["NC_001416.1"], taxids=np.array([10710]))
    >>> labels = Labels(None, targets)
    >>> labels.lift(np.array([-1, 0])).tolist(), labels.names(np.array([-1, 0]))
    ([10710, 0], ['NC_001416.1', 'unclassified'])
    """

    def __init__(self, taxonomy: Taxonomy | None, targets: Targets) -> None:
        self._taxonomy, self._targets = taxonomy, targets

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxonomy.

        Raises
        ------
        TaxonomyError
            When there is none.
        """
        if self._taxonomy is None:
            raise TaxonomyError(
                "the index has no taxonomy, which taxa and ranks need; build it with one"
            )
        return self._taxonomy

    def current(self, taxids: np.ndarray) -> np.ndarray:
        """Return taxids with merged ones replaced, if there is a taxonomy."""
        return taxids if self._taxonomy is None else self._taxonomy.current(taxids)

    @property
    def targets(self) -> Targets:
        """The targets behind negative calls."""
        return self._targets

    def lift(self, calls: np.ndarray) -> np.ndarray:
        """Return calls with each target replaced by its taxid, 0 without one."""
        is_target = calls < 0
        if not is_target.any():
            return calls
        return np.where(is_target, self._targets.taxids[np.where(is_target, -1 - calls, 0)], calls)

    def names(self, calls: np.ndarray) -> list[str]:
        """Return the name of each call: of a taxon, the id of a target, or "unclassified"."""
        found = ["unclassified"] * len(calls)
        taxa = np.flatnonzero(calls > 0)
        if len(taxa):
            names = self.taxonomy.names(calls[taxa])
            for row, name in zip(taxa.tolist(), names, strict=True):
                found[row] = name
        for row in np.flatnonzero(calls < 0).tolist():
            found[row] = self._targets.names[-1 - calls[row]]
        return found

    def ranks(self, calls: np.ndarray) -> list[str]:
        """Return the rank of each call, "sequence" for targets and "" for none."""
        found = ["" if call == 0 else "sequence" for call in calls.tolist()]
        taxa = np.flatnonzero(calls > 0)
        if len(taxa):
            for row, rank in zip(taxa.tolist(), self.taxonomy.ranks(calls[taxa]), strict=True):
                found[row] = rank
        return found

    def lineages(self, calls: np.ndarray) -> np.ndarray:
        """Return ranked lineages of 21 taxids, with a target's own number as sequence."""
        taxids = self.lift(calls)
        placed = np.flatnonzero(taxids)
        found = np.zeros((len(calls), len(SLOTS)), np.int64)
        if len(placed):
            found[placed] = self.taxonomy.ranked(taxids[placed])
        is_target = calls < 0
        found[is_target, 0] = calls[is_target]
        return found

    def texts(self, calls: np.ndarray, *, use_names: bool) -> list[str]:
        """Return the text for each call: its number, or ``name (taxid N)``."""
        if not use_names:
            return [str(call) for call in calls.tolist()]
        found = taxon_texts(self.taxonomy, np.maximum(calls, 0)).tolist()
        for row in np.flatnonzero(calls < 0).tolist():
            call = int(calls[row])
            found[row] = f"{self._targets.names[-1 - call]} (taxid {call})"
        return found

    def column(self, calls: np.ndarray, made: Any) -> Any:
        """Return texts of calls as an Arrow array; `made` computes those of distinct calls."""
        from dgpuhash.kmer.formats.outputs import take_text

        distinct, places = distinct_of(calls)
        return take_text(made(distinct), places)


def distinct_of(calls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct calls, and the index of each call among them."""
    encoded = numbers_of(calls).dictionary_encode()
    return np.from_dlpack(encoded.dictionary), np.from_dlpack(encoded.indices)
