"""Collective changes and merges against pandas, with fallback to tasks.

The fallback is for frames that ranks cannot exchange.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of, joined, until
from distributed import Client
from distributed.scheduler import WorkerState
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.collective import group_cache
from dgpuhash.distributed.collective.group import Group
from dgpuhash.distributed.collective.group_cache import _known
from dgpuhash.distributed.ingest.shuffle_collective import OutgoingRows
from dgpuhash.distributed.partition.skew import LEAST_ROWS
from dgpuhash.distributed.query.rank_merge import RankProbe
from dgpuhash.errors import ColumnError, IndexLost, KeyTypeError

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "semi", "anti"]


def placed(client: Client, frame: pd.DataFrame, on_workers: list[int]) -> dd.DataFrame:
    """Return a frame of futures whose partitions lie on the given workers."""
    workers = sorted(client.nthreads())
    ends = np.linspace(0, len(frame), len(on_workers) + 1).astype(int)
    futures = [
        client.scatter(frame.iloc[start:end], workers=[workers[number % len(workers)]], hash=False)
        for start, end, number in zip(ends, ends[1:], on_workers, strict=False)
    ]
    # Tasks that persist them may run elsewhere.
    return dd.from_delayed(futures, meta=frame.iloc[:0], verify_meta=False)


@contextmanager
def all_together(dask_logs: pytest.LogCaptureFixture) -> Iterator[None]:
    """Assert that the block runs collectively, without tasks."""
    dask_logs.clear()
    with dask_logs.at_level(logging.DEBUG, logger="distributed.dgpuhash.bulk"):
        yield
    assert reports(dask_logs) and all("in one phase" in report for report in reports(dask_logs))


@contextmanager
def by_tasks(dask_logs: pytest.LogCaptureFixture, why: str) -> Iterator[None]:
    """Assert that the block runs by tasks, for the reason `why`."""
    dask_logs.clear()
    with dask_logs.at_level(logging.DEBUG, logger="distributed.dgpuhash.bulk"):
        yield
    assert any("by tasks" in report and why in report for report in reports(dask_logs))


def reports(dask_logs: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage() for one in dask_logs.records if one.name == "distributed.dgpuhash.bulk"
    ]


def integers(rng: np.random.Generator, rows: int, keys: int) -> pd.DataFrame:
    return pd.DataFrame({"v": np.arange(rows), "k": rng.integers(0, keys, rows)})


def pairs(rng: np.random.Generator, rows: int, keys: int) -> pd.DataFrame:
    """Return rows with two hashed key columns, narrow and other columns."""
    frame = integers(rng, rows, keys)
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["k"] % 3, unit="D")
    return frame.assign(flag=frame["v"] % 2 == 0, small=frame["v"].astype("int16"), x=frame.v / 4)


def floats(rng: np.random.Generator, rows: int, keys: int) -> pd.DataFrame:
    frame = integers(rng, rows, keys)
    return frame.assign(k=np.where(frame["k"] == 3, -0.0, frame["k"] / 2))


@pytest.mark.parametrize(
    ("make", "on", "how"),
    [*((integers, ["k"], how) for how in HOWS), (pairs, ["k", "day"], "left"),
     (pairs, ["k", "day"], "anti"), (floats, ["k"], "inner"), (floats, ["k"], "semi")],
)  # fmt: skip
def test_build_and_merge_are_pandas(
    client: Client,
    dask_logs: pytest.LogCaptureFixture,
    make: Callable[..., pd.DataFrame],
    on: list[str],
    how: str,
) -> None:
    rng = np.random.default_rng(5)
    right, left = make(rng, 900, 300), make(rng, 700, 500)
    left = left[[*on, "v"]].rename(columns={"v": "w"})
    rights = placed(client, right, [2, 0, 1, 1, 0, 2])
    lefts = placed(client, left, [1, 0, 0, 2])
    with all_together(dask_logs), DistributedIndex.build(rights, on=on, client=client) as index:
        for bloom_filter in (False, True, True):
            merged = index.merge(lefts, how=how, persist=True, bloom_filter=bloom_filter)
            assert_same(merged.compute(), joined(left, right, on, how))


@pytest.mark.parametrize(
    ("kind", "how"),
    [("int64", "inner"), ("int64", "anti"), ("str", "left"), ("str", "semi")],
)
def test_copies_are_merged_with_where_partitions_lie(client, dask_logs, how, kind):
    rng = np.random.default_rng(7)
    right, left = integers(rng, 300, 100).astype({"k": kind}), integers(rng, 400, 200)
    left = left.rename(columns={"v": "w"}).astype({"k": kind})
    lefts = placed(client, left, [1, 0, 0, 2])
    with DistributedIndex.build(right, on="k", client=client, mode="replicated") as index:
        with all_together(dask_logs):
            found = index.merge(lefts, how=how, persist=True)
        assert_same(found.compute(), joined(left, right, ["k"], how))


@pytest.fixture(scope="module")
def shared_alone() -> Iterator[Client]:
    with cluster_of(1, processes=False) as client:
        yield client


@pytest.fixture
def alone(shared_alone: Client) -> Iterator[Client]:
    """Yield the current client of one worker in this process."""
    with shared_alone.as_current():
        yield shared_alone


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("make", "on"), [(integers, ["k"]), (pairs, ["k", "day"]), (floats, ["k"])]
)
def test_one_worker_needs_no_tasks_either(alone, dask_logs, make, on, parts):
    rng = np.random.default_rng(5)
    right, more, left = make(rng, 900, 300), make(rng, 400, 300), make(rng, 700, 500)
    left = left[[*on, "v"]].rename(columns={"v": "w"})
    rights, lefts = placed(alone, right, [0] * parts), placed(alone, left, [0] * 2)
    with all_together(dask_logs), DistributedIndex.build(rights, on=on, client=alone) as index:
        for how in HOWS:
            found = index.merge(lefts, how=how, persist=True, bloom_filter=True)
            assert_same(found.compute(), joined(left, right, on, how))
        index.insert(placed(alone, more, [0] * parts))
        right = pd.concat([right, more], ignore_index=True)
        keys = right[on].drop_duplicates()
        pd.testing.assert_frame_equal(index.lookup(keys), keys.merge(right, on=on))
    empty = placed(alone, right[:0], [0] * parts)
    with all_together(dask_logs), DistributedIndex.build(empty, on=on, client=alone) as index:
        assert len(index.merge(lefts, persist=True)) == 0


def test_rows_of_one_worker_are_its_own(alone: Client) -> None:
    """Frames on the user's arrays, which pandas does not watch."""
    arrays = {"k": np.arange(100), "v": np.arange(100) * 2}
    frame = pd.DataFrame(arrays, copy=False)
    with DistributedIndex.build(placed(alone, frame, [0]), on="k", client=alone) as index:
        found = index.merge(placed(alone, frame[["k"]], [0]), persist=True).compute()
        for array in arrays.values():
            array[:] = -1
        assert found["v"].tolist() == list(range(0, 200, 2))
        assert index.lookup([7])["v"].tolist() == [14]


