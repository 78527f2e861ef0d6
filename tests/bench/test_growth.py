"""Benchmark of growth, ageing and adversarial keys, at tiny sizes."""

from __future__ import annotations

import pytest

from dgpuhash import bench
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.bench.tables import growth
from dgpuhash.errors import DgpuhashError


@pytest.fixture(autouse=True)
def few_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_SLICES", 12)
    monkeypatch.setattr(growth, "_ENDS", 3)


def test_rows_and_their_table(device: str) -> None:
    rows = bench.run("growth", device=device, n=[4000], batch=[500, 2000], repeats=1, quiet=True)
    verbs = ["insert", "worst call", "peak bytes"]
    assert [row["verb"] for row in rows] == [*verbs, *verbs, "ageing", "lines", "adversarial"]
    assert all(row["ratio"] > 0 and problem_of(row) is None for row in rows)
    # A table that doubles has two sizes for a moment.
    assert all(1 <= row["amount"] < 4 for row in rows if row["verb"] == "peak bytes")
    (grid,) = grids("growth", rows)
    assert grid.header[:3] == ("rows", "batch", "insert") and len(grid.lines) == 4


def test_lost_keys_void_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth.HashMap, "insert", lambda self, keys, values: None)
    with pytest.raises(DgpuhashError, match=r"a key was not stored.*void"):
        bench.run("growth", device="cpu", n=[100], batch=[10], repeats=1, quiet=True)
