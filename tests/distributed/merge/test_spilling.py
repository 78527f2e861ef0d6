"""Merges whose stored rows go to the disk, and what is too much for a worker."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import assert_no_value_is_rounded, lazy, merged_lazily, unnamed_files, until
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.query import fetch
from dgpuhash.distributed.shards import spilling, worker_memory
from dgpuhash.distributed.shards.inbox import Parcel
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames.spill import file

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "right", "outer", "semi", "anti", "cross"]


@pytest.fixture
def written(monkeypatch) -> Iterator[list[int]]:
    """Give workers no memory for rows; yield the number of rows of each write."""
    rows: list[int] = []

    class Watched(file.SpillFile):
        def append(self, frame: Any) -> int:
            rows.append(len(frame))
            return super().append(frame)

    monkeypatch.setattr(spilling, "SpillFile", Watched)
    monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 0)
    monkeypatch.setattr(worker_memory, "SHARE", 1 << 60)
    yield rows
    # No file is left of any of them.
    until(lambda: not unnamed_files())


def shards(client: Any) -> int:
    """Return how many shards the workers hold, with those that are being filled."""
    stores = [plugin_of(each).shards for each in client.cluster.workers.values()]
    return sum(len(store._shards) + len(store._staged) for store in stores)


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(5)
    left = pd.DataFrame({"k": rng.integers(0, 60, 90), "x": np.arange(90)})
    keys = rng.integers(30, 90, 200)
    right = pd.DataFrame(
        {
            "k": keys,
            "number": np.arange(200) / 4,
            "text": pd.Series([None if n % 7 == 0 else f"t{n}" for n in range(200)], dtype="str"),
            "objects": pd.Series([f"o{n}" if n % 5 else np.nan for n in keys], dtype=object),
            "class": pd.Categorical.from_codes(keys % 3, categories=["a", "b", "c"]),
            "when": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(keys, "h"),
            "nullable": pd.array([None if n % 9 == 0 else n for n in range(200)], dtype="Int64"),
            "flag": keys > 50,
        }
    )
    return left, right


@pytest.mark.parametrize("how", HOWS)
def test_every_join_of_rows_on_the_disk(threads, sides, written, how):
    left, right = sides if how != "cross" else (side[:30] for side in sides)
    on = {} if how == "cross" else {"on": "k"}
    merged = dgpuhash.merge(lazy(left, 3), lazy(right, 4), how, **on)
    with no_other_engine():
        found = merged.compute()
    # Copies are in memory.
    assert bool(written) == (how not in ("semi", "anti", "cross"))
    if how in ("semi", "anti"):
        wanted = left[left["k"].isin(right["k"]) == (how == "semi")]
    else:
        wanted = merged_lazily(left, right, how, **on)
    assert found.dtypes.to_dict() == merged.dtypes.to_dict()
    order = [label for label in wanted if label not in ("objects", "class")]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True),
        wanted.sort_values(order, ignore_index=True),
        check_dtype=False,
    )


def test_rows_on_the_disk_of_a_heavy_key_and_of_none(threads, written):
    keys = np.where(np.arange(3000) % 5 < 4, 7, np.arange(3000))
    right = pd.DataFrame({"k": keys, "y": np.arange(3000), "t": "text"})
    left = pd.DataFrame({"k": [7, 4, -1], "x": [1, 2, 3]})
    found = dgpuhash.merge(lazy(left, 2), lazy(right, 4), "outer", on="k").compute()
    wanted = merged_lazily(left, right, "outer", on="k")
    order = ["k", "y"]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True)[list(wanted)],
        wanted.sort_values(order, ignore_index=True),
        check_dtype=False,
    )
    with pytest.raises(pd.errors.MergeError, match="not unique in right dataset"):
        dgpuhash.merge(lazy(left, 2), lazy(right, 4), on="k", validate="m:1").compute()
    none = dgpuhash.merge(lazy(left, 1), lazy(right[:0], 1), "left", on="k").compute()
    assert none["t"].isna().all()
    distinct = lazy(right, 3).dgpuhash.drop_duplicates("k").compute()
    assert len(distinct) == right["k"].nunique()
    assert sum(written) > 3000


def test_partitions_of_other_dtypes(threads, written):
    def are_written(rows: int) -> None:
        assert sum(written) == rows

    assert_no_value_is_rounded(are_written)
    until(lambda: shards(threads) == 0)


def test_nothing_is_left_of_a_merge_that_is_cancelled(threads, sides, written):
    left, right = sides
    merged = dgpuhash.merge(lazy(left, 4).map_partitions(slowly), lazy(right, 4), on="k")
    future = threads.compute(merged)
    until(lambda: bool(unnamed_files()) and shards(threads) > 0)
    future.cancel()
    del future
    until(lambda: shards(threads) == 0)


def slowly(part: pd.DataFrame) -> pd.DataFrame:
    time.sleep(0.3)
    return part


def test_a_full_disk_is_told(threads, sides, written, monkeypatch):
    left, right = sides
    write, count = os.write, itertools.count()

    def full(fd: int, data: Any) -> int:
        if "dask-scratch" in str(Path(f"/proc/self/fd/{fd}").readlink()) and next(count) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(file.os, "write", full)
    with pytest.raises(OutOfMemoryError, match=r"disk is full.*local_directory="):
        dgpuhash.merge(lazy(left, 3), lazy(right, 4), "outer", on="k").compute()
    until(lambda: shards(threads) == 0)


def test_keys_that_memory_has_no_place_for_are_told(threads, sides, monkeypatch):
    left, right = sides
    monkeypatch.setattr(spilling, "TABLE_NBYTES", 1 << 50)
    monkeypatch.setattr(worker_memory, "WAIT_SECONDS", 0.0)
    with pytest.raises(OutOfMemoryError, match=r"need [\d,]+ bytes .* are free; use more workers"):
        dgpuhash.merge(lazy(left, 3), lazy(right, 4), on="k").compute()
    until(lambda: shards(threads) == 0)


@pytest.mark.parametrize("build", ["right", "replicate"])
def test_a_result_without_place_is_told_before_it_is_there(threads, monkeypatch, build):
    ours = pd.DataFrame({"k": np.zeros(50, "int64"), "v": np.arange(50)})
    monkeypatch.setattr(fetch, "MOST_ROWS", 2500)
    assert len(dgpuhash.merge(lazy(ours, 1), lazy(ours, 2), on="k", build=build).compute()) == 2500
    more = pd.concat([ours, ours[:1]])
    with pytest.raises(OutOfMemoryError, match=r"2,550 rows.*place for 2,500 rows; use finer"):
        dgpuhash.merge(lazy(more, 1), lazy(ours, 2), on="k", build=build).compute()
    monkeypatch.setattr(fetch, "MOST_ROWS", 40)
    other = pd.DataFrame({"k": [1]})
    with pytest.raises(OutOfMemoryError, match=r"50 rows.*npartitions="):
        dgpuhash.merge(lazy(other, 1), lazy(ours, 2), "outer", on="k", npartitions=1).compute()
    until(lambda: shards(threads) == 0)


@pytest.mark.parametrize("broken", ["append", "take"])
def test_a_file_is_given_back_by_whoever_works_with_it(monkeypatch, tmp_path, broken):
    rows = pd.DataFrame({"k": [1, 2], "text": ["a", "b"]})
    files = []

    class Freed(file.SpillFile):
        """A file whose run is freed meanwhile; then it fails."""

        def append(self, frame: Any) -> int:
            files.append(self)
            return self._freed("append", super().append(frame))

        def take(self, *args: Any) -> Any:
            return self._freed("take", super().take(*args))

        def _freed(self, name: str, made: Any) -> Any:
            if name == broken:
                inbox.free()
                raise ZeroDivisionError
            return made

    monkeypatch.setattr(spilling, "SpillFile", Freed)
    memory = SimpleNamespace(
        folder=str(tmp_path),
        for_rows=lambda: 0, for_keys=lambda: 1 << 30, for_tasks=lambda: 1 << 30,
        relieve=lambda: None, wait=lambda enough: enough(),
    )  # fmt: skip
    memory.spills = worker_memory.SpillManager(memory)
    change = SimpleNamespace(encoder=SimpleNamespace(names=("k",)), meta=rows[:0])
    inbox = spilling.SpillingInbox(0, change, memory)
    inbox.accept(Parcel(0, "attempt", 0, 2, rows))
    with pytest.raises(ZeroDivisionError):
        inbox.make_room()
        (parcel,) = inbox._parcels[0, "attempt"].values()
        inbox.rows(parcel, rows[:0])
    assert files[0]._file.closed
