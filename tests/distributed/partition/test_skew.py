"""Heavy keys: balanced shards, and answers equal to pandas'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, joined, lazy
from local_exchange import LocalExchange, put_rows

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.ingest.skew_repair import receipts_after, rows_to_forward
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.partition.skew import (
    LEAST_ROWS,
    HeavyKeys,
    KeyCounts,
    consensus,
    heavy_candidates,
)
from dgpuhash.distributed.shards.shard_store import ShardStore
from dgpuhash.frames import KeyEncoder
from dgpuhash.seeds import VARIABLE

pytestmark = pytest.mark.cluster

ROWS = 240_000
BALANCED = 1.3


def zipf(exponent: float, rows: int = ROWS) -> np.ndarray:
    keys = np.random.default_rng(3).zipf(exponent, rows)
    return np.minimum(keys, 1 << 40)


def half(rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.where(rng.random(rows) < 0.5, 7, rng.integers(0, rows, rows))


def integers(keys: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"k": keys, "v": np.arange(len(keys))})


def texts(keys: np.ndarray) -> pd.DataFrame:
    names = pd.Series([f"key {key}" for key in keys], dtype="str")
    return pd.DataFrame({"k": names, "v": np.arange(len(keys))})


def with_nulls(keys: np.ndarray) -> pd.DataFrame:
    """Return rows with null in place of the most frequent key."""
    masked = pd.array(keys, dtype="Int64")
    masked[keys == np.bincount(keys[keys < 10]).argmax()] = pd.NA
    return pd.DataFrame({"k": masked, "v": np.arange(len(keys))})


def several(keys: np.ndarray) -> pd.DataFrame:
    names = pd.Series([f"{key % 5}" for key in keys], dtype="str")
    return pd.DataFrame({"k": keys, "name": names, "day": keys / 4, "v": np.arange(len(keys))})


def unevenness(index: DistributedIndex) -> float:
    """Return the rows of the largest shard over those of the mean one."""
    rows = index.stats()["rows"]
    return float(rows.max() / rows.mean())


def in_any_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows, as those of a heavy key come shard by shard."""
    return frame.sort_values(["x", "v"], ignore_index=True)


