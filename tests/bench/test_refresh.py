"""Benchmark of joins under change, at TPC-H's scale 0.01."""

from __future__ import annotations

import ast
import inspect
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import cluster_of

import dgpuhash
from dgpuhash import bench
from dgpuhash.bench.refresh import anew, kept, run, tables
from dgpuhash.bench.refresh.anew import DataFrames
from dgpuhash.bench.refresh.run import OursHere, OursOnWorkers
from dgpuhash.bench.report import plots
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import problem_of
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.errors import DeviceError, DgpuhashError, SpecError

pytest.importorskip("duckdb")
from frames import paper_groups
from suites.tpch.answers import expected_of, open_tables

# What the units of sums are to those of TPC-H.
SCALED = {"revenue": 10**4, "sum_base_price": 100, "sum_disc_price": 10**4, "sum_charge": 10**6,
          "avg_price": 100, "avg_disc": 100, "sum_profit": 10**4, "c_acctbal": 100,
          "o_totalprice": 100}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("refresh") / "tables"
    tables.generate(made, 0.01)
    return made


@pytest.fixture(scope="module")
def rows_of(folder: Path) -> dict[str, pa.Table]:
    return tables.read_tables(folder)


def test_new_orders_have_keys_of_the_gaps(rows_of: dict[str, pa.Table]) -> None:
    first, second = tables.changes(rows_of, [0.01, 0.02])
    keys = rows_of["orders"]["o_orderkey"].to_numpy()
    gone = np.concatenate([each.keys["o_orderkey"].to_numpy() for each in (first, second)])
    assert gone.tolist() == keys[: len(gone)].tolist()
    for change in (first, second):
        fresh = change.orders["o_orderkey"].to_numpy()
        assert (fresh % 32 // 8 == 1).all()
        assert not np.isin(fresh, keys).any()
        lines = change.lineitem["l_orderkey"].to_numpy()
        assert np.unique(lines).tolist() == fresh.tolist()
        lost = np.isin(rows_of["lineitem"]["l_orderkey"].to_numpy(), change.keys["o_orderkey"])
        assert change.rows == 2 * len(fresh) + len(lines) + lost.sum()
    assert (first.orders.num_rows, second.orders.num_rows) == (150, 300)


def test_new_lines_are_those_of_an_order(rows_of: dict[str, pa.Table]) -> None:
    (change,) = tables.changes(rows_of, [0.001])
    orders, lines = rows_of["orders"].to_pandas(), rows_of["lineitem"].to_pandas()
    by_content = orders.set_index(["o_custkey", "o_totalprice", "o_orderdate"])["o_orderkey"]
    for fresh in change.orders.to_pandas().itertuples():
        source = by_content[(fresh.o_custkey, fresh.o_totalprice, fresh.o_orderdate)]
        own = change.lineitem.to_pandas().query(f"l_orderkey == {fresh.o_orderkey}")
        other = lines[lines["l_orderkey"] == source]
        assert own.iloc[:, 1:].to_numpy().tolist() == other.iloc[:, 1:].to_numpy().tolist()


def test_more_orders_than_there_are(rows_of: dict[str, pa.Table]) -> None:
    with pytest.raises(
        SpecError, match="16,500 orders would be deleted in all, but there are only 15,000"
    ):
        next(tables.changes(rows_of, [0.1] * 11))


def test_answers_are_those_of_tpch(folder: Path, rows_of: dict[str, pa.Table]) -> None:
    answers = OursHere(rows_of).answers()
    assert list(answers) == list(anew.QUERIES)
    with open_tables(folder) as database:
        for number, rows in answers.items():
            expected = expected_of(number, database)
            factors = [SCALED.get(name, 1) for name in expected]
            theirs = list(expected.itertuples(index=False, name=None))
            assert len(rows) == len(theirs)
            for row, other in zip(sorted(rows), sorted(theirs, key=_scaled(factors)), strict=True):
                for value, exact in zip(row, _scaled(factors)(other), strict=True):
                    if isinstance(value, float):
                        assert value == pytest.approx(exact, rel=1e-12)
                    else:
                        assert value == exact


def _scaled(factors: list[int]) -> Any:
    """Return a function that multiplies a row's decimals."""

    def scaled(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value * factor if isinstance(value, Decimal | float) else value
            for value, factor in zip(row, factors, strict=True)
        )

    return scaled


def test_rounds_answer_as_peers_do(folder: Path, tmp_path: Path) -> None:
    rows = bench.run(
        "refresh", scale=0.01, folder=folder, fractions=[0.01, 0.001], repeats=2, quiet=True
    )
    assert [problem_of(row) for row in rows] == [None] * len(rows)
    rounds = [row for row in rows if row["verb"] == "round"]
    assert [row["fraction"] for row in rounds] == [0.001] * 3 + [0.01] * 3
    assert [row["library"].split()[0] for row in rounds[:3]] == ["dgpuhash", "DuckDB", "Polars"]
    ours = rounds[0]
    best = min(row["time"] for row in rounds[1:3])
    assert ours["share"] == pytest.approx(ours["time"] / best, rel=1e-3)
    assert ours["standing_bytes"] > 2**20
    assert ours["time"] == pytest.approx(sum(ours["steps"].values()), rel=0.5)
    shown = grids("refresh", rows)
    assert [grid.header[0] for grid in shown] == ["scale"] * len(shown)
    assert len(shown[0].lines) == 2
    ((title, path),) = plots.draw("refresh", rows, tmp_path)
    assert "over the fastest anew" in title
    assert path.exists()


def test_many_rounds(rows_of: dict[str, pa.Table]) -> None:
    libraries = [OursHere(rows_of), anew.DuckDBRun(rows_of)]
    # Rounds of a few orders, then of a twentieth of all.
    for change in tables.changes(rows_of, [0.001] * 12 + [0.05] * 3):
        assert len(run._round(libraries, change)) == 2


def test_a_round_cut_in_half_goes_on_from_saves(
    rows_of: dict[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, peer = OursHere(rows_of), anew.DuckDBRun(rows_of)
    state = ours._kept
    groups = {f"groups-{number}": each for number, each in state.groups.items()}
    for name, index in state.sides.items():
        index.save(tmp_path / name)
    for name, each in groups.items():
        each.index.save(tmp_path / name)
        each.passing.save(tmp_path / f"{name}-passing")
    update = kept.WeightedGroups.update

    def cut(self: kept.WeightedGroups, rows: Any) -> None:
        if self.query is kept.QUERIES[9]:
            raise MemoryError
        update(self, rows)

    (change,) = tables.changes(rows_of, [0.01])
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(kept.WeightedGroups, "update", cut)
        ours.change(ours.prepare(change))
    state.sides = {name: dgpuhash.load(tmp_path / name) for name in state.sides}
    for name, each in groups.items():
        each.index = each.passing = dgpuhash.load(tmp_path / name)
        if each.query.having:
            each.passing = dgpuhash.load(tmp_path / f"{name}-passing")
    run._round([ours, peer], change)


def test_a_wrong_answer_is_no_figure(
    rows_of: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = anew.DuckDBRun.answers

    def wrong(self: anew.DuckDBRun) -> anew.Answers:
        made = answers(self)
        return {**made, 5: [(name, revenue + 1) for name, revenue in made[5]]}

    monkeypatch.setattr(anew.DuckDBRun, "answers", wrong)
    libraries = [anew.DuckDBRun(rows_of), anew.PolarsRun(rows_of)]
    (change,) = tables.changes(rows_of, [0.001])
    with pytest.raises(DgpuhashError, match="answers to query 5 of DuckDB"):
        run._round(libraries, change)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(0.001, 0.25), (0.1, 4.0)], 0.01),
        ([(0.001, 0.1), (0.01, 1.0), (0.1, 10.0)], 0.01),
        ([(0.001, 0.1), (0.01, 0.5)], None),
        ([(0.001, 2.0), (0.01, 3.0)], None),
        ([], None),
    ],
)
def test_break_even(curve: list[tuple[float, float]], expected: float | None) -> None:
    assert run.break_even(curve) == expected


