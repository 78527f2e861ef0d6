"""What an index tells of how it was made: files, sums, letters, options, dates, versions."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import numpy as np
import pytest
from click.testing import CliRunner
from kmer.worlds import World, fasta

from dgpuhash.cli import main
from dgpuhash.kmer import MinimizerIndex, SketchIndex, load_index
from dgpuhash.kmer.databases.provenance import steps_of
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences import files as sequence_files
from dgpuhash.kmer.sequences.batches import read_sequences
from dgpuhash.tables.serialization import read_file, write_file

WORLD = World(12, pairs=10)
PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def files(folder):
    """Return the files of the world, each packed by another program."""
    made = []
    for number, (ending, pack) in enumerate(PACKERS.items()):
        made.append(folder / "packed" / f"{number}.fa{ending}")
        made[-1].parent.mkdir(exist_ok=True)
        made[-1].write_bytes(pack(fasta(WORLD.files[number]).encode()))
    return made


def sum_of(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def run(*arguments):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("size", [7, 2**20])
def test_sums_are_those_of_the_bytes(files, monkeypatch, size):
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", size)
    for letters in (50, 2**20):
        sums: list[str] = []
        read = read_sequences(files, overlap=3, batch_letters=letters, summed=sums.append)
        assert sum(len(batch) for batch in read) >= len(WORLD.references)
        assert sums == list(map(sum_of, files))


def test_bytes_behind_the_text_count(tmp_path):
    """Several members of gzip, and zeros after the last one."""
    file = tmp_path / "x.fa.gz"
    file.write_bytes(gzip.compress(b">a\nACGT\n") + gzip.compress(b">b\nAC\n") + bytes(512))
    sums: list[str] = []
    assert sum(len(batch) for batch in read_sequences(file, summed=sums.append)) == 2
    assert sums == [sum_of(file)]


def test_references_are_summed_whatever_is_read_first(files):
    placed, read = References(files), References(files)
    placed.place(None)
    assert list(placed.targets.sums) == list(map(sum_of, files))
    # Later passes sum no more, and keep what is known.
    for references in (placed, read):
        batches = references.batches(overlap=3, batch_letters=99)
        assert sum(len(batch.targets) for batch in batches) > 13
        assert references.targets.file_sums == list(map(sum_of, files))


@pytest.mark.parametrize("rule", [SketchIndex, MinimizerIndex])
def test_steps_are_kept(folder, files, tmp_path, rule):
    start = datetime.now(UTC) - timedelta(seconds=1)
    taxonomy = folder / "taxonomy"
    index = rule.build(files[:2], taxonomy=taxonomy, allow_unplaced=3, k=32, mask="lowercase")
    index.add(files[2], taxonomy=taxonomy)
    index.save(tmp_path / "x.dgki")
    other = rule.build(files[3], taxonomy=taxonomy, k=32, mask="lowercase")
    index = load_index(tmp_path / "x.dgki").merge(other)
    index.save(tmp_path / "y.dgki")
    for made in (index, load_index(tmp_path / "y.dgki")):
        steps = made.provenance
        assert [step.verb for step in steps] == ["build", "add", "build", "merge"]
        assert {step.version for step in steps} == {version("dgpuhash")}
        dates = [datetime.fromisoformat(step.date) for step in steps]
        assert start <= dates[0] <= dates[1] <= dates[3] <= datetime.now(UTC)
        assert steps[0].options.items() >= {"k": 32, "mask": "lowercase"}.items()
        assert [step.options.get("allow_unplaced") for step in steps] == [3, 0, 0, None]
        assert steps[3].options == {"sequences": [9, 4]}
        assert [[file.name for file in step.files] for step in steps] == [
            list(map(str, some)) for some in (files[:2], files[2:3], files[3:], [])
        ]
        found = [file for step in steps for file in step.files]
        assert [file.sha256 for file in found] == list(map(sum_of, files))
        assert [file.sequences for file in found] == list(map(len, WORLD.files))
        assert [file.letters for file in found] == [
            sum(len(each.letters) for each in file) for file in WORLD.files
        ]


def test_the_commands_show_them(folder, files, tmp_path):
    path = tmp_path / "x.dgki"
    taxonomy = ("--taxonomy", folder / "taxonomy")
    run("build", *files[:2], "--rule", "metacache", *taxonomy, "-o", path)
    run("add", path, *files[2:], *taxonomy)
    lines = [line.split("\t") for line in run("inspect", path).splitlines()]
    assert run("stats", path) == run("inspect", path)
    built, added = (dict(lines)[verb] for verb in ("build", "add"))
    assert f"dgpuhash {version('dgpuhash')}, 2 files, 8 sequences, " in built
    assert ", 2 files, 5 sequences, " in added
    rows = run("inspect", path, "--provenance").splitlines()
    assert rows[0].startswith("# 1 build: 2") and " cap=254 " in rows[0]
    assert rows[1].startswith("# 2 add: 2") and rows[1].endswith("; allow_unplaced=0")
    assert rows[2].split("\t") == ["step", "file", "sequences", "letters", "sha256"]
    table = [row.split("\t") for row in rows[3:]]
    assert [row[0] for row in table] == list("1122")
    assert [row[4] for row in table] == list(map(sum_of, files))


def test_what_is_not_known_is_empty(tmp_path):
    """References in arrays have no sum, and older files tell nothing."""
    letters = np.frombuffer(b"ACGTTGCAACGTAGCTAGCTTAGCATCGATTACG", np.uint8)
    index = SketchIndex.from_letters(letters, [0, len(letters)])
    (step,) = index.provenance
    assert step.files == [("letters", "", 1, len(letters))]
    index.save(tmp_path / "x.dgki")
    header, arrays = read_file(tmp_path / "x.dgki")
    del header["told"]["steps"], arrays["targets sums"]
    write_file(tmp_path / "old.dgki", header, arrays)
    (step,) = load_index(tmp_path / "old.dgki").provenance
    assert (step.verb, step.date, step.version, step.options) == ("build", "", "", {})
    assert step.files == [("letters", "", 1, len(letters))]
    assert "no date, dgpuhash of no known version, 1 files" in run(
        "inspect", tmp_path / "old.dgki", "--provenance"
    )
    assert steps_of({}, Targets.none()) == []