@pytest.mark.parametrize("workers", ["alone", "threads"])
def test_partitions_that_are_no_frames(request, workers):
    client = request.getfixturevalue(workers)
    rows = pd.DataFrame({"k": range(10), "v": range(10)})
    given = client.scatter([rows, None], workers=sorted(client.nthreads())[:1], hash=False)
    wrong = dd.from_delayed(given, meta=rows[:0], verify_meta=False)
    with DistributedIndex.build(rows, on="k", client=client) as index:
        for verb in (index.insert, lambda rows: DistributedIndex.build(rows, on="k")):
            with pytest.raises(KeyTypeError, match="DataFrame is needed, not NoneType"):
                verb(wrong)
        assert len(index) == 10


def test_workers_without_room_for_all_results_take_tasks(threads, dask_logs, monkeypatch):
    rng = np.random.default_rng(3)
    right, left = integers(rng, 900, 300), integers(rng, 70_000, 500)
    left = left.rename(columns={"v": "w"})
    rights, lefts = placed(threads, right, [0, 1, 2]), placed(threads, left, [1, 0, 0, 2])
    # 35,000 rows of 16 bytes and twice that are more than what is left, 900 are not.
    room = 1_000_000

    def short(worker):
        return (worker.memory.process + room) / 0.6

    with all_together(dask_logs), DistributedIndex.build(rights, on="k", client=threads) as index:
        index.merge(lefts, persist=True)
        monkeypatch.setattr(WorkerState, "memory_limit", property(short), raising=False)
        index.insert(placed(threads, right, [0, 1, 2]))
    with DistributedIndex.build(rights, on="k", client=threads) as index:
        with by_tasks(dask_logs, "is short of memory"):
            found = index.merge(lefts, persist=True)
        assert_same(found.compute(), joined(left, right, ["k"], "inner"))


