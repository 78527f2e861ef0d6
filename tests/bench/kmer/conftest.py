"""A phage and its place in a taxonomy, as the benchmark of k-mers reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgpuhash.bench.kmer.inputs import Inputs

PHAGE = Path(__file__).parents[2] / "kmer" / "data" / "phage_lambda.fna.gz"
LENGTH = 48502
NAMES = ((1, "root"), (10710, "Lambdavirus lambda"))
ACCESSIONS = "accession\taccession.version\ttaxid\tgi"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one genome and its place in a taxonomy, that the benchmark reads."""
    folder = tmp_path / "data"
    (folder / "taxonomy").mkdir(parents=True)
    (folder / "phage.fna.gz").write_bytes(PHAGE.read_bytes())
    (folder / "GENOMES.tsv").write_text(f"file\trole\tbases\nphage.fna.gz\tdb\t{LENGTH}\n")
    for name, lines in (
        ("nodes.dmp", ["1\t|\t1\t|\tno rank\t|", "10710\t|\t1\t|\tspecies\t|"]),
        ("names.dmp", [f"{n}\t|\t{name}\t|\t\t|\tscientific name\t|" for n, name in NAMES]),
        ("a.accession2taxid", [ACCESSIONS, "NC_001416\tNC_001416.1\t10710\t9626243"]),
    ):
        (folder / "taxonomy" / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setenv("DGPUHASH_KMER_DATA", str(folder))
    return folder


@pytest.fixture
def inputs(data: Path, tmp_path: Path) -> Inputs:
    folder = tmp_path / "room"
    folder.mkdir()
    return Inputs(data, folder, 10)
