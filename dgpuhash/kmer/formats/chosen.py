"""Taxa that a user names: 562, 562+ with all below it, 0 for none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.formats.labels import Labels, distinct_of


class ChosenTaxa:
    """Whether calls are among taxa.

    Parameters
    ----------
    texts : sequence of str
        Each with commas between taxids: ``562`` is that taxon alone, ``562+`` also those below it,
        ``0`` reads without a call, ``-3`` the third target.
    labels : Labels
        Of the calls; those of targets count as their taxa, too.

    Raises
    ------
    SpecError
        When a text is none of these.
    TaxonomyError
        When a taxon with those below it is unknown.

    Examples
    --------
    >>> from dgpuhash.kmer.references import Targets
    >>> chosen = ChosenTaxa(["562,0"], Labels(None, Targets.none()))
    >>> chosen.among(np.array([562, 573, 0])).tolist()
    [True, False, True]
    """

    def __init__(self, texts: Sequence[str], labels: Labels) -> None:
        self._labels = labels
        single: list[int] = []
        self._clades: list[int] = []
        for text in (each.strip() for all_ in texts for each in all_.split(",")):
            digits = text.removesuffix("+")
            is_clade = digits != text
            if not digits.removeprefix("-").isdecimal() or (is_clade and int(digits) <= 0):
                raise SpecError(f"{text!r} is no taxon; write taxids such as 562, 562+ or 0")
            (self._clades if is_clade else single).append(int(digits))
        self._single = labels.current(np.array(single, np.int64))
        for clade in self._clades:
            labels.taxonomy.rank(clade)

    def among(self, calls: np.ndarray) -> np.ndarray:
        """Return whether each call is of one of the taxa."""
        distinct, places = distinct_of(calls)
        lifted = self._labels.lifted(distinct)
        found = np.isin(distinct, self._single) | (
            np.isin(lifted, self._single) & (distinct != 0) & (lifted != 0)
        )
        for clade in self._clades:
            found |= self._labels.taxonomy.is_within(lifted, clade)
        return found[places]
