"""Groupbys whose states go to the disk, and what is too much for a worker."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, unnamed_files, until
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby import spilling
from dgpuhash.distributed.groupby.owners import GroupOwners
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.distributed.shards.worker_memory import WorkerMemory
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames.spill import file

pytestmark = pytest.mark.cluster

STATES = ["sum", "min", "first", "var", "count", "idxmin"]
ROWS = ["median", "nunique", list]


@pytest.fixture
def written(monkeypatch) -> Iterator[list[int]]:
    """Give workers no memory for states; yield the number of states of each write."""
    rows: list[int] = []

    class Watched(file.SpillFile):
        def append(self, frame: Any) -> int:
            rows.append(len(frame))
            return super().append(frame)

    monkeypatch.setattr(spilling, "SpillFile", Watched)
    monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 0)
    monkeypatch.setattr(worker_memory, "SHARE", 1 << 60)
    monkeypatch.setattr(spilling, "PIECES", 3)
    yield rows
    # No file is left of any of them.
    until(lambda: not unnamed_files())


def runs(client: Any) -> int:
    """Return how many runs have states on the workers."""
    workers = client.cluster.workers.values()
    return sum(len(plugin_of(each).service(GroupOwners).runs) for each in workers)


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 300, 1200)
    return pd.DataFrame(
        {
            "k": keys,
            "s": pd.Series([None if n % 11 == 0 else f"t{n % 7}" for n in keys], dtype="str"),
            "c": pd.Categorical.from_codes(keys % 3, categories=["z", "y", "x"]),
            "v": rng.random(1200),
            "n": rng.integers(-50, 50, 1200),
            "o": pd.Series([f"o{n % 5}" if n % 4 else None for n in keys], dtype=object),
        }
    )


def alike(result: Any, wanted: Any) -> None:
    """Check partitions of a lazy result: each is the rows of pandas' result that it has."""
    with no_other_engine():
        parts = dask.compute(*result.to_delayed())
    equal = pd.testing.assert_series_equal if wanted.ndim == 1 else pd.testing.assert_frame_equal
    assert sum(map(len, parts)) == len(wanted)
    for part in parts:
        assert type(part) is type(result._meta)
        labels = set(map(str, part.index))
        there = [str(label) in labels for label in wanted.index]
        equal(part, wanted[there], check_dtype=False)
    assert len(parts) > 1


@pytest.mark.parametrize(("by", "sort"), [("k", False), (["c", "s", "k"], True)])
def test_aggregates_by_states_and_by_rows(threads, rows, written, by, sort):
    options = {"dropna": False, "observed": True, "sort": sort}
    ours, theirs = dgpuhash.groupby(lazy(rows, 3), by, **options), rows.groupby(by, **options)
    for hows in (STATES, STATES[:2] + ROWS):
        asked = {str(how): ("v", how) for how in hows} | {"o": ("o", "first"), "n": ("n", "max")}
        alike(ours.agg(**asked), theirs.agg(**asked))
    assert sum(written) > len(rows)
    until(lambda: runs(threads) == 0)


def test_results_of_other_forms(threads, rows, written):
    ours, theirs = dgpuhash.groupby(lazy(rows, 3), "k"), rows.groupby("k")
    alike(ours["v"].median(), theirs["v"].median())
    alike(ours["v"].quantile([0.25, 0.5]), theirs["v"].quantile([0.25, 0.5]))
    alike(ours.size(), theirs.size())
    found = dgpuhash.groupby(lazy(rows, 5), ["k", "s"], as_index=False)["v"].median().compute()
    wanted = rows.groupby(["k", "s"], as_index=False)["v"].median()
    pd.testing.assert_frame_equal(found.sort_values(["k", "s"], ignore_index=True), wanted)
    found = ours.head(2).compute()
    pd.testing.assert_frame_equal(found.sort_index(), theirs.head(2).sort_index())
    spread = ours["v"].apply(lambda values: values.max() - values.min(), meta=rows["v"].iloc[:0])
    wanted = theirs["v"].apply(lambda values: values.max() - values.min())
    pd.testing.assert_series_equal(spread.compute().sort_index(), wanted)
    none = dgpuhash.groupby(lazy(rows[:0], 1), "k")["v"].median().compute()
    assert len(none) == 0 and none.dtype == float
    assert len(written) > 20


