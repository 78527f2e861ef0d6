"""`dgpuhash kmer` on the workers of a scheduler."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner
from kmer.tiers import TINY

from dgpuhash.cli import main
from dgpuhash.cli.kmer.progress import LetterProgress
from dgpuhash.kmer import KmerCounts, load_index
from dgpuhash.kmer.minimizers.rule import MinimizerRule
from dgpuhash.kmer.sketches.rule import SketchRule

READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def counted(calls, function):
    def call(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("rule", ["metacache", "kraken2"])
def test_build_and_classify(clients, tmp_path, monkeypatch, rule):
    address = clients[2].scheduler.address
    loads, told = [], {"letters": [], "bytes": []}
    for kind in (SketchRule, MinimizerRule):
        monkeypatch.setattr(kind, "load", counted(loads, kind.load))
    monkeypatch.setattr(LetterProgress, "letters", lambda _, more: told["letters"].append(more))
    monkeypatch.setattr(LetterProgress, "consumed", lambda _, more: told["bytes"].append(more))
    # Names are those of the command's folder.
    monkeypatch.chdir(TINY.folder)
    on = ("--scheduler", address)
    made = tmp_path / "made.dgki"
    run(
        "build", "genomes", "--rule", rule, "--taxonomy", TINY.taxonomy_folder, "-o", made,
        "--mode", "distributed", *on,
    )  # fmt: skip
    assert load_index(made).targets.files[0].startswith("genomes")
    # Letters are told while workers read, and not at the end alone.
    assert len(told["letters"]) > 1
    assert sum(told["letters"]) == int(load_index(made).targets.lengths.sum())
    loads.clear()
    told["letters"].clear()
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
    # Each worker has loaded its part, or the whole, once.
    assert len(loads) == 2
    assert sum(told["bytes"]) == 2 * sum(file.stat().st_size for file in READS)
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
