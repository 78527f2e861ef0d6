"""Benchmark of k-mers, on a phage, beside programs that stand for others."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from dgpuhash import bench
from dgpuhash.bench.kmer import counting, databases, inputs, programs, run
from dgpuhash.bench.kmer.databases import CallsByName
from dgpuhash.bench.kmer.programs import Command, Spent
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.cli import main
from dgpuhash.errors import DgpuhashError, SpecError
from dgpuhash.kmer import KmerCounts
from dgpuhash.kmer.cluster import MODES

PHAGE = Path(__file__).parents[2] / "kmer" / "data" / "phage_lambda.fna.gz"
# What stands for a program: prints the file that its name with the ending .out is.
_PRINTS = '#!/bin/sh\ncat "$(dirname "$0")/$(basename "$0").out"\n'


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one genome, that the benchmark reads."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "phage.fna.gz").write_bytes(PHAGE.read_bytes())
    (folder / "GENOMES.tsv").write_text(
        "id\tfile\trole\tbases\nphage\tphage.fna.gz\tdb\t48502\nno\tno.fna.gz\talien\t9\n"
    )
    monkeypatch.setenv("DGPUHASH_KMER_DATA", str(folder))
    return folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Run this package's commands in this process, which starts none; return what was run."""
    ran: list[list[str]] = []
    run_program = programs.run_program

    def measured(command: Command, log: Path) -> Spent:
        words = [str(word) for word in command]
        if words[: len(programs.OURS)] == list(programs.OURS):
            ran.append(words[len(programs.OURS) - 1 :])
            made = CliRunner().invoke(main, ran[-1], catch_exceptions=False)
            assert made.exit_code == 0, made.output
            log.write_text(made.stdout)
        elif words[0] == sys.executable:
            ran.append(words[:2])
        else:
            ran.append(words)
            return run_program(command, log)
        return Spent(0.5, 0.75, 2**20)

    for module in (counting, databases, programs):
        monkeypatch.setattr(module, "run_program", measured)
    return ran


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, int]], None]:
    """Return a function that puts programs onto the path, which tell a histogram."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(histogram: dict[int, int]) -> None:
        lines = "".join(f"{count} {number}\n" for count, number in histogram.items())
        for name in {name for names in run.PEERS.values() for name in names} | {"wgsim"}:
            (folder / name).write_text(_PRINTS)
            (folder / name).chmod(stat.S_IRWXU)
            (folder / f"{name}.out").write_text(lines)
        (folder / "kmc_tools").write_text(f'#!/bin/sh\ncp "{folder}/kmc_tools.out" "$5"\n')

    return put


def histogram_of(path: Path) -> dict[int, int]:
    counts, numbers = KmerCounts.count(path, k=31).histogram()
    return dict(zip(counts.tolist(), numbers.tolist(), strict=True))


def test_counts_alone(data: Path, here: list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "kmer.jsonl"
    rows = bench.run(
        "kmer", questions=["count"], kinds=["plain", "gz"], quick=True, quiet=True, json_path=path
    )
    assert [(row["input"], row["library"]) for row in rows] == [
        ("plain", "dgpuhash"),
        ("gz", "dgpuhash"),
    ]
    for row in map(json.loads, path.read_text().splitlines()):
        assert problem_of(row) is None
        assert (row["n"], row["verb"], row["unit"]) == (48502, "count", "CPU s")
        assert (row["seconds"], row["amount"], row["ratio"]) == (0.5, 0.75, 1.0)
        assert row["peak_nbytes"] == 2**20
        assert not {"peer", "differing", "rule"} & row.keys()
    # Once to warm up, then a turn; nothing is compared, so no histogram is asked for.
    assert [words[1] for words in here] == ["-c", "count", "-c", "count"] * 2


def test_others_are_compared_before_they_are_measured(
    data: Path,
    here: list[list[str]],
    peers: Callable[[dict[int, int]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    peers(histogram_of(PHAGE))
    rows = bench.run("kmer", questions=["count"], kinds=["gz"], repeats=2, compare=True)
    ours, *theirs = rows
    assert [row["library"].split()[0] for row in rows] == ["dgpuhash", "KMC", "Jellyfish"]
    assert [row["differing"] for row in theirs] == [0, 0]
    assert ours["peer"] == min(row["seconds"] for row in theirs)
    told = capsys.readouterr().out
    assert "count of 48,502 letters, 2 threads" in told
    assert "seconds of ours" in told
    kmc, jellyfish = (
        [words for words in here if words[0] == name] for name in ("kmc", "jellyfish")
    )
    assert len(kmc) == 3
    assert {"-k31", "-ci1", "-t2", "-fm"} <= set(kmc[0])
    assert [words[1] for words in jellyfish] == ["count", "histo", "count", "count"]

    peers({1: 48471, 2: 1})
    with pytest.raises(DgpuhashError, match=r"rows of the answers differ, and 0 may.*count.*KMC"):
        bench.run("kmer", questions=["count"], kinds=["gz"], repeats=1, compare=True, quiet=True)


def test_what_is_missing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match=r"kmc, .*wgsim are not installed; 'make peers'"):
        bench.run("kmer", compare=True, quiet=True)
    with pytest.raises(SpecError, match="--metacache no-such-metacache: no such program"):
        bench.run("kmer", metacache="no-such-metacache", quiet=True)
    with pytest.raises(SpecError, match="wgsim is not installed; 'make peers'"):
        bench.run("kmer", questions=["classify-kraken2"], quiet=True)
    with pytest.raises(SpecError, match="question 'sort'; use count, build-kraken2"):
        bench.run("kmer", questions=["sort"], quiet=True)
    monkeypatch.setenv("DGPUHASH_KMER_DATA", str(tmp_path))
    with pytest.raises(SpecError, match=r"no GENOMES.tsv; set DGPUHASH_KMER_DATA"):
        bench.run("kmer", quiet=True)


def test_a_program_that_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(DgpuhashError, match=r"sh -c .* ended with 3: no genome"):
        programs.run_program(["sh", "-c", "echo no genome >&2; exit 3"], log)
    spent = programs.run_program([sys.executable, "-c", "b = b'1' * 2**25; print(len(b))"], log)
    assert 2**25 < spent.nbytes < 2**32
    assert spent.cpu_seconds > 0
    assert log.read_text() == f"{2**25}\n"
    total = spent + Spent(1.0, 2.0, 3)
    assert (total.seconds, total.nbytes) == (spent.seconds + 1, spent.nbytes)


def test_calls(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    names = [f"r{row}" for row in range(20_000)]
    path.write_text("".join(f"C\t{name}/1\t562\t150|150\t562:9\n" for name in names))
    calls = CallsByName.read(path, (1, 2))
    assert (calls.names, set(calls.taxids.tolist())) == (names, {562})
    other = CallsByName(names, np.where(np.arange(20_000) < 2, 0, calls.taxids))
    # Of 10,000 calls one may differ: other programs keep their keys in part only.
    assert calls.differing(other) == (2, 2)
    assert calls.differing(CallsByName(names[1:], other.taxids[1:])) == (20_000, 0)


def test_reads_are_the_same_each_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # wgsim's last two arguments are the files of mates.
    wgsim = tmp_path / "wgsim"
    wgsim.write_text('#!/bin/sh\nfor last; do mate=$second second=$last; done\n'
                     'echo "$@" >"$mate"; echo "@r" >"$second"\n')  # fmt: skip
    wgsim.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    made = inputs.Inputs(data, tmp_path / "room", 10)
    first, second = made.reads("plain")
    assert first.read_text().startswith("-S 42 -N 10 -1 150 -2 150 ")
    assert second.read_text() == "@r\n"
    assert [path.name for path in made.reads("gz")] == ["1.fq.gz", "2.fq.gz"]
    assert [path.name for path in made.genomes("plain")] == ["phage.fna"]


def test_the_command_has_every_question() -> None:
    choices = {
        each.name: tuple(each.type.choices)
        for each in main.commands["bench"].commands["kmer"].params  # type: ignore[attr-defined]
        if isinstance(each.type, click.Choice)
    }
    assert choices["questions"] == run.ALL_QUESTIONS
    assert choices["modes"] == MODES
    assert choices["kinds"] == run.KINDS
