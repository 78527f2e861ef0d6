"""Benchmark of the CPU at a tiny size, with peers."""

from __future__ import annotations

import pytest

from dgpuhash import bench
from dgpuhash.bench.tables import cpu
from dgpuhash.errors import DeviceError


def test_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run("cpu", n=2000, compare=True, repeats=1)
    verbs: dict[str, list[str]] = {}
    for row in rows:
        verbs.setdefault(row["library"].split()[0], []).append(row["verb"])
    assert verbs == {
        "dgpuhash": ["build", "probe", "join", "group sum"],
        "pandas": ["build", "probe", "join", "group sum"],
        "polars": ["join", "group sum"],
        "DuckDB": ["join", "group sum"],
    }
    assert all(row["correct"] and row["floor"] > 0 for row in rows)
    assert "group sum" in capsys.readouterr().out


@pytest.mark.gpu
def test_it_is_not_for_gpus() -> None:
    with pytest.raises(DeviceError, match="measures the CPU"):
        bench.run("cpu", device="cuda")


def test_without_peers() -> None:
    rows = bench.run("cpu", n=500, repeats=1, quiet=True)
    assert {row["library"] for row in rows} == {"dgpuhash"}
    assert cpu._ROWS == 4_000_000
