"""Runs of merges and groupbys whose tasks die while they begin them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, kill, lazy, until
from distributed import Client, futures_of, wait

import dgpuhash
from dgpuhash.distributed.groupby.owners import GroupOwners

pytestmark = pytest.mark.cluster


def die_before_a_run_begins(once: Path) -> None:
    """Have the first task of all workers that has opened a run end its process."""
    from dgpuhash.distributed.runs import run as runs

    begin = runs.begin_run

    def begin_run(client: Client, key: Any, run: Any, **kwargs: Any) -> Any:
        if run.workers:
            try:
                once.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return begin(client, key, run, **kwargs)

    runs.begin_run = begin_run


def open_no_run(dask_worker: Any) -> None:
    """Have this worker open nothing of a run."""

    def refused(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("no room for a run, by order of a test")

    GroupOwners.open = refused
    type(dask_worker.plugins["dgpuhash"].shards).open = refused


def held_here(dask_worker: Any) -> int:
    """Return how many shards and states of groups a worker holds, ready or begun."""
    host = dask_worker.plugins.get("dgpuhash")
    if host is None:
        return 0
    shards, states = host.shards, host.service(GroupOwners)
    return len(shards._shards) + len(shards._staged) + len(states.runs)


ROWS = pd.DataFrame({"k": np.arange(600) % 90, "v": np.arange(600)})
OTHERS = pd.DataFrame({"k": np.arange(0, 120, 2), "w": np.arange(60)})


def computed(verb: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what a verb gives, and what pandas does."""
    if verb == "merge":
        found = dgpuhash.merge(lazy(ROWS, 4), lazy(OTHERS, 3), on="k", how="outer").compute()
        return found, ROWS.merge(OTHERS, on="k", how="outer")
    found = dgpuhash.groupby(lazy(ROWS, 4), "k").sum().compute()
    return found.reset_index(), ROWS.groupby("k").sum().reset_index()


@pytest.mark.parametrize("verb", ["merge", "groupby"])
def test_a_worker_that_dies_while_it_opens_a_run_leaves_nothing(processes, tmp_path, verb):
    processes.wait_for_workers(2)
    processes.run(die_before_a_run_begins, tmp_path / "died")
    assert_same_rows(*computed(verb))
    assert (tmp_path / "died").exists()
    processes.wait_for_workers(2)
    until(lambda: not any(processes.run(held_here).values()))


@pytest.mark.parametrize("verb", ["merge", "groupby"])
def test_a_run_that_a_worker_has_no_room_for_leaves_nothing(processes, verb):
    processes.wait_for_workers(2)
    processes.run(open_no_run, workers=sorted(processes.nthreads())[1:])
    with pytest.raises(MemoryError, match="no room for a run"):
        computed(verb)
    until(lambda: not any(processes.run(held_here).values()))
    processes.restart()
    assert_same_rows(*computed(verb))


def test_rows_that_are_lost_after_an_outer_merge_are_made_with_marks_of_one_run(processes):
    processes.wait_for_workers(2)
    few = pd.DataFrame({"k": np.arange(80), "v": np.arange(80)})
    merged = dgpuhash.merge(lazy(few, 4), lazy(OTHERS, 3), on="k", how="outer").persist()
    wait(merged)
    until(lambda: not any(processes.run(held_here).values()))
    # A worker with rows that no partition has found; the other keeps partitions that marked theirs.
    tail = futures_of(merged)[-1]
    kill(processes, processes.who_has([tail])[tail.key][0])
    assert_same_rows(merged.compute(), few.merge(OTHERS, on="k", how="outer"))
