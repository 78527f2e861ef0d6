"""`build`, `join` and `lookup` on files give what pandas gives."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from dgpuhash.cli import main

PLANES = pd.DataFrame(
    {"tailnum": [f"N{number}" for number in range(50)], "seats": np.arange(50), "year": 2000.5}
)
FLIGHTS = pd.DataFrame(
    {
        "flight": np.arange(200),
        "tailnum": [f"N{number % 70}" for number in range(199)] + [None],
        "year": 2013,
    }
)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the flights as three Parquet files, planes.csv and its index planes.dgph."""
    made = tmp_path_factory.mktemp("files")
    PLANES.to_csv(made / "planes.csv", index=False)
    for part in range(3):
        FLIGHTS.iloc[part * 70 : part * 70 + 70].to_parquet(made / f"flights-{part}.parquet")
    said = run("build", made / "planes.csv", "--on", "tailnum", "-o", made / "planes.dgph")
    assert "50 rows on tailnum" in said
    return made


@pytest.mark.parametrize("how", ["inner", "left"])
def test_join(folder, tmp_path, how):
    target = tmp_path / "out.parquet"
    options = ["--on", "tailnum", "--how", how, "--suffixes", "_flight,_plane", "-o", target]
    run("join", folder / "flights-*.parquet", folder / "planes.dgph", *options)
    expected = FLIGHTS.merge(PLANES, on="tailnum", how=how, suffixes=("_flight", "_plane"))
    pd.testing.assert_frame_equal(pd.read_parquet(target), expected)


@pytest.mark.parametrize(("how", "kept"), [("semi", True), ("anti", False)])
def test_join_that_only_filters(folder, tmp_path, how, kept):
    target = tmp_path / "out.csv"
    run("join", folder / "flights-*.parquet", folder / "planes.dgph", "--how", how, "-o", target)
    expected = FLIGHTS[FLIGHTS["tailnum"].isin(PLANES["tailnum"]) == kept]
    pd.testing.assert_frame_equal(pd.read_csv(target), expected.reset_index(drop=True))


def test_join_on_a_column_of_another_name_into_a_directory(folder, tmp_path):
    FLIGHTS.rename(columns={"tailnum": "plane"}).to_parquet(tmp_path / "flights.parquet")
    target = f"{tmp_path}/out.parquet/"
    source = [tmp_path / "flights.parquet", folder / "planes.dgph"]
    run("join", *source, "--on", "plane", "--how", "inner", "-o", target)
    expected = FLIGHTS.rename(columns={"tailnum": "plane"}).merge(
        PLANES, left_on="plane", right_on="tailnum"
    )
    pd.testing.assert_frame_equal(pd.read_parquet(target), expected)


def test_lookup(folder):
    said = run("lookup", folder / "planes.dgph", "N7", "N14228", "N3", "--format", "json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert [(row["tailnum"], row["seats"]) for row in rows] == [("N7", 7), ("N3", 3)]


def test_lookup_prints_a_table(folder):
    said = run("lookup", folder / "planes.dgph", "N7")
    assert "tailnum" in said
    assert "N7" in said


def test_lookup_of_nothing_that_is_there_ends_with_1(folder):
    assert run("lookup", folder / "planes.dgph", "N99", "--format", "csv", code=1).count("\n") == 1


def test_build_keeps_the_columns_asked_for(folder, tmp_path):
    saved = tmp_path / "seats.dgph"
    run("build", folder / "planes.csv", "--on", "tailnum", "--columns", "seats", "-o", saved)
    assert run("lookup", saved, "N7", "--format", "csv") == "tailnum,seats\nN7,7\n"


def test_keys_of_two_columns_and_duplicates(tmp_path):
    frame = pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 1, 2], "c": [1.5, 2.5, 3.5]})
    frame.to_parquet(tmp_path / "pairs.parquet")
    saved = tmp_path / "pairs.dgph"
    run("build", tmp_path / "pairs.parquet", "--on", "a,b", "--duplicates", "-o", saved)
    said = run("lookup", saved, "x,1", "--format", "csv")
    assert said == "a,b,c\nx,1,1.5\nx,1,2.5\n"


def test_a_relative_path_on_a_cluster_whose_workers_run_elsewhere(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "planes.csv").write_bytes((folder / "planes.csv").read_bytes())
        at = ["--scheduler", cluster.scheduler_address]
        run("build", "planes.csv", "--on", "tailnum", "-o", "again.dgph", *at)
        assert "N7" in run("lookup", "again.dgph", "N7", *at)


def test_bench_measures_and_writes_its_figures(tmp_path):
    figures = tmp_path / "figures.jsonl"
    options = ["--device", "cpu", "--size", 4096, "--load", 0.5, "--repeats", 1]
    run("bench", "tables", *options, "--json", figures)
    rows = [json.loads(line) for line in figures.read_text().splitlines()]
    assert {row["verb"] for row in rows} == {"insert", "find", "absent"}
    run("bench", "limits", "--size", 4096, code=2)