@pytest.mark.parametrize("parts", [1, 3])
def test_doubles_of_a_unique_key_on_one_worker(alone, parts):
    rows = pd.DataFrame({"k": [*range(50), 7], "v": range(51)})
    with pytest.raises(ColumnError, match="more than one row"):
        DistributedIndex.build(placed(alone, rows, [0] * parts), on="k", unique=True)


@pytest.mark.parametrize("mode", ["distributed", "replicated"])
def test_rows_that_all_have_one_partner_are_no_longer_those_of_the_left(threads, dask_logs, mode):
    right = pd.DataFrame({"k": np.arange(50), "v": np.arange(50) * 1.5})
    left = pd.DataFrame({"k": np.random.default_rng(2).integers(0, 50, 300), "w": np.arange(300)})
    before = left.copy(deep=True)
    lefts = placed(threads, left, [1, 0, 0, 2])
    with DistributedIndex.build(right, on="k", client=threads, mode=mode) as index:
        with all_together(dask_logs):
            found = index.merge(lefts, persist=True)
        assert_same(found.compute(), left.merge(right, on="k"))
        for part in threads.gather(threads.compute(found.to_delayed())):
            part.loc[:, ["k", "w"]] = -1
    pd.testing.assert_frame_equal(left, before)
    pd.testing.assert_frame_equal(lefts.compute(), before)
    # Doubles are more rows, or as many where as many have no partner.
    twice = pd.concat([right, right.iloc[:10]])
    left = left.assign(k=np.where(np.arange(300) % 2, left["k"] % 10, 60))
    with DistributedIndex.build(twice, on="k", client=threads, mode=mode) as index:
        found = index.merge(placed(threads, left, [1, 0, 0, 2]), persist=True)
        assert len(found) == len(left)
        assert_same(found.compute(), left.merge(twice, on="k"))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("kinds", "on"),
    [
        ({}, ["k"]),
        ({"w": "str"}, ["k"]),
        ({"k": "int32"}, ["k"]),
        ({"k": "Int64"}, ["k"]),
        ({}, ["k", "day"]),
    ],
)
def test_copies_that_have_all_keys(threads, kinds, on, how):
    right = pd.DataFrame({"k": np.arange(50), "v": np.arange(50) * 1.5})
    left = pd.DataFrame({"k": np.random.default_rng(3).integers(0, 50, 300), "w": np.arange(300)})
    if "day" in on:
        right["day"] = left["day"] = pd.Timestamp("2026-01-01")
    left = left.astype(kinds)
    lefts = placed(threads, left, [1, 0, 0, 2])
    with DistributedIndex.build(right, on=on, client=threads, mode="replicated") as index:
        for rows in (lefts, lefts[lefts["w"].astype("int64") < 0].persist()):
            found = index.merge(rows, how=how, persist=True).compute()
            assert_same(found, joined(rows.compute(), right, on, how))


@given(data=st.data())
@settings(max_examples=25)
def test_any_rows_anywhere(threads: Client, data: st.DataObject) -> None:
    keys = st.lists(st.integers(0, 12), max_size=40)
    places = st.lists(st.integers(0, 2), min_size=1, max_size=5)
    right, left, more = (
        pd.DataFrame({"k": np.array(data.draw(keys), np.int64)}).assign(**{name: lambda f: f.index})
        for name in ["v", "x", "v"]
    )
    index = DistributedIndex.build(placed(threads, right, data.draw(places)), "k", client=threads)
    with index:
        for stored in (right, pd.concat([right, more])):
            if stored is not right:
                assert index.insert(placed(threads, more, data.draw(places))) == len(more)
            lefts = placed(threads, left, data.draw(places))
            for bloom_filter in data.draw(st.lists(st.booleans(), min_size=1, max_size=2)):
                merged = index.merge(lefts, persist=True, bloom_filter=bloom_filter)
                assert_same(merged.compute(), left.merge(stored, on="k"))


