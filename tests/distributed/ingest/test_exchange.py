"""Collective steps without a cluster: shards of one process.

They use the local exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from local_exchange import LocalExchange, put_rows

from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks, partition_rows
from dgpuhash.distributed.shards.inbox import Inbox, Parcel, ParcelExchange, Receipt
from dgpuhash.distributed.shards.shard_store import ShardStore
from dgpuhash.errors import ColumnError, IndexLost
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.keys.seeds import KeySeeds

SEEDS = KeySeeds(11, 12)


def parcel(partition: int = 0, attempt: str = "a", number: int = 0, rows: int = 1) -> Parcel:
    return Parcel(partition, attempt, number, rows, f"{partition}{attempt}{number}")


def test_a_parcel_that_comes_twice_counts_once():
    inbox = Inbox(0)
    for _ in range(2):
        inbox.accept(parcel())
    assert inbox.collect([Receipt(0, "a", (1,))]) == ["0a0"]


def test_only_the_attempts_of_the_receipts_are_collected_in_order_of_partitions():
    inbox = Inbox(0)
    for each in [(1, "a", 0), (0, "lost", 0), (0, "won", 1), (0, "won", 0), (1, "late", 0)]:
        inbox.accept(parcel(*each))
    receipts = [Receipt(1, "a", (1,)), Receipt(0, "won", (2,))]
    assert inbox.collect(receipts) == ["0won0", "0won1", "1a0"]


def test_missing_rows_are_noticed():
    inbox = Inbox(1)
    inbox.accept(parcel(rows=2))
    with pytest.raises(IndexLost, match="2 of 3 rows of partition 0"):
        inbox.collect([Receipt(0, "a", (0, 3))])


def test_split_is_stable_and_complete():
    frame = pd.DataFrame({"k": np.arange(1000) % 7})
    encoder = KeyEncoder.for_frame(frame, "k")
    parts = partition_rows(encoder.encode(frame), encoder, 5)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert all((np.diff(rows) > 0).all() for rows in parts)
    owners = [set(frame["k"].iloc[rows]) for rows in parts]
    assert sum(map(len, owners)) == 7


def test_pieces_are_bounded_in_bytes():
    frame = pd.DataFrame({"k": np.arange(1000), "other": 0})
    rows = [np.arange(0, 1000, 2), np.arange(0)]
    found, nothing = cut_into_chunks(frame, rows, frame[["k"]][:0], nbytes=800)
    assert nothing == []
    assert [len(rows) for rows, _ in found] == [100] * 5
    assert list(np.concatenate([keys for _, (keys,) in found])) == list(range(0, 1000, 2))


def test_pieces_of_uneven_rows_are_bounded_too():
    texts = ["w" * 5000] * 10 + ["n"] * 9990
    frame = pd.DataFrame({"k": pd.Series(texts, dtype="str")})
    (found,) = cut_into_chunks(frame, [np.arange(10_000)], frame[:0], nbytes=12_000)
    sizes = [piece.memory_usage(index=False, deep=True).sum() for _, piece in found]
    assert max(sizes) <= 12_000
    assert len(found) < 30
    assert list(pd.concat([piece for _, piece in found])["k"]) == texts
    (found,) = cut_into_chunks(frame[:2], [np.arange(2)], frame[:0], nbytes=100)
    assert len(found) == 2


@pytest.mark.parametrize("text", [None, "a"])
def test_parts_that_get_the_same_rows_have_frames_of_their_own(text):
    frame = pd.DataFrame({"k": range(4), "v": [1.5] * 4 if text is None else [text] * 4})
    rows = np.arange(3)
    one, other, none = cut_into_chunks(frame, [rows, rows, rows[:0]], frame[:0])
    (_, here), (_, there) = *one, *other
    assert none == []
    if text is None:
        assert all(np.shares_memory(*columns) for columns in zip(here, there, strict=True))
    else:
        assert here is not there
        assert np.shares_memory(here["k"].values, there["k"].values)
        pd.testing.assert_frame_equal(here, there)


def test_pieces_do_not_count_categories():
    frame = pd.DataFrame({"k": pd.Categorical([f"{number:060}" for number in range(1000)])})
    (found,) = cut_into_chunks(frame, [np.arange(1000)], frame[:0], nbytes=1000)
    assert len(found) <= 3


class LossyExchange(LocalExchange):
    """Exchange that fails at the first message to shard 1."""

    failed = False

    async def put(self, part: int, parcel: Parcel) -> None:
        if part == 1 and not self.failed:
            self.failed = True
            raise IndexLost("the line went dead")
        await super().put(part, parcel)


def change(
    frame: pd.DataFrame, verb: str, epoch: int, shards: Sequence[ShardStore], **options
) -> Change:
    encoder = KeyEncoder.for_frame(frame, "k", hash_bits=options.pop("hash_bits", 64))
    # Those of one index.
    encoder = replace(encoder, seeds=SEEDS)
    places = tuple(ShardAddress(f"w{n}", part.incarnation) for n, part in enumerate(shards))
    settings = {"unique": None, "device": None} | options
    return Change("u", f"{verb}{epoch}", verb, epoch, places, encoder, frame.iloc[:0], **settings)


def carry(
    shards: Sequence[ShardStore],
    step: Change,
    partitions: Sequence[pd.DataFrame],
    exchange: type[LocalExchange] = LocalExchange,
) -> None:
    """Run a change up to its preparation, retrying failed partitions."""
    for part, owner in enumerate(shards):
        owner.open(step, part)
    line: ParcelExchange = exchange([owner._open("u", step.transaction).inbox for owner in shards])
    receipts = []
    for number, partition in enumerate(partitions):
        try:
            receipts.append(asyncio.run(put_rows(partition, step, number, line)))
        except IndexLost:
            receipts.append(asyncio.run(put_rows(partition, step, number, line)))
    for owner in shards:
        owner.prepare("u", step.transaction, receipts)


def apply(shards: Sequence[ShardStore], step: Change) -> None:
    for owner in shards:
        owner.apply("u", step.transaction)


def stored(shards: Sequence[ShardStore], step: Change) -> pd.DataFrame:
    frames = [
        owner.at("u", step.epoch, place.incarnation).index.frame()
        for owner, place in zip(shards, step.shards, strict=True)
    ]
    return pd.concat(frames).sort_values(list(frames[0].columns)).reset_index(drop=True)


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"k": [f"key {n % 31}" for n in range(200)], "v": np.arange(200)})


@pytest.mark.parametrize("exchange", [LocalExchange, LossyExchange])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_build_insert_erase(frame, parts, exchange):
    shards = [ShardStore() for _ in range(parts)]
    build = change(frame, "build", 1, shards, hash_bits=4)
    carry(shards, build, [frame[:90], frame[:0], frame[90:150]], exchange)
    apply(shards, build)
    assert stored(shards, build).equals(frame[:150].sort_values(["k", "v"], ignore_index=True))
    insert = change(frame, "insert", 2, shards, hash_bits=4)
    carry(shards, insert, [frame[150:]], exchange)
    apply(shards, insert)
    apply(shards, insert)
    assert stored(shards, insert).equals(frame.sort_values(["k", "v"], ignore_index=True))
    erase = change(frame, "erase", 3, shards, hash_bits=4)
    carry(shards, erase, [pd.DataFrame({"k": ["key 3", "key 4"]})], exchange)
    apply(shards, erase)
    left = frame[~frame["k"].isin(["key 3", "key 4"])]
    assert stored(shards, erase).equals(left.sort_values(["k", "v"], ignore_index=True))


def test_a_build_is_unseen_until_it_is_applied(frame):
    shards = [ShardStore(), ShardStore()]
    build = change(frame, "build", 1, shards)
    shards[0].open(build, 0)
    with pytest.raises(IndexLost, match="never finished"):
        shards[0].at("u", 0, shards[0].incarnation)
    with pytest.raises(IndexLost, match="not prepared"):
        shards[0].apply("u", build.transaction)


def test_a_shard_that_was_not_told_applies_a_published_change_itself(frame):
    shards = [ShardStore(), ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    shards[0].apply("u", build.transaction)
    assert len(stored(shards, build)) == 200


def test_what_was_published_outlives_a_later_change_that_is_given_up(frame):
    shards = [ShardStore(), ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    rebuild = change(frame, "build", 2, shards)
    for part, owner in enumerate(shards):
        owner.open(rebuild, part)
        owner.abandon("u", rebuild.transaction)
    assert len(stored(shards, build)) == 200


def test_an_old_epoch_is_refused(frame):
    shards = [ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    apply(shards, build)
    insert = change(frame, "insert", 2, shards)
    carry(shards, insert, [frame])
    assert len(stored(shards, build)) == 200
    apply(shards, insert)
    with pytest.raises(IndexLost, match="again"):
        stored(shards, build)


def test_a_restarted_worker_is_told_from_the_one_that_held_the_shard(frame):
    shards = [ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    apply(shards, build)
    with pytest.raises(IndexLost, match="restarted"):
        ShardStore().at("u", 1, shards[0].incarnation)


def test_an_abandoned_change_leaves_the_shard_as_it_was(frame):
    shards = [ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    apply(shards, build)
    insert = change(frame, "insert", 2, shards)
    carry(shards, insert, [frame])
    shards[0].abandon("u", insert.transaction)
    with pytest.raises(IndexLost, match="was abandoned"):
        shards[0].apply("u", insert.transaction)
    assert len(stored(shards, build)) == 200


def test_unique_refuses_doubles_before_anything_is_changed():
    frame = pd.DataFrame({"k": np.arange(100), "v": 0})
    shards = [ShardStore(), ShardStore()]
    build = change(frame, "build", 1, shards, unique=True)
    carry(shards, build, [frame])
    apply(shards, build)
    insert = change(frame, "insert", 2, shards, unique=True)
    with pytest.raises(ColumnError, match="unique"):
        carry(shards, insert, [frame[30:31]])
    assert len(stored(shards, build)) == 100


def test_an_insert_that_fails_halfway_loses_the_shard(frame, monkeypatch):
    shards = [ShardStore()]
    build = change(frame, "build", 1, shards)
    carry(shards, build, [frame])
    apply(shards, build)
    insert = change(frame, "insert", 2, shards)
    carry(shards, insert, [frame])
    index = shards[0].at("u", 1, shards[0].incarnation).index
    monkeypatch.setattr(index, "insert", lambda rows: (_ for _ in ()).throw(MemoryError("full")))
    with pytest.raises(MemoryError):
        apply(shards, insert)
    for epoch in (1, 2):
        with pytest.raises(IndexLost, match="failed halfway"):
            shards[0].at("u", epoch, shards[0].incarnation)