def asked(frame: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Return probe keys: the most frequent ones, others, and absent ones."""
    counts = frame.groupby(on, dropna=False, sort=False).size()
    keys = counts.sort_values(ascending=False, kind="stable").reset_index()[on]
    keys = pd.concat([keys[:6], keys[200:1200]], ignore_index=True).astype(frame[on].dtypes)
    absent = keys[-40:].copy()
    absent["k"] = absent["k"] + (1 << 41 if absent["k"].dtype.kind in "iu" else "?")
    keys = pd.concat([keys, absent], ignore_index=True)
    return keys.assign(x=np.arange(len(keys)))


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("drawn", [partial(zipf, 1.2), partial(zipf, 1.5), half])
def test_no_part_has_much_more_than_others(monkeypatch, drawn, parts):
    keys = drawn(rows=1 << 20)
    # At a few of a thousand seeds the keys below heavy ones make a part of 16 larger.
    monkeypatch.setenv(VARIABLE, "0")
    codes = keys.astype(np.uint64)
    encoder = KeyEncoder.for_frame(integers(keys[:1]), "k")
    tallies = [heavy_candidates(some, parts, 4, parts) for some in np.array_split(codes, 4)]
    heavy = consensus(tallies, len(codes), parts)
    assert len(heavy) <= 16 * parts
    counts = np.bincount(heavy.spread(encoder.owners(codes, parts), codes, parts), minlength=parts)
    assert counts.max() <= BALANCED * counts.mean()


def test_even_keys_have_no_candidates():
    keys = np.random.default_rng(0).integers(0, 1000, 100_000).astype(np.uint64)
    assert heavy_candidates(keys, 4, 1, 0) == KeyCounts()
    assert heavy_candidates(np.arange(100_000, dtype=np.uint64), 4, 1, 0) == KeyCounts()


def test_rows_do_not_know_where_the_sample_will_be():
    """Half of all rows have one key, where a sample that everybody knows does not look."""
    rows, known = 200_000, np.random.default_rng(4).integers(0, 200_000, 4096)
    keys = np.arange(rows, dtype=np.uint64)
    keys[np.setdiff1d(np.arange(rows // 2), known)] = 7
    assert not heavy_candidates(keys, 4, 1, 4)
    encoder = KeyEncoder.for_frame(integers(keys[:1]), "k")
    assert heavy_candidates(keys, 4, 1, encoder.seeds.owners).codes == (7,)


def test_few_rows_of_a_key_are_no_load():
    keys = np.zeros(LEAST_ROWS - 1, dtype=np.uint64)
    tally = heavy_candidates(keys, 4, 1, 0)
    assert consensus([tally], len(keys), 4) == HeavyKeys()
    assert consensus(
        [heavy_candidates(np.zeros(LEAST_ROWS, np.uint64), 4, 1, 0)], LEAST_ROWS, 4
    ) == HeavyKeys((0,))


def test_the_owner_of_a_heavy_key_always_gets_rows_of_it():
    for rows in (1, 2, 5, 64):
        codes = np.full(rows, 9, dtype=np.uint32)
        spread = HeavyKeys((9,)).spread(np.full(rows, 2, dtype=np.uint32), codes, 4)
        assert spread[0] == 2
        assert np.bincount(spread, minlength=4).max() - rows // 4 <= 1


def test_rows_of_keys_that_are_not_heavy_in_all_go_on_to_their_owners_in_order():
    """A source in the order of its keys: each is frequent in one partition, and none in all."""
    frame = pd.DataFrame({"k": np.repeat(np.arange(80), 3000), "v": np.arange(240_000)})
    frame.loc[::4, "k"] = 1000
    shards = [ShardStore() for _ in range(3)]
    places = tuple(ShardAddress(f"w{part}", each.incarnation) for part, each in enumerate(shards))
    encoder = KeyEncoder.for_frame(frame, "k")
    step = Change(
        "u", "t", "build", 1, places, encoder, frame[:0], None, None, heavy=None, partitions=20
    )
    for part, each in enumerate(shards):
        each.open(step, part)
    inboxes = [each.inbox("u", "t") for each in shards]
    line = LocalExchange(inboxes)
    pieces = [frame[start : start + 12_000] for start in range(0, len(frame), 12_000)]
    receipts = [
        asyncio.run(put_rows(piece, step, number, line)) for number, piece in enumerate(pieces)
    ]
    assert len({code for receipt in receipts for code in receipt.tally.codes}) == 81
    heavy = consensus([receipt.tally for receipt in receipts], len(frame), 3)
    assert len(heavy) == 1
    let = [rows_to_forward(inbox, step, receipts, heavy) for inbox in inboxes]
    for segments, _ in let:
        asyncio.run(line.put_segments(segments))
    for each in shards:
        each.prepare("u", "t", receipts_after(receipts, [moves for _, moves in let]))
        each.apply("u", "t")
    found = [each.at("u", 1, each.incarnation).index.frame() for each in shards]
    assert sum(map(len, found)) == len(frame)
    light = pd.concat([rows[rows["k"] != 1000] for rows in found])
    owners = [set(rows["k"]) - {1000} for rows in found]
    assert sum(map(len, owners)) == 80
    for _, rows in light.groupby("k"):
        assert rows["v"].is_monotonic_increasing
    spread = [int((rows["k"] == 1000).sum()) for rows in found]
    assert max(spread) <= 1.1 * sum(spread) / 3


@pytest.mark.parametrize("form", [integers, texts, with_nulls, several])
@pytest.mark.parametrize("drawn", [partial(zipf, 1.2), partial(zipf, 1.5), half])
def test_merges(threads, drawn, form):
    frame = form(drawn())
    on = [label for label in frame.columns if label != "v"]
    left = asked(frame, on)
    with DistributedIndex.build(lazy(frame), on=on, unique=False, client=threads) as index:
        assert index._descriptor.heavy
        assert unevenness(index) <= BALANCED
        result = index.merge(lazy(left, 3), how="left").compute()
        assert_same(in_any_order(result), in_any_order(joined(left, frame, on, "left")))
        result = index.merge(lazy(left, 3), how="anti").compute()
        assert_same(result, joined(left, frame, on, "anti"))


@pytest.mark.parametrize("form", [integers, texts, with_nulls, several])
def test_insert_erase_and_lookup(threads, form: Callable[[np.ndarray], pd.DataFrame]):
    frame = form(half(90_000))
    on = [label for label in frame.columns if label != "v"]
    commonest = frame.groupby(on, dropna=False).size().idxmax()
    commonest = pd.DataFrame([commonest if len(on) > 1 else [commonest]], columns=on)
    commonest = commonest.astype(frame[on].dtypes)
    left = asked(frame, on)
    with DistributedIndex.build(lazy(frame), on=on, client=threads) as index:
        added = frame.assign(v=frame["v"] + len(frame))
        assert index.insert(lazy(added)) == len(added)
        assert unevenness(index) <= BALANCED
        now = pd.concat([frame, added], ignore_index=True)
        result = index.merge(lazy(left, 2)).compute()
        assert_same(in_any_order(result), in_any_order(left.merge(now, on=on)))
        assert len(index.lookup(commonest)) == len(commonest.merge(now, on=on))
        gone = len(commonest.merge(now, on=on))
        assert index.erase(commonest) == gone
        assert len(index) == len(now) - gone
        assert not index.contains(commonest).any()
        one = commonest.assign(v=-1)[list(frame.columns)]
        index.insert(one)
        assert index.contains(commonest).all()
        assert index.lookup(commonest)["v"].tolist() == [-1]


def test_rows_of_a_heavy_key_come_part_by_part_in_order_of_insertion(threads):
    frame = integers(half(60_000))
    with DistributedIndex.build(lazy(frame), on="k", client=threads) as index:
        index.insert(frame.assign(v=frame["v"] + 60_000))
        found = index.lookup(np.array([7]))
        steps = np.flatnonzero(np.diff(found) < 0)
        assert len(steps) == 2
        other = frame.loc[frame["k"] != 7, "k"].iloc[0]
        assert (np.diff(index.lookup(np.array([other]))) > 0).all()


def test_save_load_rebuild_and_rebalance(threads, tmp_path):
    frame = integers(zipf(1.2, 120_000))
    left = asked(frame, ["k"])
    wanted = in_any_order(left.merge(frame, on="k"))

    def check(index: DistributedIndex) -> None:
        assert unevenness(index) <= BALANCED
        assert len(index) == len(frame)
        assert_same(in_any_order(index.merge(lazy(left, 2)).compute()), wanted)

    with DistributedIndex.build(lazy(frame), on="k", client=threads) as index:
        index.save(tmp_path / "saved")
        index.rebalance(index.workers[:2])
        assert len(index.workers) == 2
        check(index)
        index.rebalance()
        assert len(index.workers) == 3
        check(index)
        index.erase([1])
        index.insert(frame[frame["k"] == 1])
        index.rebuild(whole=True)
        check(index)
    with DistributedIndex.load(tmp_path / "saved", threads) as index:
        check(index)
    with DistributedIndex.load(tmp_path / "saved", threads, workers=index.workers[1:]) as index:
        check(index)


@pytest.mark.parametrize("durable", [False, True])
def test_rebuild_where_a_key_became_heavy_after_it_was_written(threads, tmp_path, durable):
    few, many = integers(np.arange(100)), integers(np.full(9_000, 7))
    url = tmp_path / "saved"
    with DistributedIndex.build(
        few, on="k", client=threads, durable=url if durable else None
    ) as index:
        index.insert(many)
        if not durable:
            index.save(url)
    for part in range(3):
        options = {"durable": url} if durable else {}
        with DistributedIndex.load(url, threads, **options) as index:
            assert index._descriptor.heavy
            threads.run(drop_shard, index._descriptor.uid, workers=index.workers[part : part + 1])
            rebuilt = index.rebuild()
            assert rebuilt.parts == (part,)
            assert len(index) == 9_100
            assert len(index.find(np.array([7])).frame) == 9_001


def drop_shard(uid, dask_worker):
    plugin_of(dask_worker).shards.drop(uid)


def test_a_unique_index_has_no_heavy_keys(threads):
    frame = integers(np.arange(50_000))
    with DistributedIndex.build(lazy(frame), on="k", unique=True, client=threads) as index:
        assert not index._descriptor.heavy


def test_few_rows_keep_the_order_of_pandas(threads):
    frame = integers(half(6000))
    left = asked(frame, ["k"])
    with DistributedIndex.build(lazy(frame), on="k", client=threads) as index:
        assert_same(index.merge(lazy(left, 2)).compute(), left.merge(frame, on="k"))
