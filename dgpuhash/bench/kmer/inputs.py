"""Generate input for the k-mer benchmarks: genomes, their taxonomy, and reads."""

from __future__ import annotations

import csv
import os
import shutil
from functools import cached_property
from pathlib import Path

from dgpuhash.bench.kmer.programs import require_programs, run_program
from dgpuhash.errors import SpecError
from dgpuhash.kmer.sequences.files import text_of

PAIRS = 500_000
QUICK_PAIRS = 50_000
_SEED = 42
_READ_LETTERS = 150
_ROLE = "db"


def data_folder() -> Path:
    """Return the folder of genomes from ``DGPUHASH_KMER_DATA``, or ``../shared/kmer``.

    Raises
    ------
    SpecError
        When it has no ``GENOMES.tsv``.
    """
    folder = Path(os.environ.get("DGPUHASH_KMER_DATA", "../shared/kmer"))
    if not (folder / "GENOMES.tsv").is_file():
        raise SpecError(
            f"{folder} has no GENOMES.tsv; set DGPUHASH_KMER_DATA to the folder of genomes"
        )
    return folder.resolve()


class Inputs:
    """Copies of the genomes with role ``db`` in a folder, plain and compressed.

    Parameters
    ----------
    data : path
        With ``GENOMES.tsv``, of which the columns ``file`` and ``role`` are read, and
        ``taxonomy/``.
    folder : path
        Where the copies go, best in memory.
    pairs : int
        Pairs of reads to make.
    """

    def __init__(self, data: Path, folder: Path, pairs: int) -> None:
        self.taxonomy: Path = data / "taxonomy"
        self.folder: Path = folder
        self.pairs: int = pairs
        with (data / "GENOMES.tsv").open() as table:
            rows = [row for row in csv.DictReader(table, delimiter="\t") if row["role"] == _ROLE]
        if not rows:
            raise SpecError(f"{data / 'GENOMES.tsv'} has no genome of the role {_ROLE!r}")
        self._packed = sorted(data / row["file"] for row in rows)
        self.letters: int = sum(int(row["bases"]) for row in rows)

    @cached_property
    def packed(self) -> list[Path]:
        """Genome files compressed by gzip, as in the data."""
        made = [_in(self.folder / "gz", path.name) for path in self._packed]
        for path, copy in zip(self._packed, made, strict=True):
            shutil.copyfile(path, copy)
        return made

    @cached_property
    def plain(self) -> list[Path]:
        """Genome files, decompressed."""
        made = [_in(self.folder / "plain", path.name.removesuffix(".gz")) for path in self._packed]
        for path, copy in zip(self._packed, made, strict=True):
            copy.write_bytes(b"".join(text_of(str(path))))
        return made

    def genomes(self, kind: str) -> list[Path]:
        """Return the files of a kind, ``plain`` or ``gz``."""
        return self.plain if kind == "plain" else self.packed

    def reads(self, kind: str) -> tuple[Path, Path]:
        """Return the files of first and second mates, ``plain`` or ``gz``."""
        first, second = self._plain_reads
        return (first, second) if kind == "plain" else self._packed_reads

    @cached_property
    def _plain_reads(self) -> tuple[Path, Path]:
        require_programs(["wgsim"])
        whole = _in(self.folder, "all.fna")
        with whole.open("wb") as file:
            for path in self.plain:
                file.write(path.read_bytes())
        first, second = (_in(self.folder / "reads", f"{mate}.fq") for mate in (1, 2))
        command = (
            *("wgsim", "-S", str(_SEED), "-N", str(self.pairs)),
            *("-1", str(_READ_LETTERS), "-2", str(_READ_LETTERS), whole, first, second),
        )
        run_program(command, self.folder / "log")
        whole.unlink()
        return first, second

    @cached_property
    def _packed_reads(self) -> tuple[Path, Path]:
        first, second = (path.with_suffix(".fq.gz") for path in self._plain_reads)
        for plain, packed in zip(self._plain_reads, (first, second), strict=True):
            run_program(("sh", "-c", 'gzip -1 <"$0" >"$1"', plain, packed), self.folder / "log")
        return first, second


def _in(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
