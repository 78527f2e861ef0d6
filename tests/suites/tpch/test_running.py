"""Runs of TPC-H's queries: the peer's seconds, and the table of all."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("duckdb")

from suites.tpch import pdsh
from suites.tpch.answers import first_rows
from suites.tpch.libraries import on_host
from suites.tpch.running import GivenUp, Outcome, at_most, table_of

# What cudf-polars' runner takes and writes, but for the queries.
_RUNNER = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("query")
for name in ("path", "suffix", "frontend", "iterations", "output"):
    parser.add_argument(f"--{name}", required=True)
for name in ("print-results", "print-plans", "summarize"):
    parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
given = parser.parse_args()
assert given.suffix == "/*.parquet" and os.path.isabs(given.path)
assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
print("the runner's last words")
if given.frontend == "in-memory":
    sys.exit(1)
failed, *others = given.query.split(",")
records = {failed: [{"iteration": -1, "status": "error", "traceback": "…"}]}
for number in others:
    records[number] = [
        {"iteration": n, "status": "success", "duration": 9.0 if n == 0 else float(n)}
        for n in range(int(given.iterations))
    ]
with open(given.output, "a") as told:
    print(json.dumps({"records": records}), file=told)
sys.exit(3)
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cudf_polars" / "streaming" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "pdsh.py").write_text(textwrap.dedent(_RUNNER))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_the_first_run_and_failed_queries_do_not_count(
    runner: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = pdsh.seconds_of(runner, [1, 3, 6], frontend="dask", repeats=3, workers=2)
    assert found == {3: 2.0, 6: 2.0}
    said = capfd.readouterr().err
    assert "no time of [1]" in said and "last words" in said


def test_a_runner_that_ends_early_has_no_seconds(
    runner: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pdsh.seconds_of(runner, [1, 3], frontend="in-memory", repeats=1, workers=2) == {}
    assert "no time of [1, 3]" in capfd.readouterr().err


def test_sums_are_of_what_both_answered() -> None:
    found = [
        Outcome(1, 4, 0.1, None, 0.2),
        Outcome(2, 9, 0.5, None),
        Outcome(3, 0, 0.0, "ValueError: no (here:1)", 0.3),
    ]
    lines = table_of(found, compared=True).splitlines()
    assert lines[1].split() == ["1", "4", "0.100", "0.200", "0.50", "yes"]
    assert lines[2].split() == ["2", "9", "0.500", "-", "-", "yes"]
    assert lines[3].split()[3:] == ["0.300", "-", "ValueError:", "no", "(here:1)"]
    assert lines[4].split()[:5] == ["sum", "2", "0.600", "0.200", "0.50"]
    record = found[2].record(device="cuda")
    assert (record["right"], record["ratio"], record["device"]) == (False, None, "cuda")


def test_moments_are_days_on_the_host() -> None:
    made = on_host(pd.DataFrame({"day": pd.to_datetime(["1995-03-15"]), "rows": [1]}))
    assert made["day"].tolist() == [pd.Timestamp("1995-03-15").date()]


def test_long_runs_are_given_up() -> None:
    with pytest.raises(GivenUp, match=r"more than 0\.05 s"), at_most(0.05):
        time.sleep(30)
    with at_most(0.05):
        pass
    time.sleep(0.1)


def test_first_rows_of_frames_and_of_partitions() -> None:
    frame = pd.DataFrame({"revenue": np.arange(40.0) % 20, "o_orderdate": np.arange(40)})
    expected = frame.sort_values(["revenue", "o_orderdate"], ascending=[False, True]).head(10)
    pd.testing.assert_frame_equal(first_rows(3, frame), expected)
    lazy = first_rows(3, dd.from_pandas(frame, npartitions=3))
    some = lazy.compute(scheduler="sync")
    assert len(some) == 30
    pd.testing.assert_frame_equal(first_rows(3, some), expected)
