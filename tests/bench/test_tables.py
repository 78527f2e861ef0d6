"""Benchmark of sets and maps at tiny sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import method
from dgpuhash.bench.memory import peak_bytes
from dgpuhash.bench.tables import open_tables
from dgpuhash.errors import DgpuhashError, SpecError


def test_tables(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run(
        "tables", device=device, n=[3000], loads=[0.5, 0.8], repeats=1, batches=[10, 100]
    )
    figures = [row for row in rows if "rate" in row]
    assert len(figures) == 2 * 2 * 5
    assert {row["verb"] for row in figures} == {"insert", "find", "absent", "erase", "build"}
    assert all(
        row["correct"] and row["rate"] > 0 and row["floor"] > 0 for row in rows if "rate" in row
    )
    for row in figures:
        assert row["ratio"] == pytest.approx(row["rate"] / row["floor"], abs=0.01, rel=0.05)
    batches = [row for row in rows if "batch" in row]
    assert len(batches) == 2 * 2 * 4
    assert {row["verb"] for row in batches} == {"find", "contains", "insert", "erase"}
    assert all(0 < row["launch"] <= row["time"] for row in batches)
    assert all(("overhead" in row) == (device == "cuda") for row in batches)
    memory = [row for row in rows if row["verb"] == "memory"]
    assert len(memory) == 2 * 2
    assert all(row["peak_bytes"] >= row["table_bytes"] > row["stored_bytes"] for row in memory)
    assert "0.8" in capsys.readouterr().out


@pytest.mark.parametrize("distribution", ["unique", "uniform:8", "zipf:1.5"])
@pytest.mark.parametrize("dtypes", method.NAMES)
def test_all_kinds_of_tables_and_batches(device: str, dtypes: str, distribution: str) -> None:
    rows = bench.run(
        "tables", device=device, n=[2000], loads=[0.8], dtypes=[dtypes], batches=(),
        distribution=distribution, hit_rates=[1.0, 0.25, 0.5, 0.0], repeats=1, quiet=True,
    )  # fmt: skip
    assert [row["verb"] for row in rows] == [
        "insert", "find", "mixed 0.25", "mixed 0.5", "absent", "erase", "build", "memory"
    ]  # fmt: skip
    assert {row["pairs"] for row in rows} == {dtypes}
    assert {row["distribution"] for row in rows} == {distribution}


def test_a_method(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run(
        "tables", device=device, n=[2000], loads=[0.5, 0.9], dtypes=["32/32"], batches=[10],
        repeats=1, method="cops", settings=["width=8"],
    )  # fmt: skip
    assert {row["method"] for row in rows} == {"cops width=8"}
    sizes = [row["table_bytes"] for row in rows if row["verb"] == "memory"]
    assert sizes[0] / sizes[1] == pytest.approx(9 / 5, rel=0.1)
    assert "cops width=8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "wormhole"}, "--method 'wormhole'; use one of auto"),
        ({"method": "cops", "settings": ["width"]}, "write NAME=VALUE"),
        ({"method": "cops", "settings": ["breadth=3"]}, "no setting 'breadth'"),
        ({"settings": ["width=8"]}, r"'width' is a setting of .*cops"),
    ],
)
def test_methods_that_cannot_be(options: dict[str, Any], said: str) -> None:
    for name in ("tables", "multi", "scaling"):
        with pytest.raises(SpecError, match=said):
            bench.run(name, device="cpu", quiet=True, **options)


def test_a_method_of_multimaps_alone() -> None:
    for name in ("tables", "scaling"):
        with pytest.raises(SpecError, match="--method bucket_list"):
            bench.run(name, device="cpu", quiet=True, method="bucket_list")
    rows = bench.run(
        "multi", device="cpu", n=[500], distributions=["uniform:8"], repeats=1, quiet=True,
        method="bucket_list", settings=["growth=1.5"],
    )  # fmt: skip
    assert {row["method"] for row in rows} == {"bucket_list growth=1.5"}


def test_wrong_answers_void_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(method.HashMap):
        def find(self, keys: Any, *rest: Any, **settings: Any) -> Any:
            values, found = super().find(keys, *rest, **settings)
            return values + 1, found

    monkeypatch.setattr(method, "HashMap", Forgetful)
    with pytest.raises(DgpuhashError, match=r"a value was wrong.*void"):
        bench.run("tables", device="cpu", n=[100], dtypes=["32/32"], repeats=1, quiet=True)
    with pytest.raises(DgpuhashError, match=r"a value was wrong.*batch 10.*void"):
        list(open_tables.call_rows(backend.get("cpu"), method.Pairs.of("32/32"), 100, [10]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtypes": ["16/16"]}, "'16/16'; use 32/32"),
        ({"n": [2**32], "dtypes": ["32/32"]}, "2,080,374,784 at most"),
        ({"hit_rates": [1.5]}, "hit rate of 1.5"),
        ({"distribution": "zipf"}, "'zipf'; use 'unique'"),
        ({"footprints": [1]}, "no option 'footprints'; it has n, loads"),
    ],
)
def test_impossible_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        bench.run("tables", device="cpu", quiet=True, **options)


def test_unknown_benchmark() -> None:
    with pytest.raises(SpecError, match="'speed'"):
        bench.run("speed")


def test_usual_sizes_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    used = backend.get("cpu")
    monkeypatch.setattr(type(used), "memory", lambda _: (2**20, 2**30))
    rows = bench.run("tables", device="cpu", loads=[0.5], batches=(), repeats=1, quiet=True)
    assert {(row["pairs"], row["n"]) for row in rows} == {("32/32", 2**13), ("64/64", 2**12)}


def test_the_peak_counts_what_is_freed_in_between(device: str) -> None:
    used = backend.get(device)
    kept = used.zeros(2**20, np.uint8)

    def work() -> Any:
        used.zeros(2**22, np.uint8)
        return used.zeros(2**21, np.uint8)

    peak, made = peak_bytes(used, work)
    assert len(made) == 2**21
    assert len(kept) == 2**20
    assert 2**22 <= peak < 2**22 + 2**20