def test_rows_without_a_match_stay_at_home(
    threads: Client, dask_logs: pytest.LogCaptureFixture
) -> None:
    right = pd.DataFrame({"k": np.arange(50_000), "v": np.arange(50_000)})
    left = pd.DataFrame({"k": np.arange(300_000) + 10_000, "x": np.arange(300_000)})
    lefts = placed(threads, left, [1, 0, 2])
    with DistributedIndex.build(placed(threads, right, [0, 1]), on="k") as index:
        left_out = []
        for bloom_filter in ("auto", "auto", False, True):
            with all_together(dask_logs):
                merged = index.merge(lefts, persist=True, bloom_filter=bloom_filter)
                told = re.search(r"without ([\d,]+) of 300,000", reports(dask_logs)[0])
            left_out.append(told and int(told[1].replace(",", "")))
            assert_same(merged.compute(), left.merge(right, on="k"))
        assert left_out[0] is left_out[2] is None
        assert 0.98 * 260_000 < left_out[1] == left_out[3] <= 260_000
        more = left[290_000:].rename(columns={"x": "v"})
        assert index.insert(placed(threads, more, [0])) == 10_000
        for bloom_filter in ("auto", True):
            merged = index.merge(lefts, persist=True, bloom_filter=bloom_filter)
            assert_same(merged.compute(), left.merge(pd.concat([right, more]), on="k"))


def test_result_is_persisted_where_its_rows_were(threads: Client) -> None:
    left = pd.DataFrame({"k": np.arange(60), "x": np.arange(60)})
    lefts = placed(threads, left, [2, 1, 0])
    with DistributedIndex.build(placed(threads, left, [0, 1]), on="k") as index:
        merged = index.merge(lefts, persist=True)
        held = threads.who_has(merged)
        assert len(held) == 3 and len({holder for (holder,) in held.values()}) == 3
        assert_same(
            index.merge(merged[["k", "x_x"]].persist(), persist=True).compute(),
            left.assign(x_x=left.x, x=left.x)[["k", "x_x", "x"]],
        )
    del merged
    until(lambda: not threads.who_has(lefts).keys() & held.keys())


def test_heavy_keys_are_spread(threads: Client, dask_logs: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(6)
    rows = 30 * LEAST_ROWS
    keys = np.where(rng.random(rows) < 0.4, 7, rng.integers(0, rows, rows))
    right = pd.DataFrame({"k": keys, "v": np.arange(rows)})
    left = pd.DataFrame({"k": [7, 8, 9, 7, rows + 1], "x": range(5)})
    with all_together(dask_logs):
        rights = placed(threads, right, [1, 0, 2, 1, 0])
        with DistributedIndex.build(rights, on="k") as index:
            counts = index.stats()["rows"]
            assert counts.sum() == rows and counts.max() < 1.3 * counts.mean()
            for how in HOWS:
                lefts = placed(threads, left, [0, 1, 1])
                found = index.merge(lefts, how=how, persist=True).compute()
                wanted = joined(left, right, ["k"], how)
                by = [label for label in ["x", "v"] if label in wanted]
                assert_same(found.sort_values(by), wanted.sort_values(by))


def test_doubles_of_a_unique_key_are_refused(client: Client) -> None:
    frame = pd.DataFrame({"k": np.arange(40), "v": np.arange(40)})
    doubled = pd.concat([frame, frame[17:18]])
    with pytest.raises(ColumnError, match=r"unique.*'k': 17"):
        DistributedIndex.build(placed(client, doubled, [0, 1]), on="k", unique=True, client=client)
    with DistributedIndex.build(
        placed(client, frame, [0, 1]), on="k", unique=True, client=client
    ) as index:
        with pytest.raises(ColumnError, match="unique and already has"):
            index.insert(placed(client, frame[9:11], [1]))
        assert len(index) == 40


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda frame: frame.assign(v=frame.v.astype(str)), "columns are not plain arrays"),
        (lambda frame: frame.assign(v=pd.array(frame.v, dtype="Int64")), "not plain arrays"),
    ],
)
def test_other_columns_take_tasks(
    threads: Client,
    dask_logs: pytest.LogCaptureFixture,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    why: str,
) -> None:
    right = change(pd.DataFrame({"k": np.arange(50), "v": np.arange(50)}))
    left = pd.DataFrame({"k": np.arange(30, 80), "x": np.arange(50)})
    with by_tasks(dask_logs, why):
        index = DistributedIndex.build(placed(threads, right, [0, 2]), on="k")
    with index, by_tasks(dask_logs, why):
        merged = index.merge(placed(threads, left, [1, 0]), persist=True)
        assert_same(merged.compute(), left.merge(right, on="k"))


