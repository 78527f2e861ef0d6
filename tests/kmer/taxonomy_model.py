"""A taxonomy and its reports in plain Python; imports nothing of dgpuhash."""

from __future__ import annotations

import re
from collections import Counter
from functools import reduce
from pathlib import Path

SLOTS = ["sequence", "form", "variety", "subspecies", "species", "subgenus",
    "genus", "subtribe", "tribe", "subfamily", "family", "suborder", "order", "subclass",
    "class", "subphylum", "phylum", "subkingdom", "kingdom", "domain", "root"]  # fmt: skip
FOLDED = {
    "superkingdom": "domain",
    "acellular root": "domain",
    "species group": "subgenus",
    "species subgroup": "subgenus",
    "superfamily": "suborder",
    "parvorder": "suborder",
    "infraorder": "suborder",
    "superorder": "subclass",
    "infraclass": "subclass",
    "superclass": "subphylum",
    "superphylum": "subkingdom",
    "division": "phylum",
    "forma": "form",
    "varietas": "variety",
    "genome": "sequence",
    "subdomain": "kingdom",
}
LETTERS = {
    **dict.fromkeys(("superkingdom", "domain", "acellular root"), "D"),
    "kingdom": "K",
    "phylum": "P",
    "class": "C",
    "order": "O",
    "family": "F",
    "genus": "G",
    "species": "S",
}


def distance(name: str, there: str) -> int | None:
    """Return how far two spellings of one accession are apart, None of two accessions."""
    version = re.compile(r"\.[0-9]+$")
    bare, other = (version.sub("", each).removeprefix("NZ_") for each in (name, there))
    if bare != other:
        return None
    versions = {found[0] for found in map(version.search, (name, there)) if found}
    is_accession = re.fullmatch(r"(NZ_)?[A-Z]{1,6}_?[A-Z]{0,6}[0-9]+\.[0-9]+", name)
    if len(versions) > 1 and not is_accession:
        return None
    if name == there:
        return 0
    return 1 if name.startswith("NZ_") == there.startswith("NZ_") else 2


class Model:
    """Taxa by taxid: parent, rank, name."""

    def __init__(self, taxa: dict[int, tuple[int, str, str]]) -> None:
        self.taxa = taxa
        self.root = next(taxid for taxid, (parent, _, _) in taxa.items() if parent == taxid)
        self.children: dict[int, list[int]] = {taxid: [] for taxid in taxa}
        for taxid, (parent, _, _) in taxa.items():
            if taxid != self.root:
                self.children[parent].append(taxid)

    @classmethod
    def read(cls, folder: Path) -> Model:
        rows = [
            [field.strip() for field in line.split("|")]
            for line in (folder / "nodes.dmp").read_text().splitlines()
        ]
        names = {}
        for line in (folder / "names.dmp").read_text().splitlines():
            fields = [field.strip() for field in line.split("|")]
            if fields[3] == "scientific name":
                names[fields[0]] = fields[1]
        return cls({int(row[0]): (int(row[1]), row[2], names[row[0]]) for row in rows})

    def write(self, folder: Path) -> Path:
        """Write the taxa as NCBI does, with other names beside the scientific ones."""
        folder.mkdir(exist_ok=True)
        nodes, names = [], []
        for taxid, (parent, rank, name) in self.taxa.items():
            nodes.append(f"{taxid}\t|\t{parent}\t|\t{rank}\t|\t\t|\t0\t|\n")
            names.append(f"{taxid}\t|\tsynonym of {name}\t|\t\t|\tsynonym\t|\n")
            names.append(f"{taxid}\t|\t{name}\t|\t\t|\tscientific name\t|\n")
        (folder / "nodes.dmp").write_text("".join(nodes))
        (folder / "names.dmp").write_text("".join(names))
        return folder

    def lineage(self, taxid: int) -> list[int]:
        found = [taxid]
        while found[-1] != self.root:
            found.append(self.taxa[found[-1]][0])
        return found

    def lca(self, left: int, right: int) -> int:
        if not left or not right:
            return left or right
        above = set(self.lineage(right))
        return next(taxid for taxid in self.lineage(left) if taxid in above)

    def lca_of(self, taxids: list[int]) -> int:
        return reduce(self.lca, taxids, 0)

    def ranked(self, taxid: int) -> list[int]:
        found = [0] * len(SLOTS)
        for each in self.lineage(taxid) if taxid else ():
            rank = self.taxa[each][1]
            rank = "root" if each == self.root else FOLDED.get(rank, rank)
            if rank in SLOTS:
                found[SLOTS.index(rank)] = each
        return found

    def code(self, taxid: int) -> str:
        for steps, each in enumerate(self.lineage(taxid) if taxid else ()):
            letter = LETTERS.get(self.taxa[each][1], "R" if each == self.root else "")
            if letter:
                return f"{letter}{steps or ''}"
        return "U"

    def clades(self, calls: list[int]) -> Counter[int]:
        return Counter(each for taxid in calls if taxid for each in self.lineage(taxid))

    def _in_order(self, clades: Counter[int], taxid: int, depth: int = 0):
        yield taxid, depth
        for child in sorted(self.children[taxid], key=lambda each: (-clades[each], each)):
            yield from self._in_order(clades, child, depth + 1)

    def kreport(self, calls: list[int], *, zero_counts: bool = False) -> list[str]:
        own, clades, lines = Counter(calls), self.clades(calls), []

        def line(clade: int, count: int, code: str, taxid: int, name: str) -> str:
            percent = 100 * clade / len(calls) if calls else 0
            return f"{percent:6.2f}\t{clade}\t{count}\t{code}\t{taxid}\t{name}"

        if own[0] or zero_counts:
            lines.append(line(own[0], own[0], "U", 0, "unclassified"))
        for taxid, depth in self._in_order(clades, self.root):
            if clades[taxid] or zero_counts:
                name = "  " * depth + self.taxa[taxid][2]
                lines.append(line(clades[taxid], own[taxid], self.code(taxid), taxid, name))
        return lines

    def mpa_report(self, calls: list[int], *, zero_counts: bool = False) -> list[str]:
        clades, lines = self.clades(calls), []
        for taxid, _ in self._in_order(clades, self.root):
            if self.taxa[taxid][1] in LETTERS and (clades[taxid] or zero_counts):
                path = [
                    f"{LETTERS[self.taxa[each][1]].lower()}__{self.taxa[each][2]}"
                    for each in reversed(self.lineage(taxid))
                    if self.taxa[each][1] in LETTERS
                ]
                lines.append(f"{'|'.join(path)}\t{clades[taxid]}")
        return lines
