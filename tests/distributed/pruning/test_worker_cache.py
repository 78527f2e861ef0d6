"""Probe-key pruning of tasks against pandas, and counts of unsent rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, joined, lazy, until, wide_keys
from distributed import Client, Worker
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.partition.skew import LEAST_ROWS
from dgpuhash.distributed.pruning import policy, worker_cache
from dgpuhash.errors import IndexLost, OutOfMemoryError, SpecError

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "semi", "anti"]
SWITCHES = [(True, False), (False, True), (True, True)]


def left_out(index: DistributedIndex) -> list[int]:
    """Return the pruned absent and repeated rows, and the filters' bytes."""
    names = ["absent_rows", "repeated_rows", "filter_nbytes"]
    return index.stats()[names].sum().tolist()


@pytest.mark.parametrize(
    ("how", "bloom_filter", "deduplicate"),
    [*((how, True, True) for how in HOWS), ("inner", True, False), ("anti", True, False),
     ("left", False, True), ("semi", False, True)],
)  # fmt: skip
def test_merges_are_pandas(client, left, right, how, bloom_filter, deduplicate):
    with DistributedIndex.build(lazy(right, 4), on="k", client=client) as index:
        for _ in range(2):
            merged = index.merge(
                lazy(left, 3), how=how, bloom_filter=bloom_filter, deduplicate=deduplicate
            )
            assert_same(merged.compute(), joined(left, right, ["k"], how))
        absent, repeated, nbytes = left_out(index)
    there = left["k"].isin(right["k"]) | left["k"].isna()
    # A task may ask for one that another worker then runs, and asks for again.
    assert absent <= 2 * 2 * (~there).sum()
    assert bool(absent) is bool(nbytes) is bloom_filter
    assert bool(repeated) is deduplicate


@pytest.mark.parametrize("how", HOWS)
def test_wide_keys_and_texts(threads, how):
    rng = np.random.default_rng(0)
    left, right = wide_keys(rng, 300), wide_keys(rng, 90)
    for on in (["city", "day"], ["city"], ["day"]):
        with DistributedIndex.build(lazy(right, 3), on=on, client=threads) as index:
            merged = index.merge(lazy(left, 4), on, how=how, bloom_filter=True, deduplicate=True)
            assert_same(merged.compute(), joined(left, right, on, how))
            assert left_out(index)[1] > 0


def test_absent_keys_do_not_travel(client):
    right = pd.DataFrame({"k": np.arange(5000), "v": np.arange(5000)})
    left = pd.DataFrame({"k": np.arange(30_000) + 1000, "x": np.arange(30_000)})
    with DistributedIndex.build(lazy(right, 3), on="k", client=client) as index:
        assert_same(index.merge(lazy(left, 4), bloom_filter=False).compute(), left.merge(right))
        assert left_out(index) == [0, 0, 0]
        assert_same(index.merge(lazy(left, 4), bloom_filter=True).compute(), left.merge(right))
        absent, _, nbytes = left_out(index)
        assert 0.98 * 26_000 < absent <= 26_000
        assert 0 < nbytes < len(index.workers) * (1.5 * 5000 + 1000)
        merged = index.merge(lazy(left, 4), persist=True, bloom_filter=True)
        assert_same(merged.compute(), left.merge(right))
        assert left_out(index)[2] == nbytes
        found = index.find(left["k"].to_numpy(), bloom_filter=True)
        assert found.found.tolist() == (left["k"] < 5000).tolist()
        assert index.lookup([9, 10**6, 7], bloom_filter=True)["v"].tolist()[::2] == [9, 7]
        before = left_out(index)[0]
        assert index.contains(left["k"], bloom_filter=True).tolist() == found.found.tolist()
        assert left_out(index)[0] - before == absent


def test_a_filter_is_of_one_epoch(client):
    right = pd.DataFrame({"k": np.arange(500), "v": np.arange(500)})
    left = pd.DataFrame({"k": np.arange(2000), "x": np.arange(2000)})
    more = pd.DataFrame({"k": np.arange(900, 1500), "v": np.arange(600)})
    with DistributedIndex.build(lazy(right, 3), on="k", client=client) as index:
        old = index.merge(lazy(left, 3), bloom_filter=True)
        assert len(old.compute()) == 500
        assert index.insert(more) == 600
        assert left_out(index) == [0, 0, 0]
        both = pd.concat([right, more])
        for switch in ("auto", True):
            merged = index.merge(lazy(left, 3), bloom_filter=switch)
            assert_same(merged.compute(), left.merge(both))
        with pytest.raises(IndexLost):
            old.compute()
        assert index.erase(np.arange(100)) == 100
        merged = index.merge(lazy(left, 3), how="anti", bloom_filter=True)
        assert_same(merged.compute(), joined(left, both[100:], ["k"], "anti"))
        assert index.contains(left["k"], bloom_filter=True).sum() == 1000


