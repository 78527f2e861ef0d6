"""Weak scaling of builds and calls on workers that are threads, of a phage and its mutants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crews import crew_of_threads

from dgpuhash import backend as backends
from dgpuhash import bench
from dgpuhash.bench.kmer import on_workers
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.letters import READ_LETTERS
from dgpuhash.bench.kmer.on_workers import weak_scaling
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.errors import DgpuhashError, SpecError
from dgpuhash.kmer import read_pairs

pytestmark = pytest.mark.cluster

LENGTH = 48502
CPU = backends.get("cpu")
RULES = ("kraken2", "metacache")


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers be threads, which start at once."""
    monkeypatch.setattr(on_workers, "start", crew_of_threads)


def test_each_worker_adds_as_much(data: Path, tmp_path: Path) -> None:
    rows = bench.run(
        "kmer", questions=[f"scaling-{rule}" for rule in RULES], workers=[2, 1], pairs=300,
        modes=["distributed", "independent"], letters=LENGTH + 1, repeats=1, quiet=True,
        json_path=tmp_path / "rows",
    )  # fmt: skip
    assert [(row["workers"], row["rule"], row["mode"], row["verb"], row["n"]) for row in rows] == [
        (count, rule, mode, verb, n)
        for count in (1, 2)
        for rule in RULES
        for mode in ("distributed", "independent")
        # Two files of a worker are the least that have so many letters.
        for verb, n in (("build", count * 2 * LENGTH), ("classify", count * 300))
    ]
    alone = {(row["rule"], row["mode"], row["verb"]): row["seconds"] for row in rows[:8]}
    for row in rows:
        assert problem_of(row) is None
        assert row["ratio"] == pytest.approx(row["floor"] / row["seconds"], rel=0.01)
        ideal = alone[row["rule"], row["mode"], row["verb"]]
        assert row["efficiency"] == pytest.approx(ideal / row["seconds"], rel=0.01)
    shown = grids("kmer", rows)
    assert [grid.title for grid in shown] == [
        f"{verb} by the rule of {rule}, on workers with as much each"
        for rule in RULES
        for verb in ("build", "classify")
    ]
    assert [line[:3] for line in shown[1].lines] == [
        ("distributed", "1", "300"), ("distributed", "2", "600"),
        ("independent", "1", "300"), ("independent", "2", "600"),
    ]  # fmt: skip


def test_what_workers_read(inputs: Inputs) -> None:
    shares = on_workers._Shares(CPU, inputs, 2, 2 * LENGTH, 9)
    assert [len(shares.references[shares.of(worker)]) for worker in range(2)] == [2, 2]
    firsts, seconds = zip(*shares.reads, strict=True)
    # Nine pairs of each worker, parted between its two files; all of the only genome.
    batches = list(read_pairs(firsts, seconds))
    assert [len(first) for first, _ in batches] == [5, 4, 5, 4]
    names = [f"r{number:010}" for number in range(18)]
    for side in range(2):
        found = [batch[side] for batch in batches]
        assert [each.name(row) for each in found for row in range(len(each))] == names
    assert shares.sources.tolist() == [0] * 18
    # Reads are of the mutants in the file of the same number.
    for path, (first, _) in zip(shares.references, batches, strict=True):
        text = np.frombuffer(path.read_bytes().partition(b"\n")[2].replace(b"\n", b""), np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(text, READ_LETTERS)
        read = np.frombuffer(first.sequence(0), np.uint8)
        assert (windows == read).sum(axis=1).max() > 140


def test_wrong_calls_are_not_measured(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    called = on_workers._KmerRun._called
    wrong: dict[str, Any] = {
        "1 calls of 30 pairs": lambda taxids: taxids[:1],
        "calls depend on the batch": lambda taxids: np.where(np.arange(30) == 7, 1, taxids),
        "0.0% of the reads were called": np.zeros_like,
    }
    for said, change in wrong.items():
        monkeypatch.setattr(
            on_workers._KmerRun,
            "_called",
            lambda self, index, change=change: change(called(self, index)),
        )
        rows = weak_scaling(
            CPU, inputs, ["kraken2"], counts=[1], modes=["distributed"], letters=LENGTH, pairs=30,
            repeats=1,
        )  # fmt: skip
        assert next(rows)["verb"] == "build"
        with pytest.raises(DgpuhashError, match=said):
            next(rows)
        inputs.folder.joinpath("mutants").rename(inputs.folder / said[:5])


def test_modes_that_are_unknown(data: Path) -> None:
    with pytest.raises(SpecError, match="mode 'weak'; use auto, distributed"):
        bench.run("kmer", questions=["scaling-kraken2"], modes=["weak"], quiet=True)
