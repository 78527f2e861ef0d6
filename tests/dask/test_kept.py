"""Builds that are shared by merges of one computation, and stay for the next ones."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, parts_held, until
from distributed import Client, wait

import dgpuhash
from dgpuhash.distributed.merge import tasks
from dgpuhash.distributed.runs import run as runs

pytestmark = pytest.mark.cluster

LEFT = pd.DataFrame({"k": np.arange(90) % 40, "x": np.arange(90)})
RIGHT = pd.DataFrame({"k": np.arange(60), "y": np.arange(60), "z": np.arange(60) / 2})


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the builds that begin."""
    begun: list[str] = []
    begin = runs.begin_run

    def counted(client, key, run, **kwargs):
        answer = begin(client, key, run, **kwargs)
        if answer.uid == run.uid:
            # None of another attempt stands.
            begun.append(run.uid)
        return answer

    # Of rows that workers open shards for, and of few rows.
    for module in (runs, tasks):
        monkeypatch.setattr(module, "begin_run", counted)
    return begun


def held(client: Client, partitions: int = 2) -> dd.DataFrame:
    frame = lazy(RIGHT, partitions).persist()
    wait(frame)
    return frame


def stay(count: int) -> None:
    """Wait until so many builds stay, measured."""
    until(lambda: [each.builds for each in dgpuhash.dask.report().kept] == [count], pause=0.02)


def test_merges_of_one_computation_share_a_build(cluster, builds):
    left, right = lazy(LEFT, 2), lazy(RIGHT, 2)
    with dgpuhash.dask.enabled():
        found = dask.compute(
            left.merge(right, on="k"), left.merge(right, how="left", on="k"),
            left.assign(k=left["k"] + 5).merge(right, on="k"),
        )  # fmt: skip
    assert [len(each) for each in found] == [90, 90, 90]
    assert len(builds) == 1
    until(lambda: parts_held(cluster) == [0, 0])


def test_builds_of_a_persisted_frame_stay_until_it_is_released(cluster, builds):
    left, right = lazy(LEFT, 2), held(cluster)
    with dgpuhash.dask.enabled(fallback=False):
        for how in ("inner", "left", "inner"):
            assert len(left.merge(right, how, on="k").compute()) == 90
            stay(1)
        assert len(builds) == 1
        (kept,) = dgpuhash.dask.report().kept
        assert kept.again == 2 and 0 < kept.nbytes < kept.limit
        assert "builds that stay: 1, " in str(dgpuhash.dask.report())
        # Another key is another build, and so are frames that are read anew.
        left.merge(right, left_on="k", right_on="y").compute()
        left.merge(lazy(RIGHT.assign(z=1), 2), on="k").compute()
        stay(2)
        assert len(builds) == 3
        del right
        stay(0)
        until(lambda: parts_held(cluster) == [0, 0])


def test_they_are_freed_when_it_is_disabled(cluster, builds):
    left, right = lazy(LEFT, 2), held(cluster)
    dgpuhash.dask.enable()
    left.merge(right, on="k").compute()
    stay(1)
    dgpuhash.dask.disable()
    until(lambda: parts_held(cluster) == [0, 0])
    assert len(left.dgpuhash.merge(right, on="k").compute()) == 90
    until(lambda: parts_held(cluster) == [0, 0])
    assert len(builds) == 2


def test_those_asked_longest_ago_make_room(cluster, builds):
    left, right = lazy(LEFT, 2), held(cluster)
    with dgpuhash.dask.enabled(kept=0):
        left.merge(right, on="k").compute()
        until(lambda: dgpuhash.dask.report().kept[0].dropped == 1)
        stay(0)
    with dgpuhash.dask.enabled(kept="1 MiB"):
        left.merge(right, on="k").compute()
        left.merge(right, left_on="k", right_on="y").compute()
        stay(2)
        with dgpuhash.dask.enabled(kept=dgpuhash.dask.report().kept[0].nbytes - 1):
            stay(1)
            assert dgpuhash.dask.report().kept[0].dropped == 1
            left.merge(right, left_on="k", right_on="y").compute()
            assert len(builds) == 3
            left.merge(right, on="k").compute()
            assert len(builds) == 4


def test_rows_that_are_marked_do_not_stay(cluster, builds):
    right = held(cluster)
    with dgpuhash.dask.enabled():
        for seed in range(2):
            # Other keys with each computation: marks of one are nothing to the next.
            left = lazy(LEFT, 2).map_partitions(
                lambda frame, seed: frame.assign(k=frame["k"] + seed), seed, meta=LEFT[:0]
            )
            merged = left.merge(right, how="outer", on="k").compute()
            assert merged["x"].isna().sum() == 60 - 40
            stay(0)
    assert len(builds) == 2