def test_frames_of_another_kind_take_tasks(
    threads: Client, dask_logs: pytest.LogCaptureFixture
) -> None:
    right = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    left = pd.DataFrame({"k": np.arange(30, 80), "x": np.arange(50)})
    narrow = left.astype({"k": "int32"})
    lazy = dd.from_pandas(left, npartitions=2, sort=False)
    with DistributedIndex.build(placed(threads, right, [0, 2]), on="k") as index:
        with by_tasks(dask_logs, "another dtype than the index"):
            merged = index.merge(placed(threads, narrow, [0, 1]), persist=True)
        assert_same(merged.compute(), narrow.merge(right, on="k"))
        with by_tasks(dask_logs, "not persisted"):
            assert_same(index.merge(lazy, persist=True).compute(), left.merge(right, on="k"))
        more = left.rename(columns={"x": "v"})
        with by_tasks(dask_logs, "not persisted"):
            assert index.insert(dd.from_pandas(more, npartitions=2, sort=False)) == 50
        with all_together(dask_logs):
            assert index.insert(more) == 50
            assert index.insert(placed(threads, more.astype({"v": float}), [0, 1])) == 50
    workers = sorted(threads.nthreads())
    with (
        DistributedIndex.build(
            placed(threads, right, [0, 1]), on="k", workers=workers[:2]
        ) as index,
        by_tasks(dask_logs, "on no worker with a shard"),
    ):
        merged = index.merge(placed(threads, left, [2, 0]), persist=True)
        assert_same(merged.compute(), left.merge(right, on="k"))


def test_old_handles_merge_at_the_newest_epoch(threads: Client) -> None:
    frame = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    lefts = placed(threads, frame, [0, 1])
    with DistributedIndex.build(placed(threads, frame, [0, 2]), on="k") as index:
        other = DistributedIndex.open(index.name)
        other.insert(lefts)
        assert len(index.merge(lefts, persist=True)) == 100


def has_end(name: str, dask_worker: Any) -> bool:
    return name in plugin_of(dask_worker).ends


def end_group_of(client: Client, index: DistributedIndex, monkeypatch: pytest.MonkeyPatch) -> Group:
    """End the group of an index's workers and return it.

    The client still knows the group.
    """
    group = _known[client][index._descriptor.shards]
    group.close(client)
    until(lambda: not any(client.run(has_end, group.name).values()))
    # Only here: on a busy machine workers take longer to answer that they are as they were.
    monkeypatch.setattr(group_cache, "GRACE_SECONDS", 10.0)
    return group


def test_group_that_failed_is_formed_anew(threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    lefts = placed(threads, frame, [0, 1])
    with DistributedIndex.build(lefts, on="k") as index:
        shards = index._descriptor.shards
        group = end_group_of(threads, index, monkeypatch)
        assert len(index.merge(lefts, persist=True)) == 50
        other = _known[threads][shards]
        assert other != group
        with Client(threads.scheduler.address) as second, second.as_current():
            again = DistributedIndex.open(index.name, client=second)
            assert len(again.merge(placed(second, frame, [0, 1]), persist=True)) == 50
            assert _known[second] == {shards: other}


def forget_nothing(shards: Any, group: Any, dask_scheduler: Any) -> None:
    """Do nothing, as `forget_group` in a thread that is too slow."""


def test_group_that_others_still_name_is_not_taken_again(
    threads: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_cache, "forget_group", forget_nothing)
    lefts = placed(threads, pd.DataFrame({"k": np.arange(50), "v": np.arange(50)}), [0, 1])
    with DistributedIndex.build(lefts, on="k") as index:
        group = end_group_of(threads, index, monkeypatch)
        assert len(index.merge(lefts, persist=True)) == 50
        assert _known[threads][index._descriptor.shards] != group


def test_a_rank_that_fails_ends_the_phase_of_all(
    threads: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    lefts = placed(threads, frame, [0, 1])
    with DistributedIndex.build(lefts, on="k") as index:
        with monkeypatch.context() as patched:
            patched.setattr(RankProbe, "results", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.merge(lefts, persist=True)
            patched.setattr(OutgoingRows, "part", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.insert(lefts)
        assert len(index.merge(lefts, persist=True)) == 50
        assert index.insert(lefts) == 50
        assert len(index) == 100


def test_workers_that_are_lost() -> None:
    frame = pd.DataFrame({"k": np.arange(50), "v": np.arange(50)})
    with cluster_of(2, processes=True) as client, client.as_current():
        lefts = placed(client, frame, [0, 0])
        index = DistributedIndex.build(placed(client, frame, [0, 1]), on="k")
        pids = client.run(os.getpid)
        os.kill(pids[index.workers[1]], signal.SIGKILL)
        with pytest.raises(IndexLost):
            index.insert(lefts)
        with pytest.raises(IndexLost):
            index.merge(lefts, persist=True).compute()
