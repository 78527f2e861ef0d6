"""Benchmark of keys with close hashes, at tiny sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dgpuhash import bench
from dgpuhash.bench.tables import close
from dgpuhash.errors import DgpuhashError


def test_close(device: str) -> None:
    rows = bench.run("close", device=device, n=[300], repeats=1, quiet=True)
    assert len(rows) == 2 * len(close._verbs(device))
    assert {row["distribution"] for row in rows} == {"a slice of a table", "a slice, permuted"}
    assert all(row["time"] > 0 and row["floor"] > 0 and row["ratio"] > 0 for row in rows)


def test_wrong_answers_void_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(close, "unique", lambda keys: keys[1:])
    with pytest.raises(DgpuhashError, match=r"keys were lost.*void"):
        bench.run("close", device="cpu", n=[100], repeats=1, quiet=True)


def test_the_report_shows_it(tmp_path: Any) -> None:
    from dgpuhash.bench.report.grids import grids

    rows = bench.run("close", device="cpu", n=[100], repeats=1, quiet=True)
    (grid,) = grids("close", rows)
    assert grid.header[:3] == ("rows", "keys", "HashSet")
    assert len(grid.lines) == 2
