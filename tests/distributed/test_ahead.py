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
        with ahead.task() as leave:
            leave()


def test_a_task_that_fails_gives_its_place_back():
    ahead = Ahead()
    with pytest.raises(ValueError, match="broken"), ahead.task() as leave:
        leave()
        raise ValueError("broken")
    assert ahead._places.acquire(blocking=False)


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
    assert 1 < max(each for _, each in most) <= 2 * len(threads.nthreads())
