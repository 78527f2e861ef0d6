"""Tiers: references, reads, and what MetaCache and Kraken 2 make of them."""

from __future__ import annotations

import gzip
import os
from functools import cached_property
from pathlib import Path

from kmer.models import Reference, records_of
from kmer.taxonomy_model import Model

HERE = Path(__file__).parent / "data"
DATA = Path(
    os.environ.get("DGPUHASH_KMER_DATA", Path(__file__).resolve().parents[3] / "shared" / "kmer")
)


class Tier:
    """A folder of genomes, reads and calls, and the taxonomy beside it."""

    def __init__(self, folder: Path, taxonomy: Path) -> None:
        self.folder, self.taxonomy_folder = folder, taxonomy

    @cached_property
    def taxonomy(self) -> Model:
        return Model.read(self.taxonomy_folder)

    @cached_property
    def references(self) -> list[Reference]:
        rows = (self.taxonomy_folder / "nucl_gb.accession2taxid").read_text().splitlines()[1:]
        taxids = {version: int(taxid) for _, version, taxid, _ in (row.split("\t") for row in rows)}
        found = []
        for file in sorted(
            (self.folder / "genomes").iterdir(), key=lambda file: str(file).encode()
        ):
            for header, letters, _ in _records(file):
                name = header.split()[0]
                found.append(Reference(name, letters, taxids[name]))
        return found

    @cached_property
    def names(self) -> list[str]:
        names = (header.split()[0] for header, _, _ in _records(self.folder / "reads_1.fq.gz"))
        return [name.removesuffix("/1") for name in names]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        firsts, seconds = (_records(self.folder / f"reads_{mate}.fq.gz") for mate in (1, 2))
        return [(one[1], other[1]) for one, other in zip(firsts, seconds, strict=True)]

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def calls(self, name: str) -> list[int]:
        """Return the expected calls in the order of the reads."""
        rows = (line.split("\t") for line in self.text(name).splitlines())
        taxids = {read: int(taxid) for read, taxid in rows}
        return [taxids[read] for read in self.names]

    def digest(self, name: str) -> str:
        return self.text(f"metacache.{name}.sha256").split()[0]

    def abundances(self) -> list[dict[str, float]]:
        """Return the reads of each taxon by its name, as called and as estimated of species."""
        found: list[dict[str, float]] = []
        for line in self.text("metacache.abundances.txt").splitlines():
            if line.startswith("# rank:name"):
                found.append({})
            elif not line.startswith("#"):
                name, *columns = (each.strip() for each in line.split("|"))
                found[-1][name.partition(":")[2]] = float(columns[-2])
        return found

    def lineages(self) -> list[tuple[str, list[int]]]:
        rows = [line.split("\t") for line in self.text("metacache.lineages.txt").splitlines()[1:]]
        return [(name, [int(taxid) for taxid in taxids]) for name, *taxids in rows]

    def top_lists(self) -> list[tuple[str, str]]:
        """Return the top list and its places of each read, as text."""
        with gzip.open(self.folder / "metacache.tophits.txt.gz", "rt") as lines:
            rows = [line.split("|") for line in lines if not line.startswith("#")]
        return [(columns[2].strip(), columns[3].strip()) for columns in rows]


TINY = Tier(HERE / "tiny", HERE / "taxonomy")
MINI = Tier(DATA / "tiers" / "mini", DATA / "taxonomy")


def lines_without_codes(lines: list[str]) -> set[tuple[str, ...]]:
    """Return the lines of a report; those of the tiers lack some codes of ranks."""
    return {tuple(line.split("\t")[:3] + line.split("\t")[4:]) for line in lines}


def _records(file: Path) -> list[tuple[str, str, str]]:
    return records_of(gzip.decompress(file.read_bytes()).decode())