def test_filters_come_by_themselves_where_many_keys_are_absent(threads, monkeypatch):
    monkeypatch.setitem(policy._LEAST, "cpu", (2**11, 0.25))
    right = pd.DataFrame({"k": np.arange(3000), "v": np.arange(3000)})
    left = pd.DataFrame({"k": np.arange(2**14), "x": np.arange(2**14)})
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads) as index:

        def absent_rows() -> int:
            before = left_out(index)[0]
            assert_same(index.merge(lazy(left, 6)).compute(), left.merge(right))
            return left_out(index)[0] - before

        assert absent_rows() < 2**14 - 3000
        until(lambda: absent_rows() > 0.98 * (2**14 - 3000))


@pytest.mark.parametrize("bloom_filter", [True, "auto"])
def test_a_lost_shard_is_told(threads, left, right, bloom_filter):
    with DistributedIndex.build(right, on="k", client=threads) as index:
        merged = index.merge(lazy(left, 3), bloom_filter=bloom_filter)
        threads.run(forget_shard, index._descriptor.uid, workers=index.workers[:1])
        with pytest.raises(IndexLost, match=r"rebuild\(\) of the index"):
            merged.compute()


def forget_shard(uid: str, dask_worker: Worker) -> None:
    plugin_of(dask_worker).shards.drop(uid)


def test_recent_rows_decide():
    seen = policy.RecentAbsentKeyStats()
    seen.note("cpu", 2**15, 2**15)
    assert not seen.pays("cpu")
    seen.note("cpu", 2**20, 2**20)
    assert seen.pays("cpu")
    seen.note("cpu", 2**10, 0)
    assert seen.pays("cpu")
    seen.note("cpu", 2**18, 0)
    assert not seen.pays("cpu")
    seen.note("cpu", 0, 0)
    assert seen.absent_rows == 2**15 + 2**20


@pytest.mark.parametrize("why", ["memory", "room"])
def test_a_filter_that_does_not_fit_is_left_out(threads, monkeypatch, why):
    monkeypatch.setitem(policy._LEAST, "cpu", (2**11, 0.25))
    tried = []

    async def fails(worker, descriptor, blocks):
        tried.append(descriptor.uid)
        if why == "memory":
            raise OutOfMemoryError("nothing is left")
        return [10**15]

    monkeypatch.setattr(worker_cache, "_bits", fails)
    right = pd.DataFrame({"k": np.arange(300), "v": np.arange(300)})
    left = pd.DataFrame({"k": np.arange(2**14), "x": np.arange(2**14)})
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads) as index:
        for _ in range(4):
            assert_same(index.merge(lazy(left, 6)).compute(), left.merge(right))
        # Tasks of a merge that failed before may still ask for their own index.
        assert 0 < tried.count(index._descriptor.uid) <= 3 and left_out(index) == [0, 0, 0]
        if why == "memory":
            with pytest.raises(OutOfMemoryError, match="nothing is left"):
                index.merge(lazy(left, 6), bloom_filter=True).compute()


def test_keys_that_come_again_travel_once(client):
    rng = np.random.default_rng(3)
    right = pd.DataFrame({"k": np.repeat(np.arange(500), 3), "v": np.arange(1500)})
    left = pd.DataFrame({"k": rng.integers(0, 1000, 300_000), "x": np.arange(300_000)})
    with DistributedIndex.build(lazy(right, 3), on="k", client=client) as index:
        assert_same(index.merge(lazy(left, 2)).compute(), left.merge(right))
        repeated = left_out(index)[1]
        assert repeated >= 300_000 - 2 * 1000
        few = left[:1000]
        assert_same(index.merge(lazy(few, 2)).compute(), few.merge(right))
        assert_same(index.merge(lazy(left, 2), deduplicate=False).compute(), left.merge(right))
        assert left_out(index)[1] == repeated


