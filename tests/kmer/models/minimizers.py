"""Kraken 2's rule of classification in plain Python; imports nothing of dgpuhash."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from kmer.models.sketches import Reference, canonical_codes
from kmer.taxonomy_model import Model

CODES = {letter: code for code, pair in enumerate(("Aa", "Cc", "Gg", "Tt")) for letter in pair}
TOGGLE = 0xE37E28C4271B5A2D
# Letters of a reference that Kraken 2 reads at once.
BLOCK = 16_384
# What is no taxon in the list of a read's k-mers.
AMBIGUOUS, BORDER = -1, -2


class Called(NamedTuple):
    """The call of a read, and what led to it.

    `entries` are the taxa of its k-mers in their order, 0 of those that are in no reference.
    """

    taxid: int
    entries: list[int]
    hit_groups: int
    lengths: tuple[int, ...]
    is_quick: bool

    def runs(self) -> list[tuple[int, int]]:
        return [(taxid, len(list(run))) for taxid, run in groupby(self.entries)]

    def hits(self, taxonomy: Model) -> int:
        """Return the k-mers in the clade of the call."""
        lineages = {each: taxonomy.lineage(each) for each in set(self.entries) if each > 0}
        return sum(self.taxid in lineages.get(each, ()) for each in self.entries)

    def line(self, name: str) -> str:
        """Return what Kraken 2 writes of the read."""
        if self.is_quick:
            told = f"{self.taxid}:Q"
        else:
            names = {AMBIGUOUS: "A"}
            told = " ".join(
                "|:|" if taxid == BORDER else f"{names.get(taxid, taxid)}:{n}"
                for taxid, n in self.runs()
            )
        length = "|".join(map(str, self.lengths))
        letter = "C" if self.taxid else "U"
        return f"{letter}\t{name}\t{self.taxid}\t{length}\t{told or '0:0'}"


class MinimizerModel:
    """References, and the lowest common ancestor of those that have each minimizer."""

    def __init__(
        self,
        references: Iterable[Reference],
        taxonomy: Model,
        *,
        k: int = 35,
        l: int = 31,  # noqa: E741
        spaces: int = 7,
        toggle: int = TOGGLE,
        ambiguous: str = "kraken2",
        least_hash: int = 0,
    ) -> None:
        self.taxonomy, self.k, self.l = taxonomy, k, l
        self.is_exact = ambiguous == "exact" or k == l
        digits = "1" * (l - 2 * spaces) + "01" * spaces
        self.mask = int("".join(digit * 2 for digit in digits), 2)
        self.toggle = toggle & 4**l - 1
        self.taxids: dict[int, int] = {}
        for reference in references:
            for minimizer in self.of_reference(reference.letters):
                if reference.taxid and murmur(minimizer) >= least_hash:
                    there = self.taxids.get(minimizer, 0)
                    if there != reference.taxid:
                        self.taxids[minimizer] = taxonomy.lca(there, reference.taxid)

    def of_reference(self, letters: str) -> set[int]:
        """Return all minimizers, also those where Kraken 2 begins with another block."""
        found = set(self.minimizers(letters))
        for at in range(BLOCK, 0 if self.is_exact else len(letters), BLOCK):
            # A letter that is no base before the block.
            found.update(self.minimizers("N" + letters[at : at + self.k - 1]))
        return {minimizer for minimizer in found if minimizer is not None}

    def minimizers(self, letters: str) -> list[int | None]:
        """Return the minimizer of the k-mer at each place, None of one with another letter.

        Kraken 2 takes a k-mer whose first letter alone is no base for one of its other letters.
        """
        ranks = [
            None if code is None else code & self.mask ^ self.toggle
            for code in canonical_codes(letters, self.l, CODES)
        ]
        window = self.k - self.l + 1
        found: list[int | None] = []
        for at in range(len(letters) - self.k + 1):
            those = ranks[at : at + window]
            if not self.is_exact and letters[at] not in CODES:
                those = those[1:]
            found.append(None if None in those else min(those) ^ self.toggle)  # type: ignore[type-var]
        return found

    def call(
        self,
        letters: str,
        mate: str | None = None,
        *,
        qualities: tuple[str, ...] = ("", ""),
        confidence: float = 0,
        minimum_hit_groups: int = 2,
        minimum_base_quality: int = 0,
        quick: bool = False,
        ignore_ambiguous: bool = False,
    ) -> Called:
        """Return the call of a read, or of a pair."""
        mates = (letters,) if mate is None else (letters, mate)
        lengths = tuple(map(len, mates))
        entries: list[int] = []
        groups = 0
        for number, each in enumerate(mates):
            if number:
                entries.append(BORDER)
            quality = qualities[number]
            if quality:
                each = masked(each, quality, minimum_base_quality)
            last: int | None = None
            for minimizer in self.minimizers(each):
                if minimizer is None:
                    entries.append(AMBIGUOUS)
                    continue
                taxid = self.taxids.get(minimizer, 0)
                groups += taxid != 0 and minimizer != last
                last = minimizer
                if quick and taxid and groups >= minimum_hit_groups:
                    return Called(taxid, entries, groups, lengths, True)
                entries.append(taxid)
        hits = Counter(taxid for taxid in entries if taxid > 0)
        left_out = (BORDER, AMBIGUOUS) if ignore_ambiguous else (BORDER,)
        n = sum(taxid not in left_out for taxid in entries)
        taxid = self.resolve(hits, math.ceil(confidence * n))
        if groups < minimum_hit_groups:
            taxid = 0
        return Called(taxid, entries, groups, lengths, quick)

    def resolve(self, hits: Counter[int], required: int) -> int:
        """Return the taxon whose path has the most hits, or one above with enough of them."""
        scores = {
            taxid: sum(hits[above] for above in self.taxonomy.lineage(taxid)) for taxid in hits
        }
        most = max(scores.values(), default=0)
        taxid = self.taxonomy.lca_of([each for each, score in scores.items() if score == most])
        support = hits[taxid]
        while taxid and support < required:
            support = self.clade_hits(hits, taxid)
            if support < required:
                taxid = 0 if taxid == self.taxonomy.root else self.taxonomy.taxa[taxid][0]
        return taxid

    def clade_hits(self, hits: Counter[int], taxid: int) -> int:
        return sum(n for each, n in hits.items() if taxid in self.taxonomy.lineage(each))


def murmur(key: int) -> int:
    """Return the finalizer of MurmurHash3, by which Kraken 2 leaves minimizers out."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = (key ^ key >> 33) * factor % 2**64
    return key ^ key >> 33


def masked(letters: str, quality: str, least: int) -> str:
    """Return letters, with N in place of those of a lower quality."""
    return "".join(
        "N" if ord(quality[at]) - 33 < least else letter for at, letter in enumerate(letters)
    )
