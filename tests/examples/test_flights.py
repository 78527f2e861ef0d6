"""Demo of flights, and its failure when one value differs."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
import pytest
from clusters import cluster_of
from rich.console import Console

from dgpuhash.demo import data, reference, repeated_joins
from dgpuhash.demo.cluster import local_client
from dgpuhash.demo.repeated_joins import RepeatedJoins
from dgpuhash.demo.report import DemoReport
from dgpuhash.errors import UnsupportedError

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "flights.py"


@pytest.mark.cluster
@pytest.mark.slow
def test_the_program_passes():
    """With few rows, as `make demo` has them all."""
    fewer = (
        "import functools, runpy, sys; from dgpuhash.demo import flights; "
        "flights.RepeatedJoins = functools.partial("
        "flights.RepeatedJoins, rows=20_000, batch_rows=5_000, times=2); "
        "flights.KeptAnswers = functools.partial("
        "flights.KeptAnswers, scale=0.01, fractions=(0.01,), times=1); "
        "runpy.run_path(sys.argv.pop(), run_name='__main__')"
    )
    found = subprocess.run(
        [sys.executable, "-c", fewer, PROGRAM],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    whole = ("BOEING", "rows/s", "Shards", "Every result equals pandas' own.")
    for phrase in (*whole, "20,000 rows, joined 2 times with", "Both give the same rows.",
                   "orders that change", "All answers are equal in each round."):  # fmt: skip
        assert phrase in found.stdout
    # A sentence above bars that move would be lost.
    bars, note = found.stdout.index("index planes"), found.stdout.index("flights without a plane")
    assert bars < found.stdout.index("What it took") < note
    assert "Traceback" not in found.stderr


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_in_a_terminal(workers):
    """Which all processes get at once, while workers start or after."""
    program = subprocess.Popen(
        [Path(sys.executable).with_name("dgpuhash"), "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Shells let what runs in the background ignore it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        # Another test's cluster may have the dashboard's port.
        env={**os.environ, "PYTHONWARNINGS": "ignore:Port"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        while len(psutil.Process(program.pid).children()) < 1 + max(workers, 1):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(4 if workers else 0)
        children = psutil.Process(program.pid).children()
        begun = time.monotonic()
        os.killpg(program.pid, signal.SIGINT)
        program.wait(timeout=100)
        seconds = time.monotonic() - begun
        _, said = program.communicate(timeout=100)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 1
    # Dask may tell of tasks that ended with the workers, and Python of their semaphores.
    assert "Aborted!" in said.splitlines()
    # Three on a machine that does nothing else, and half a minute if something waited for Dask.
    assert seconds < 25
    assert not psutil.wait_procs(children, timeout=20)[1]


def logged_by_a_worker():
    """Return what a worker's log shows of two messages."""
    stream = io.StringIO()
    logger, handler = logging.getLogger("distributed.worker"), logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.error("Failed to communicate with scheduler during heartbeat.")
    logger.error("Another failure")
    logger.removeHandler(handler)
    return stream.getvalue()


@pytest.mark.cluster
def test_workers_log_no_heartbeat_that_their_end_cuts_off():
    with local_client(1) as client:
        assert list(client.run(logged_by_a_worker).values()) == ["Another failure\n"]


def test_a_result_with_one_other_value_is_a_difference():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    reference.expect_equal(frame, frame.copy(), "the same")
    for other in (frame.assign(a=[1, 3]), frame.astype({"a": "int32"}), frame[["b", "a"]]):
        with pytest.raises(reference.ResultMismatch, match="the join: the index and pandas differ"):
            reference.expect_equal(other, frame, "the join")


def test_the_data_needs_its_package(monkeypatch):
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install '\.\[demo\]'"):
        data.read()


def test_the_partitions_hold_the_whole_table(tmp_path):
    planes = data.read()["planes"]
    path = data.write_partitions(planes, tmp_path / "planes", 3)
    pd.testing.assert_frame_equal(pd.read_parquet(path), planes)


def test_new_planes_fit_to_the_old_ones():
    tables = data.read()
    added = data.new_planes(tables["flights"], tables["planes"], 5)
    assert added.dtypes.to_dict() == tables["planes"].dtypes.to_dict()
    assert not added["tailnum"].isin(tables["planes"]["tailnum"]).any()


@pytest.fixture
def client():
    with cluster_of(2, processes=False) as client:
        yield client


def test_batches_are_joined_by_an_index_and_by_dask(client, monkeypatch):
    """With the same rows, or the demo fails."""
    many = RepeatedJoins(rows=1000, batch_rows=301, times=3, partitions=4)
    rows = many.stored().compute()
    assert sorted(rows["k"]) == list(range(1000))
    batches = [many.batch(number).compute() for number in range(3)]
    assert [len(batch) for batch in batches] == [301] * 3
    assert not batches[0]["k"].equals(batches[1]["k"])
    report = DemoReport(Console(quiet=True))
    with report:
        found = many.run(client, report)
    assert list(found.columns[-1:]) == ["in all, 3 times"]
    assert found.iloc[0, 1:].notna().all()
    assert found.iloc[0, -1] == pytest.approx(
        found["build"][0] + found["first batch"][0] + 2 * found["others, each"][0]
    )
    assert [phase.rows for phase in report.phases] == [1000, 903, 903]
    expected = batches[1].merge(rows, on="k")
    assert 100 < len(expected) < 200
    seen, whole = [], repeated_joins._summary

    def one_other_row(joined):
        seen.append(whole(joined))
        return seen[-1] + (len(seen) == 5)

    monkeypatch.setattr(repeated_joins, "_summary", one_other_row)
    with (
        report,
        pytest.raises(reference.ResultMismatch, match="batch 1: the index and Dask's merge"),
    ):
        many.run(client, report)
    assert seen[1]["rows"] == len(expected)


def test_the_report_shows_every_phase():
    stream = io.StringIO()
    report = DemoReport(Console(file=stream, width=100))
    with report, report.phase("build", rows=1000, steps=2) as advance:
        advance(1)
        report.note("[flights] without a plane")
    assert "without a plane" not in stream.getvalue()
    report.print_notes()
    assert "[flights] without a plane" in stream.getvalue()
    report.print_phases()
    report.print_frame(
        pd.DataFrame({"worker": ["w0"], "rows": [1234], "load": [0.5], "on": ["[a]"]}), "S"
    )
    for phrase in ("build", "1,000", "1,234", "0.5", "w0", "[a]"):
        assert phrase in stream.getvalue()
