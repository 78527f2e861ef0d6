"""Small random references and reads, with what the rules of classification tell apart."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from kmer.models import Reference, reverse_complement
from kmer.taxonomy_model import Model

TAXA = {
    1: (1, "no rank", "root"),
    2: (1, "superkingdom", "Bacteria"),
    3: (2, "phylum", "Pseudomonadota"),
    4: (3, "clade", "a clade"),
    5: (4, "family", "Enterobacteriaceae"),
    6: (5, "genus", "Escherichia"),
    7: (5, "genus", "Salmonella"),
    8: (6, "species", "Escherichia coli"),
    9: (6, "species", "Escherichia fergusonii"),
    10: (7, "species", "Salmonella enterica"),
    11: (8, "strain", "Escherichia coli one"),
    12: (8, "subspecies", "Escherichia coli two"),
    13: (1, "acellular root", "Viruses"),
    14: (13, "realm", "Riboviria"),
    15: (14, "species", "a virus"),
    16: (10, "no rank", "Salmonella enterica three"),
}
PLACES = (11, 12, 8, 9, 9, 10, 16, 16, 15, 6)


class World:
    """References of a few taxa that are alike, and reads of them; all drawn from a seed."""

    def __init__(self, seed: int, *, pairs: int = 120, scale: int = 600) -> None:
        self.draw = random.Random(seed)
        self.taxonomy = Model(TAXA)
        self.files = self._references(scale)
        self.pairs = [self._pair() for _ in range(pairs)]
        self.pairs[:6] = [
            ("", ""), ("ACGT", ""), ("", self.pairs[7][1]), (self.pairs[8][0], ""),
            ("N" * 80, "n" * 3), ("A" * 90, "ACGT" * 20),
        ]  # fmt: skip
        # Reads longer than many windows, one of two references.
        some = [each.letters for each in self.references[:3]]
        self.pairs[6:8] = [(some[0][:900], some[1][100:700]), (some[2] + some[0][:200], "")]

    @property
    def references(self) -> list[Reference]:
        return [each for file in self.files for each in file]

    @cached_property
    def qualities(self) -> list[tuple[str, str]]:
        def of(letters: str) -> str:
            return "".join(self.draw.choices("#5I", [1, 2, 30], k=len(letters)))

        return [(of(first), of(second)) for first, second in self.pairs]

    def letters(self, n: int) -> str:
        return "".join(self.draw.choices("ACGT", k=n))

    def changed(self, letters: str, share: float, others: str = "ACGT") -> str:
        return "".join(
            self.draw.choice(others) if self.draw.random() < share else each for each in letters
        )

    def _references(self, scale: int) -> list[list[Reference]]:
        draw = self.draw
        genera = {genus: self.letters(scale * 2) for genus in (6, 7, 13)}
        species = {8: 6, 9: 6, 10: 7, 11: 6, 12: 6, 16: 7, 15: 13, 6: 6}
        ancestors = {taxid: self.changed(genera[of], 0.05) for taxid, of in species.items()}
        # Some letters are in all references, and more than once in some.
        common = self.letters(scale // 4)
        made = []
        for number, taxid in enumerate(PLACES):
            letters = self.changed(ancestors[taxid], 0.02)
            for _ in range(draw.randint(0, 3)):
                at = draw.randrange(len(letters))
                letters = letters[:at] + self.changed(common, 0.01) + letters[at:]
            letters = self.changed(letters[: draw.randint(scale, 3 * scale)], 0.003, "NRYn-")
            if number % 3 == 1:
                letters = letters.lower()
            if number % 4 == 2:
                letters = letters.replace("T", "U")
            made.append(Reference(f"ref{number}.1", letters, taxid))
        made.insert(3, Reference("empty.1", "", 8))
        made.insert(7, Reference("short.1", self.letters(9), 9))
        made.append(Reference("palindromes.1", "ACGT" * 30 + "AATT" * 30, 15))
        return [made[:2], made[2:8], made[8:9], made[9:]]

    def _pair(self) -> tuple[str, str]:
        draw = self.draw
        if draw.random() < 0.1:
            return self.letters(100), self.letters(draw.randint(0, 60))
        source = draw.choice([each.letters for each in self.references if each.letters])
        size, insert = draw.randint(25, 150), draw.randint(150, 500)
        at = draw.randrange(max(1, len(source) - insert))
        first = source[at : at + size]
        second = reverse_complement(source[at : at + insert][-size:].upper().replace("U", "T"))
        if draw.random() < 0.15:
            second = draw.choice(self.references).letters[:size]
        return tuple(self.changed(each, 0.02, "ACGTACGTNu") for each in (first, second))  # type: ignore[return-value]

    def write(self, folder: Path) -> Path:
        """Write the references as files of a folder, with their taxids in the headers."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(self.files):
            (folder / f"{number}.fa").write_text(fasta(file))
        self.taxonomy.write(folder / "taxonomy")
        return folder


def fasta(references: list[Reference], width: int = 70) -> str:
    """Return the text of a file of references."""
    lines = []
    for each in references:
        lines.append(f">{each.name} taxid|{each.taxid}")
        lines += [each.letters[at : at + width] for at in range(0, len(each.letters), width)]
    return "".join(f"{line}\n" for line in lines)


def fastq(names: list[str], reads: list[str], qualities: list[str] | None = None) -> str:
    """Return the text of a file of reads."""
    lines = []
    for at, (name, letters) in enumerate(zip(names, reads, strict=True)):
        quality = qualities[at] if qualities else "I" * len(letters)
        lines.append(f"@{name}\n{letters}\n+\n{quality}\n")
    return "".join(lines)


def arrays(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as letters and offsets."""
    letters = np.frombuffer("".join(texts).encode(), np.uint8)
    return letters, np.append(0, np.cumsum([len(text) for text in texts])).astype(np.int64)


def rows(calls: Any) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return the call and the details of each read."""
    offsets = calls.detail_offsets.tolist()
    details = list(zip(calls.detail_taxids.tolist(), calls.detail_counts.tolist(), strict=True))
    return [
        (taxid, details[start:end])
        for taxid, start, end in zip(calls.taxids.tolist(), offsets[:-1], offsets[1:], strict=True)
    ]
