"""`dgpuhash kmer` on the workers of a scheduler."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner
from kmer.tiers import TINY

from dgpuhash.cli import main
from dgpuhash.kmer import KmerCounts, load_index

READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize("rule", ["metacache", "kraken2"])
def test_build_and_classify(clients, tmp_path, monkeypatch, rule):
    address = clients[2].scheduler.address
    # Names are those of the command's folder.
    monkeypatch.chdir(TINY.folder)
    on = ("--scheduler", address)
    made = tmp_path / "made.dgki"
    run(
        "build", "genomes", "--rule", rule, "--taxonomy", TINY.taxonomy_folder, "-o", made,
        "--mode", "distributed", *on,
    )  # fmt: skip
    assert load_index(made).targets.files[0].startswith("genomes")
    monkeypatch.chdir(made.parent)
    lowest = ("--lowest", "species") if rule == "metacache" else ()
    name = "metacache.species.calls.tsv" if rule == "metacache" else "kraken2.calls.tsv"
    # One load serves all samples.
    table = tmp_path / "samples.tsv"
    table.write_text("".join(f"{each}\t{READS[0]}\t{READS[1]}\n" for each in "ab"))
    run(
        "classify", "made.dgki", "--samples", table, "--format", "tsv", "-o", "{sample}.tsv",
        *lowest, *on,
    )  # fmt: skip
    for each in "ab":
        rows = (tmp_path / f"{each}.tsv").read_text().splitlines()
        assert [int(row.split("\t")[1]) for row in rows] == TINY.calls(name)
    files = [os.path.relpath(file) for file in READS]
    run(
        "run", *files, "--paired", "--references", os.path.relpath(TINY.folder / "genomes"),
        "--rule", rule, "--taxonomy", TINY.taxonomy_folder, "--format", "tsv", "-o", "run.tsv",
        "--mode", "independent", *lowest, *on,
    )  # fmt: skip
    assert (tmp_path / "run.tsv").read_text() == (tmp_path / "a.tsv").read_text()


def test_count(clients, tmp_path, monkeypatch):
    monkeypatch.chdir(TINY.folder)
    run("count", "genomes", "-o", tmp_path / "x", "--scheduler", clients[2].scheduler.address)
    found, expected = KmerCounts.load(tmp_path / "x"), KmerCounts.count("genomes")
    for one, other in zip(found.items(sort=True), expected.items(sort=True), strict=True):
        assert one.tolist() == other.tolist()
