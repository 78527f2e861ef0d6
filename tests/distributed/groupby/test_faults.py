"""Groupbys whose workers die, and whose tasks run twice."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import free_run_after, killer, lazy, unnamed_files, until
from distributed import Client, Status
from gate import Gate, read_halfway

import dgpuhash
from dgpuhash.distributed.groupby import steps
from dgpuhash.distributed.runs import phases
from dgpuhash.distributed.runs.phases import sink
from dgpuhash.errors import UnsupportedError

pytestmark = pytest.mark.cluster


@pytest.fixture
def rows() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(3000) % 800, "v": np.arange(3000)})


@pytest.fixture
def cluster(processes: Client) -> Client:
    """Return the client of two workers, alive."""
    nannies = processes.cluster.workers
    until(
        lambda: (
            len(processes.run(os.getpid, on_error="ignore")) == 2
            and all(each.status is Status.running for each in nannies.values())
        )
    )
    return processes


@pytest.mark.parametrize(("victim", "few"), [(0, 0), (1, 0), (0, 2**14)])
def test_killed_while_partitions_are_folded(cluster, rows, tmp_path, monkeypatch, victim, few):
    monkeypatch.setitem(steps._FEW_STATES, "cpu", few)
    gate, worker = Gate(tmp_path), sorted(cluster.nthreads())[victim]
    result = dgpuhash.groupby(read_halfway(rows, 8, gate, 5), "k").agg(["sum", "median"])
    with gate.opened_after(killer(cluster, worker)):
        found = result.compute()
    pd.testing.assert_frame_equal(found.sort_index(), rows.groupby("k").agg(["sum", "median"]))


def test_killed_while_states_are_on_its_disk(cluster, rows, tmp_path):
    def without_memory() -> int:
        from dgpuhash.distributed.shards import worker_memory

        worker_memory.WRITTEN_AT_ONCE, worker_memory.SHARE = 0, 1 << 60
        return os.getpid()

    # One partition waits, so that the others are reduced.
    gate, pids = Gate(tmp_path), cluster.run(without_memory)
    worker = sorted(pids)[0]
    strike = killer(cluster, worker)

    def strike_then() -> None:
        until(lambda: bool(unnamed_files(pids[worker])))
        strike()

    result = dgpuhash.groupby(read_halfway(rows, 8, gate, 7), "k").sum()
    with gate.opened_after(strike_then):
        found = result.compute()
    pd.testing.assert_frame_equal(found.sort_index(), rows.groupby("k").sum())
    (other,) = set(pids) - {worker}
    until(lambda: not unnamed_files(pids[other]))


def test_states_that_were_freed_are_made_anew(cluster, rows, tmp_path):
    # The last partition is reduced when states of others are gone.
    gate = Gate(tmp_path)
    result = dgpuhash.groupby(read_halfway(rows, 8, gate, 7), "k").sum()
    with gate.opened_after(partial(free_run_after, cluster, "dgpuhash_reduce")):
        found = result.compute()
    pd.testing.assert_frame_equal(found.sort_index(), rows.groupby("k").sum())


@pytest.mark.parametrize("few", [0, 2**14])
def test_killed_while_results_are_read(cluster, rows, tmp_path, monkeypatch, few):
    monkeypatch.setitem(steps._FEW_STATES, "cpu", few)
    gate, worker = Gate(tmp_path), sorted(cluster.nthreads())[0]
    result = dgpuhash.groupby(lazy(rows, 6), "k", npartitions=4).sum()
    wait = gate.wait

    def late(part: pd.DataFrame) -> pd.DataFrame:
        wait()
        return part

    with gate.opened_after(killer(cluster, worker)):
        found = result.map_partitions(late, meta=result._meta).compute()
    pd.testing.assert_frame_equal(found.sort_index(), rows.groupby("k").sum())


def test_tasks_that_run_twice_count_once(threads, rows, monkeypatch):
    monkeypatch.setattr(phases, "sink", twice)
    result = dgpuhash.groupby(lazy(rows, 4), "k").agg(n=("v", "size"), v=("v", "sum"))
    wanted = rows.groupby("k").agg(n=("v", "size"), v=("v", "sum"))
    pd.testing.assert_frame_equal(result.compute().sort_index(), wanted)


def twice(frame: Any, *args: Any) -> Any:
    """Reduce a partition in two attempts; tell of the second."""
    sink(frame, *args)
    return sink(frame, *args)


@pytest.mark.parametrize("changed", ["k", "v"])
def test_a_partition_that_comes_out_otherwise_is_refused(threads, rows, monkeypatch, changed):
    def otherwise(frame: Any, *args: Any) -> Any:
        sink(frame, *args)
        return sink(frame.assign(**{changed: frame[changed].to_numpy() + 0.25}), *args)

    monkeypatch.setattr(phases, "sink", otherwise)
    source = lazy(rows.astype({"v": "float64", "k": "float64"}), 3)
    with pytest.raises(UnsupportedError, match="deterministic"):
        dgpuhash.groupby(source, "k").sum().compute()


def test_errors_of_partitions_reach_the_user(threads, rows):
    def broken(number: int) -> pd.DataFrame:
        raise OSError(f"no file {number}")

    source = dd.from_map(broken, range(2), meta=rows[:0])
    with pytest.raises(OSError, match="no file"):
        dgpuhash.groupby(source, "k").sum().compute()