def test_categories_that_only_partitions_know(threads, rows, written):
    source = lazy(rows, 4)
    source["c"] = source["c"].cat.as_unknown()
    for how in ("sum", "median"):
        found = getattr(dgpuhash.groupby(source, "c")["n"], how)().compute()
        wanted = getattr(rows.groupby("c", observed=True)["n"], how)()
        assert found.to_dict() == wanted.to_dict()
    assert written


def test_a_result_is_told_again(threads, rows, written):
    asked = {"v": ["sum", "median"]}
    result = dgpuhash.groupby(lazy(rows, 4), "k").agg(asked)
    both = dask.compute(result, result.sum(), result["v"]["sum"].max())
    pd.testing.assert_frame_equal(
        both[0].sort_index(), rows.groupby("k").agg({"v": ["sum", "median"]})
    )
    assert both[2] == pytest.approx(rows.groupby("k")["v"].sum().max())


def fails(part: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
    """Return a partition; fail with the last one, once some are on the disk."""
    if partition_info and partition_info["number"] == 3:
        until(lambda: bool(unnamed_files()))
        raise ZeroDivisionError
    return part


def slowly(part: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
    """Return a partition; the last one late."""
    if partition_info and partition_info["number"] == 3:
        until(lambda: bool(unnamed_files()))
        time.sleep(0.5)
    return part


def test_nothing_is_left_after_errors_and_cancel(threads, rows, written, monkeypatch):
    source = lazy(rows, 4).map_partitions(fails, meta=rows.iloc[:0])
    with pytest.raises(ZeroDivisionError):
        dgpuhash.groupby(source, "k")["v"].sum().compute()
    until(lambda: runs(threads) == 0 and not unnamed_files())

    source = lazy(rows, 4).map_partitions(slowly, meta=rows.iloc[:0])
    future = threads.compute(dgpuhash.groupby(source, "k")["v"].sum())
    until(lambda: bool(unnamed_files()))
    future.cancel()
    until(lambda: runs(threads) == 0 and not unnamed_files())

    write = os.write

    def full(fd: int, data: Any) -> int:
        if "dask-scratch" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OutOfMemoryError, match=r"the disk is full.*local_directory="):
            dgpuhash.groupby(lazy(rows, 4), "k")["v"].sum().compute()
    until(lambda: runs(threads) == 0)


@pytest.mark.parametrize("how", ["sum", "median", "unique"])
def test_groups_beyond_memory_are_refused(threads, rows, written, monkeypatch, how):
    monkeypatch.setattr(WorkerMemory, "for_tasks", lambda self: 100)
    monkeypatch.setattr(WorkerMemory, "wait", lambda self, enough: enough())
    with pytest.raises(OutOfMemoryError, match=r"of 3 hash ranges need .* npartitions="):
        dgpuhash.groupby(lazy(rows, 4), "k")["v"].agg(how).compute()


def test_states_within_the_share_stay_in_memory(threads, rows, written, monkeypatch):
    monkeypatch.setattr(worker_memory, "SHARE", 3)
    monkeypatch.setattr(WorkerMemory, "for_rows", lambda self: 1 << 30)
    found = dgpuhash.groupby(lazy(rows, 4), "k")["v"].sum().compute()
    pd.testing.assert_series_equal(found.sort_index(), rows.groupby("k")["v"].sum())
    assert not written


def test_ranges_grow_with_the_source(threads, rows):
    assert dgpuhash.groupby(lazy(rows, 5), "k").size().npartitions == 3
    assert dgpuhash.groupby(lazy(rows, 40), "k").size().npartitions == 10
    assert dgpuhash.groupby(lazy(rows, 40), "k", npartitions=2).size().npartitions == 2
