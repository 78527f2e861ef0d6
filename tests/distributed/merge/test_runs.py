"""Runs of merges and groupbys whose tasks die while they begin them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, lazy, until
from distributed import Client

import dgpuhash
from dgpuhash.distributed.groupby.owners import GroupOwners

pytestmark = pytest.mark.cluster


def die_before_a_run_begins(once: Path) -> None:
    """Have the first task of all workers that has opened a run end its process."""
    from dgpuhash.distributed.merge import runs

    begin = runs.begin_run

    def begin_run(client: Client, key: Any, run: Any) -> Any:
        if run.workers:
            try:
                once.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return begin(client, key, run)

    runs.begin_run = begin_run


def held_here(dask_worker: Any) -> int:
    """Return how many shards and states of groups a worker holds, ready or begun."""
    host = dask_worker.plugins.get("dgpuhash")
    if host is None:
        return 0
    shards, states = host.shards, host.service(GroupOwners)
    return len(shards._shards) + len(shards._staged) + len(states.runs)


@pytest.mark.parametrize("verb", ["merge", "groupby"])
def test_a_worker_that_dies_while_it_begins_a_run_leaves_nothing(processes, tmp_path, verb):
    processes.wait_for_workers(2)
    processes.run(die_before_a_run_begins, tmp_path / "died")
    rows = pd.DataFrame({"k": np.arange(600) % 90, "v": np.arange(600)})
    others = pd.DataFrame({"k": np.arange(0, 120, 2), "w": np.arange(60)})
    if verb == "merge":
        found = dgpuhash.merge(lazy(rows, 4), lazy(others, 3), on="k", how="outer").compute()
        assert_same_rows(found, rows.merge(others, on="k", how="outer"))
    else:
        found = dgpuhash.groupby(lazy(rows, 4), "k").sum().compute()
        pd.testing.assert_frame_equal(found.sort_index(), rows.groupby("k").sum())
    assert (tmp_path / "died").exists()
    processes.wait_for_workers(2)
    until(lambda: not any(processes.run(held_here).values()))