def test_too_large_for_sums_of_64_bits() -> None:
    with pytest.raises(SpecError, match="scale 100; sums of cents need at most 50"):
        bench.run("refresh", scale=100, quiet=True)


def test_no_cudf_for_frames_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu:
        name = "cuda"

    monkeypatch.setattr(run, "find_spec", lambda _: None)
    with pytest.raises(DeviceError, match="install cudf-cu13, or give --device cpu"):
        next(run.run(Gpu()))  # type: ignore[arg-type]


def test_frames_of_simulated_cudf(
    rows_of: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = anew.DuckDBRun(rows_of)
    paper_groups.install(monkeypatch)
    cudf = sys.modules["cudf"]
    libraries = [OursHere(rows_of, cudf, 10_000), DataFrames(rows_of, cudf, "cuDF"), theirs]
    kept_of = libraries[0]._kept  # type: ignore[attr-defined]
    for change in tables.changes(rows_of, [0.01, 0.02]):
        assert len(run._round(libraries, change)) == 3
    assert type(kept_of.sides["orders"].frame()).__module__ == "cudf.paper"
    assert type(kept_of.groups[18].passing.frame()).__module__ == "cudf.paper"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the queries that are kept: one without a condition on groups, one with."""
    numbers = [5, 18]
    for queries in (kept.QUERIES, anew.QUERIES):
        for number in set(queries) - set(numbers):
            monkeypatch.delitem(queries, number)
    return numbers


def test_rounds_on_workers(rows_of: dict[str, pa.Table], few: list[int]) -> None:
    with cluster_of(2, False) as client:
        ours = OursOnWorkers(rows_of, BenchWorkers(client, "cpu"), pd, 10_000)
        assert list(ours.answers()) == few
        (change,) = tables.changes(rows_of, [0.02])
        run._round([ours, anew.DuckDBRun(rows_of)], change)
        assert ours.name == "dgpuhash on 2 workers"
        assert ours.standing_bytes > 2**20


@pytest.mark.gpu
@pytest.mark.cudf
def test_frames_of_a_gpu(folder: Path) -> None:
    rows = bench.run(
        "refresh", device="cuda", folder=folder, scale=0.01, fractions=[0.01], repeats=2, quiet=True
    )
    names = [row["library"].split()[0].strip(",") for row in rows if row["verb"] == "round"]
    assert names[:3] == ["dgpuhash", "cuDF", "DuckDB"]


def test_the_example_has_public_names_and_is_short() -> None:
    source = inspect.getsource(kept)
    assert len(source.splitlines()) <= 150
    names = [
        (node.module, [each.name for each in node.names])
        for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    ]  # fmt: skip
    assert ("dgpuhash", ["FrameIndex", "groupby", "merge"]) in names
    assert [module for module, _ in names if module and module.startswith("dgpuhash.")] == []
