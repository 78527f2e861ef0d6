"""`dgpuhash bench` from a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dgpuhash.bench import BENCHES
from dgpuhash.cli import main
from dgpuhash.cli.bench import bench


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def test_every_benchmark_has_a_command() -> None:
    assert set(BENCHES) <= set(bench.commands)


def test_measures_and_writes_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    options = ["--device", "cpu", "--n", 4096, "--load", 0.5, "--dtypes", "64/64", "--repeats", 1]
    more = ["--hit-rate", 0.5, "--batch", 10, "--distribution", "uniform:2", "--json", path]
    result = run("tables", *options, *more)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["verb"] for row in rows} == {"insert", "mixed", "erase", "build", "memory", "find"}
    assert {row["bench"] for row in rows} == {"tables"}
    assert {row["n"] for row in rows} == {4096}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["limits", "--load", 0.5], "No such option"),
        (["limits", "--footprint", 1000], "power of two"),
        (["tables", "--load", 1], "0.01<=x<1"),
        (["tables", "--dtypes", "8/8"], "'32/32'"),
        (["tables", "--distribution", "zipf:often"], "zipf:1.5"),
        (["speed"], "No such command"),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[object], said: str) -> None:
    result = run(*arguments, *([] if arguments == ["speed"] else ["--device", "cpu"]))
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output