@pytest.mark.parametrize("how", HOWS)
def test_heavy_keys(threads, how):
    rng = np.random.default_rng(6)
    rows = 30 * LEAST_ROWS
    keys = np.where(rng.random(rows) < 0.4, 7, rng.integers(0, rows, rows))
    right = pd.DataFrame({"k": keys, "v": np.arange(rows)})
    left = pd.DataFrame({"k": [7, 8, 9, 7, rows + 1, rows + 2], "x": range(6)})
    with DistributedIndex.build(lazy(right, 5), on="k", client=threads) as index:
        assert index._descriptor.heavy
        for bloom_filter, deduplicate in SWITCHES:
            merged = index.merge(
                lazy(left, 2), how=how, bloom_filter=bloom_filter, deduplicate=deduplicate
            )
            found, wanted = merged.compute(), joined(left, right, ["k"], how)
            by = [label for label in ["x", "v"] if label in wanted]
            assert_same(found.sort_values(by), wanted.sort_values(by))
        assert left_out(index)[:2] >= [2, 2]


@pytest.mark.parametrize("mode", ["independent", "replicated"])
def test_other_placements_leave_nothing_out(threads, left, right, mode):
    with DistributedIndex.build(lazy(right, 4), on="k", client=threads, mode=mode) as index:
        merged = index.merge(lazy(left, 3), bloom_filter=True, deduplicate=True)
        assert_same(merged.compute(), left.merge(right, on="k"))
        assert left_out(index) == [0, 0, 0]


def test_one_shard_has_no_filter(threads, left, right):
    (worker, *_) = threads.nthreads()
    with DistributedIndex.build(right, on="k", client=threads, workers=[worker]) as index:
        merged = index.merge(lazy(left, 3), bloom_filter=True, deduplicate=True)
        assert_same(merged.compute(), left.merge(right, on="k"))
        assert left_out(index) == [0, 0, 0]


def test_workers_without_a_shard_ask_about_all(threads, left, right):
    (_, *two) = threads.nthreads()
    with DistributedIndex.build(right, on="k", client=threads, workers=two) as index:
        merged = index.merge(lazy(left, 12), bloom_filter=True)
        assert_same(merged.compute(), left.merge(right, on="k"))


def test_keys_that_no_row_can_have(threads):
    right = pd.DataFrame({"k": np.arange(300, dtype=np.int32), "v": np.arange(300)})
    keys = np.concatenate([np.arange(200) / 2, [np.nan, 1e12, -5.0], np.arange(200) / 2])
    left = pd.DataFrame({"k": keys, "x": np.arange(len(keys))})
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads) as index:
        for bloom_filter, deduplicate in SWITCHES:
            merged = index.merge(lazy(left, 2), bloom_filter=bloom_filter, deduplicate=deduplicate)
            assert_same(merged.compute(), left.merge(right, on="k"))


def test_unknown_positions_are_refused(threads, left, right):
    with DistributedIndex.build(right, on="k", client=threads) as index:
        for switch in ("bloom_filter", "deduplicate"):
            for verb in (index.lookup, index.contains, index.find):
                with pytest.raises(SpecError, match=f"{switch}='yes'; use True, False or 'auto'"):
                    verb([1], **{switch: "yes"})
                with pytest.raises(SpecError, match="use True, False or 'auto'"):
                    verb([1], **{switch: np.array([True, False])})
            with pytest.raises(SpecError, match=f"{switch}='yes'"):
                index.merge(lazy(left, 2), **{switch: "yes"})


@given(data=st.data())
@settings(max_examples=20)
def test_any_rows(threads: Client, data: st.DataObject) -> None:
    keys = st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=40)
    right, left, more = (
        pd.DataFrame({"k": pd.array(data.draw(keys), dtype="Int64")}).assign(
            **{name: lambda f: f.index}
        )
        for name in ["v", "x", "v"]
    )
    switches = st.tuples(*[st.sampled_from([True, False, "auto"])] * 2)
    with DistributedIndex.build(lazy(right, 2), "k", client=threads) as index:
        for stored in (right, pd.concat([right, more])):
            if stored is not right:
                assert index.insert(more) == len(more)
            for how in data.draw(st.lists(st.sampled_from(HOWS), min_size=1, max_size=2)):
                bloom_filter, deduplicate = data.draw(switches)
                merged = index.merge(
                    lazy(left, data.draw(st.integers(1, 3))),
                    how=how,
                    bloom_filter=bloom_filter,
                    deduplicate=deduplicate,
                )
                wanted = joined(left, stored, ["k"], how)
                # Dtypes of a lazy merge do not depend on whether a row lacks a partner.
                assert_same(merged.compute(), wanted.astype(merged.dtypes.to_dict()))
