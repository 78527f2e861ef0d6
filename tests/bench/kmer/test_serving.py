"""Calls by a server, timed beside its index in this process and beside another program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgpuhash import bench
from dgpuhash.bench.kmer import serving
from dgpuhash.bench.kmer.databases import CallsByName
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.programs import ProgramTask
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.kmer import load_index, read_pairs


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_case_of_both_rules(
    data: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without kraken2 and wgsim, of which only the former is missed.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(serving, "_BUSY", 500)
    rows = bench.run(
        "kmer", questions=["serve-kraken2", "serve-metacache"], pairs=1000, repeats=1,
        compare=True, quiet=True, device=device,
    )  # fmt: skip
    cases = [("alone", n, 1) for n in (1, 1000)]
    cases += [("beside a busy client", 1, 1), ("by turns", 1000, 8)]
    assert [(row["case"], row["n"], row["clients"]) for row in rows] == 2 * cases
    for row in rows:
        assert problem_of({**row, "bench": "kmer"}) is None
        assert row["slowest"] >= row["seconds"] > 0 < row["floor"]
        assert row["peak_nbytes"] > 2**24
    absent = [row.get("absent") for row in rows]
    assert absent == 2 * ["kraken2"] + 6 * [None]
    assert rows[3]["fastest"] <= rows[3]["slowest"]
    for grid, rule in zip(grids("kmer", rows), ("kraken2", "metacache"), strict=True):
        assert grid.title == f"calls by a server by the rule of {rule}, milliseconds, 2 threads"
        assert len(grid.lines) == 4


class Peer:
    """What stands for another program: calls of the index, and some that are other ones."""

    def __init__(self, differing: int = 0) -> None:
        self.differing, self.sizes = differing, []

    def __call__(self, inputs: Inputs, reads: tuple[Path, Path]) -> ProgramTask:
        ((first, second),) = read_pairs(*reads)
        index = load_index(reads[0].parent / "served.dgki")
        calls = index.call(first.letters, first.offsets, second.letters, second.offsets).taxids
        calls = np.where(np.arange(len(calls)) < self.differing, 9, calls)
        self.sizes.append(len(calls))
        names = [first.name(row) for row in range(len(first))]
        return ProgramTask("other", (("true",),), answer=lambda: CallsByName(names, calls))


def test_another_program_is_compared(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer()
    monkeypatch.setattr(serving, "mapped_kraken2", peer)
    monkeypatch.setattr(serving.shutil, "which", lambda name: name)
    monkeypatch.setattr(serving, "_BUSY", 500)
    options = {"questions": ["serve-kraken2"], "pairs": 1000, "repeats": 1, "quiet": True}
    rows = bench.run("kmer", compare=True, device="cpu", **options)
    assert peer.sizes == [1, 1000]
    assert [row["library"] for row in rows] == 2 * ["dgpuhash", "other"] + 2 * ["dgpuhash"]
    for ours, theirs in zip(rows[:4:2], rows[1:4:2], strict=True):
        assert ours["peer"] == theirs["seconds"]
        assert (theirs["n"], theirs["differing"]) == (ours["n"], 0)
        assert problem_of({**theirs, "bench": "kmer"}) is None

    monkeypatch.setattr(serving, "mapped_kraken2", Peer(differing=1))
    with pytest.raises(Exception, match=r"1 calls differ while measuring library other"):
        bench.run("kmer", compare=True, device="cpu", **options)
