"""`dgpuhash bench` from a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from crews import crew_of_threads

from dgpuhash.bench import BENCHES, limits, parameters
from dgpuhash.bench.frames import on_workers
from dgpuhash.bench.workers import exchange, scaling
from dgpuhash.cli import main
from dgpuhash.cli.bench import bench


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def test_every_benchmark_has_a_command() -> None:
    assert {*BENCHES, "report"} == set(bench.commands)
    for name in BENCHES:
        said = " ".join(run(name, "--help").output.split())
        for parameter in parameters(name):
            words = parameter.help.split()
            assert len(words) > 1, (name, parameter.name)
            assert " ".join(words) in said


def test_measures_and_writes_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    options = ["--device", "cpu", "--n", 4096, "--load", 0.5, "--dtypes", "64/64", "--repeats", 1]
    more = ["--hit-rate", 0.5, "--batch", 10, "--distribution", "uniform:2", "--json", path]
    result = run("tables", *options, *more)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["verb"] for row in rows} == {
        "insert",
        "mixed 0.5",
        "erase",
        "build",
        "memory",
        "find",
        "contains",
    }
    assert {row["bench"] for row in rows} == {"tables"}
    assert {row["n"] for row in rows} == {4096}


@pytest.mark.parametrize(
    "arguments",
    [
        ["limits", "--footprint", 2**14, "--n", 1000],
        ["multi", "--n", 1000, "--load", 0.5, "--dtypes", "64/64", "--distribution", "zipf:1.5"],
        ["group", "--n", 1000, "--groups", 10, "--compare"],
        ["join", "--n", 1000, "--build", 10, "--hit-rate", 0.5, "--distribution", "uniform:2"],
        ["cpu", "--n", 1000, "--verb", "find"],
        ["frames", "--rows", 1000, "--question", "j1", "--engine", "dgpuhash"],
        [
            "groupbys",
            "--workers",
            1,
            "-c",
            1000,
            "--groups",
            50,
            "--verb",
            "sum + count",
            "--engine",
            "dgpuhash",
            "--engine",
            "dask",
        ],
        ["exchange", "--workers", 2, "--bytes", 4096, "--exchange", "comm"],
        ["scaling", "--workers", 1, "-c", 1000, "--mode", "weak", "--frac-match", 0.5],
    ],
)
def test_every_question(
    arguments: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (exchange, on_workers, scaling):
        monkeypatch.setattr(module, "start", crew_of_threads)
    path = tmp_path / "figures.jsonl"
    once = {
        "cpu": "--repeat",
        "exchange": "--runs",
        "scaling": "--runs",
        "frames": "--repeat",
        "groupbys": "--runs",
    }
    counted = once.get(str(arguments[0]), "--repeats")
    result = run(*arguments, "--device", "cpu", counted, 1, "--json", path)
    assert result.exit_code == 0, result.output
    assert all(json.loads(line)["correct"] for line in path.read_text().splitlines())
    said = run("report", path, "--output", tmp_path / "report", "--no-plots")
    assert said.output == f"{tmp_path / 'report' / 'report.md'}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scaling", "--verb", "foo"], "verb 'foo'"),
        (["tables", "--distribution", "foo"], "distribution 'foo'"),
        (["model", "--workers", 8], "give --chunk-size"),
    ],
)
def test_figures_stay_until_there_are_others(
    arguments: list[object], said: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text("figures")
    for path in (kept, tmp_path / "new.jsonl"):
        result = run(*arguments, "--device", "cpu", "--json", path, "--force")
        assert result.exit_code == 2
        assert said in result.output
    assert kept.read_text() == "figures"
    assert list(tmp_path.iterdir()) == [kept]
    again = ["limits", "--footprint", 2**14, "--n", 1000, "--repeats", 1, "--device", "cpu"]
    result = run(*again, "--json", kept)
    assert result.exit_code == 2
    assert f"{kept} exists already; choose another name, or replace it with --force" in (
        " ".join(result.output.split())
    )
    assert kept.read_text() == "figures"
    assert run(*again, "--json", kept, "--force").exit_code == 0
    assert all(json.loads(line)["bench"] == "limits" for line in kept.read_text().splitlines())


def test_figures_are_not_written_over_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scaling.jsonl"
    path.write_text("figures")
    result = run("model", "--measured", path, "--json", f"{tmp_path}/./scaling.jsonl")
    assert result.exit_code == 2
    assert "is the benchmark's input; give --json another file" in result.output
    assert path.read_text() == "figures"


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "run", lambda backend, **options: pytest.fail("measured"))
    result = run("limits", "--device", "cpu", "--json", tmp_path)
    assert result.exit_code == 2
    said = f"{tmp_path} cannot be written: Is a directory; give --json a file"
    assert said in result.output


def test_a_report_into_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    options = ["--footprint", 2**14, "--n", 1000, "--repeats", 1, "--device", "cpu"]
    run("limits", *options, "--json", path)
    result = run("report", path, "-o", path, "--no-plots")
    assert result.exit_code == 2
    assert f"{path} cannot be made: File exists; name a folder to fill" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["limits", "--load", 0.5], "No such option"),
        (["limits", "--footprint", 1000], "power of two"),
        (["limits", "--footprint", 2**12, "--n", 2**40], "'limits' ran out of memory"),
        (["join", "--n", 2**63], "9223372036854775808 is more than 1,099,511,627,776"),
        (["tables", "--load", 1], "0.01<=x<1"),
        (["tables", "--dtypes", "8/8"], "'32/32'"),
        (["tables", "--distribution", "zipf:often"], "zipf:1.5"),
        (["multi", "--dtypes", "set32"], "'64/32'"),
        (["cpu", "--compare", "--load", 0.5], "No such option"),
        (["join", "--hit-rate", 2], "0<=x<=1"),
        (["scaling", "--protocol", "mpi"], "'tcp', 'ucx', 'ucxx'"),
        (["scaling", "--frac-match", 0], "0<x<=1"),
        (["scaling", "--workers", 8, "--chunk-size", 10], "at least 64 rows"),
        (["model", "--chunk-size", 1000], "give --latency"),
        (["model", "--repeats", 1], "No such option"),
        (["model", "--link", "nan"], "nan is not a finite number"),
        (["model", "--latency", "nan"], "nan is not a finite number"),
        (["model", "--latency", "inf"], "inf is not a finite number"),
        (["tables", "--load", "nan"], "nan is not a finite number"),
        (["speed"], "No such command"),
        (["report"], "Missing argument 'FILES...'"),
        (["report", "/nowhere.jsonl"], "does not exist"),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[object], said: str) -> None:
    result = run(*arguments, *([] if arguments[0] in ("speed", "report") else ["--device", "cpu"]))
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output
