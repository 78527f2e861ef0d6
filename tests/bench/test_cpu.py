"""Benchmark of batches on a CPU, on few rows, with peers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpuhash import bench
from dgpuhash.bench import cpu, report
from dgpuhash.bench.report.grids import grids
from dgpuhash.errors import DeviceError, DgpuhashError, SpecError

PEERS = {
    "build": ["pandas"],
    "find": ["pandas"],
    "isin": ["pandas", "polars", "numpy"],
    "factorize": ["pandas", "numpy"],
    "unique": ["pandas", "polars", "numpy"],
    "sum + mean": ["pandas", "polars"],
    "join": ["pandas", "polars", "DuckDB"],
    "merge": ["pandas", "polars", "DuckDB"],
    "upsert": ["pandas", "polars"],
    "find of one": ["pandas"],
    "insert of one": [],
    "multi find of one": [],
    "multi insert of one": [],
    cpu.WIDE: ["pandas", "polars"],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the figures of few rows and return the file."""
    made = tmp_path_factory.mktemp("cpu") / "cpu.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "_MOST_COLUMNS", 3)
        patch.setattr(cpu, "_SECONDS", 1e-3)
        bench.run("cpu", n=[50, 200], repeats=1, quiet=True, json_path=made)
    return made


@pytest.fixture
def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_verb_has_its_libraries(rows: list[dict[str, Any]]) -> None:
    asked = [(n, kind) for n in (50, 200) for kind in cpu.KINDS]
    for verb, peers in PEERS.items():
        own = [row for row in rows if row["verb"] == verb]
        where = [(10, "arange")] if verb == cpu.WIDE else asked
        assert list(dict.fromkeys((row["n"], row["keys"]) for row in own)) == where
        named = [row["library"].split()[0] for row in own]
        assert named == ["dgpuhash", *peers] * len(where)
    for row in rows:
        assert row["correct"]
        assert row["time"] > 0
        assert row["cpu"] > 0
        assert ("ratio" in row) == (row["library"] != "dgpuhash")


def test_in_a_report(path: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    document, *_ = report.write([path], tmp_path)
    text = document.read_text()
    assert "## Batches of every size on a CPU" in text
    assert "| verb | library | 50 | 200 |" in text
    found = grids("cpu", rows)
    assert [grid.title.split()[0] for grid in found] == list(cpu.KINDS)
    assert all(len(line) == len(grid.header) for grid in found for line in grid.lines)


@pytest.mark.parametrize("kind", cpu.KINDS)
def test_columns(kind: str) -> None:
    made = cpu.Int64Keys(1000, kind)
    assert len(np.unique(made.keys)) == len(made) == 1000
    assert (made.keys[made.positions] == made.probes).all()
    assert np.isin(made.keys, made.others).sum() == 500
    assert not np.isin(made.new, made.keys).any()
    keys, sums, means = made.sums()
    assert (np.diff(keys) > 0).all()
    assert sums.sum() == made.values.sum()
    some = made.grouped == keys[-1]
    assert means[-1] == pytest.approx(made.values[some].mean())


def test_some_of_it() -> None:
    rows = bench.run("cpu", quick=True, keys=["random"], verbs=["isin"], quiet=True)
    assert {row["n"] for row in rows} == set(cpu.QUICK_ROWS)
    assert {(row["keys"], row["verb"]) for row in rows} == {("random", "isin")}


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="--verb 'sort'; use build, find"):
        bench.run("cpu", verbs=["sort"], quiet=True)
    with pytest.raises(SpecError, match="--keys 'even'; use arange"):
        bench.run("cpu", n=[10], keys=["even"], quiet=True)
    monkeypatch.setattr(cpu, "is_right", lambda *_: False)
    with pytest.raises(DgpuhashError, match=r"an answer was wrong.*library dgpuhash, n 10"):
        bench.run("cpu", n=[10], verbs=["factorize"], quiet=True)


@pytest.mark.gpu
def test_it_is_not_for_gpus() -> None:
    with pytest.raises(DeviceError, match="measures the CPU"):
        bench.run("cpu", device="cuda")
