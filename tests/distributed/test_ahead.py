"""Tasks leave their thread while they wait, a bounded number of them."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import get_worker

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.ahead import Ahead
from dgpuhash.distributed.probe import Probe


def test_what_is_no_task_goes_on():
    ahead = Ahead()
    for _ in range(3):
        with ahead.task(1, most_nbytes=10):
            pass


def test_tasks_leave_while_they_are_small_together(monkeypatch):
    left = []
    monkeypatch.setattr("dgpuhash.distributed.ahead._leave", lambda: left.append(True))
    ahead = Ahead()
    with ahead.task(9, most_nbytes=4):
        with ahead.task(1, most_nbytes=4):
            assert len(left) == 1
        with ahead.task(1, most_nbytes=10), ahead.task(1, most_nbytes=10):
            assert len(left) == 2
    with ahead.task(1, most_nbytes=4):
        assert len(left) == 3


def test_a_task_that_fails_gives_its_place_back(monkeypatch):
    left = []
    monkeypatch.setattr("dgpuhash.distributed.ahead._leave", lambda: left.append(True))
    ahead = Ahead()
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"), ahead.task(9, most_nbytes=4):
            raise ValueError("broken")
    assert len(left) == 2


def test_one_task_is_ahead_of_another(threads, monkeypatch):
    running, most = set(), []
    call = Probe.__call__

    def watched(probe, left):
        running.add(id(left))
        most.append((get_worker().address, len(running)))
        try:
            return call(probe, left)
        finally:
            running.discard(id(left))

    monkeypatch.setattr(Probe, "__call__", watched)
    right = pd.DataFrame({"k": np.arange(100), "v": np.arange(100) * 2})
    left = pd.DataFrame({"k": np.arange(3000) % 150})
    with DistributedIndex.build(right, on="k", client=threads) as index:
        found = index.merge(dd.from_pandas(left, npartitions=30)).compute()
    wanted = left.merge(right, on="k")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)
    assert max(each for _, each in most) > 1
