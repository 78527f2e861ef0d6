"""Benchmark of exchanges at tiny sizes, on threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from crews import crew_of_threads

from dgpuhash import bench
from dgpuhash.bench import report
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.workers import exchange
from dgpuhash.distributed.collective.base import Received
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.errors import DgpuhashError, SpecError

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "start", crew_of_threads)


def measure(**options: Any) -> list[dict[str, Any]]:
    settings = {"device": "cpu", "leaving": [4096, 70_000], "repeats": 1, "quiet": True}
    return bench.run("exchange", **settings | options)


def test_each_number_of_bytes_and_workers_beside_bare_connections(tmp_path: Path) -> None:
    path = tmp_path / "exchange.jsonl"
    rows = measure(workers=[2, 3], json_path=path)
    assert [(row["workers"], row["leaving"]) for row in rows] == [
        (2, 4096), (2, 70_000), (3, 4096), (3, 70_000),
    ]  # fmt: skip
    for row in rows:
        assert row["exchange"] == "comm"
        assert row["rate"] > 0
        assert row["floor"] > 0
        assert row["unit"] == "GB/s"
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 4
    (grid,) = grids("exchange", rows)
    assert grid.header == ("workers", "protocol", "bytes", "comm")
    assert [line[2] for line in grid.lines] == ["4 KiB", "68.4 KiB", "4 KiB", "68.4 KiB"]
    document, plot = report.write([path], tmp_path / "out")
    assert plot.name == "exchange-rate.png"
    assert "From all workers" in document.read_text()


def test_a_worker_for_each_that_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "most_workers", lambda used, devs: 3)
    assert [row["workers"] for row in measure(leaving=[4096])] == [3]


def test_a_wrong_answer_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CommCollective.all_to_all

    def wrong(self: Any, columns: Any, counts: Any) -> Received:
        came = right(self, columns, counts)
        came.columns[1][-1] += 1
        return came

    monkeypatch.setattr(CommCollective, "all_to_all", wrong)
    with pytest.raises(DgpuhashError, match="other values came"):
        measure()


@pytest.mark.parametrize("way", ["nccl", "peer"])
def test_exchanges_between_gpus_are_refused_on_cpus(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "start", lambda *args, **options: pytest.fail("started"))
    said = f"--exchange {way} is for GPUs; leave it out, or give --device cuda"
    with pytest.raises(SpecError, match=said):
        measure(ways=["comm", way])


@pytest.mark.parametrize("options", [{"workers": [1]}, {"leaving": [16]}])
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="--"):
        measure(**options)
