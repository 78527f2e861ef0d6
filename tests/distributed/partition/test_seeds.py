"""Owner seeds of indexes and tables: balanced, shared by all, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy
from distributed import Client
from ranks import Ranks

from dgpuhash.distributed import DistributedIndex, DistributedMap, DistributedSet
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.errors import FormatError
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.keys.seeds import LEGACY, LEGACY_OWNER_SEED
from dgpuhash.seeds import VARIABLE
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.checksums import body_digest
from dgpuhash.tables.open_addressing import batch_insert, cardinality
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild

pytestmark = pytest.mark.cluster

ROWS = 20_000
EVEN = 1.3


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seeds be drawn, unless a test sets one."""
    monkeypatch.delenv(VARIABLE, raising=False)


def rows_of(keys: Any) -> pd.DataFrame:
    return pd.DataFrame({"k": keys, "v": np.arange(len(keys))})


def known_of(index: DistributedIndex) -> Descriptor:
    return index._descriptor


def change_manifest(folder: Path, what: str, change: Any) -> None:
    """Change a saved manifest to that of an older release."""
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole, whole[what])
    whole["blake2b"] = body_digest(whole[what])
    path.write_text(json.dumps(whole))


def let_go(uid: str, dask_worker: Any) -> None:
    """Drop the shard of a table."""
    del plugin_of(dask_worker).tables[uid]


def without_seeds(whole: dict[str, Any], body: dict[str, Any]) -> None:
    whole["version"] = 2
    del body["encoder"]["seeds"]


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("kind", ["int64", "str"])
def test_keys_of_one_owner_are_those_of_all_owners_of_another_index(parts, kind):
    frame = rows_of(pd.Series(np.arange(parts * ROWS)).astype(kind))
    one, other = (KeyEncoder.for_frame(frame, "k") for _ in range(2))
    of_one = frame[one.owners(one.encode(frame).codes, parts) == 1]
    counts = np.bincount(other.owners(other.encode(of_one).codes, parts), minlength=parts)
    assert counts.max() <= EVEN * counts.mean()


def test_an_index_of_the_keys_of_one_shard_is_even(threads):
    frame = rows_of(np.arange(3 * ROWS))
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        encoder = known_of(index).encoder
        own = frame[encoder.owners(encoder.encode(frame).codes, 3) == 0]
    assert abs(len(own) / ROWS - 1) < 0.1
    with DistributedIndex.build(own, on="k", client=threads) as again:
        rows = again.stats()["rows"]
        assert rows.sum() == len(own) and rows.max() <= EVEN * rows.mean()
        assert_same(again.merge(lazy(own, 2)).compute(), own.merge(own, on="k"))


@pytest.mark.parametrize("seed", [None, 7])
def test_a_table_of_the_keys_of_one_part_is_even(threads, seed):
    with DistributedSet.from_keys(np.arange(3 * ROWS), seed=seed, client=threads) as table:
        own = table.keys().partitions[0].compute()
    assert len(own) < 1.1 * ROWS
    with DistributedSet.from_keys(own, seed=seed, client=threads) as again:
        sizes = again.stats()["size"]
        assert sizes.sum() == len(own) and sizes.max() <= EVEN * sizes.mean()
        assert again.contains(own).all() and len(again.items()) == len(own)


def test_tables_and_owners_never_have_one_seed(threads, monkeypatch):
    made = [DistributedSet("i8", client=threads) for _ in range(3)]
    monkeypatch.setenv(VARIABLE, "7")
    made += [DistributedSet("i8", client=threads), DistributedMap("i8", "i8", client=threads)]
    seeds = [(each.spec.seed, each._owner_seed) for each in made]
    assert len(set(seeds)) == 4 and seeds[3] == seeds[4]
    assert all(seed != owner_seed for seed, owner_seed in seeds)
    assert seeds[3][0] == 7
    for each in made:
        each.close()


def test_an_index_keeps_its_seeds_whatever_becomes_of_it(threads, tmp_path):
    workers = sorted(threads.nthreads())
    texts = rows_of([f"key {number % 700}" for number in range(900)])
    log, saved = str(tmp_path / "log"), str(tmp_path / "saved")
    with DistributedIndex.build(
        texts, on="k", client=threads, workers=workers[:2], durable=log
    ) as index:
        seeds = known_of(index).encoder.seeds
        assert index.insert(texts[:50]) == 50
        index.rebalance(workers)
        assert index.erase(["key 3"]) == 3
        index.save(saved)
        index.rebuild()
        assert known_of(index).encoder.seeds == seeds
        stored = pd.concat([texts, texts[:50]])
        stored = stored[stored["k"] != "key 3"]
        assert_same(index.merge(lazy(texts[:90], 2)).compute(), texts[:90].merge(stored, on="k"))
    for url, number in ((log, 3), (saved, 3), (saved, 2)):
        with DistributedIndex.load(url, threads, workers=workers[:number]) as again:
            assert known_of(again).encoder.seeds == seeds
            merged = again.merge(lazy(texts[:90], 2)).compute()
            assert_same(merged, texts[:90].merge(stored, on="k"))
    with DistributedIndex.load(log, threads, durable=log) as again:
        assert again.insert(texts[:5]) == 5
    with DistributedIndex.load(log, threads) as again:
        assert known_of(again).encoder.seeds == seeds
        assert len(again) == len(stored) + 5


@pytest.mark.parametrize("workers", [3, 2])
def test_an_index_that_was_saved_without_seeds_has_those_of_old(
    threads, tmp_path, monkeypatch, workers
):
    frame = rows_of([f"key {number % 700}" for number in range(900)])
    monkeypatch.setenv(VARIABLE, "0")
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        assert known_of(index).encoder.seeds == LEGACY
        index.save(tmp_path / "old")
    monkeypatch.delenv(VARIABLE)
    change_manifest(tmp_path / "old", "index", without_seeds)
    some = sorted(threads.nthreads())[:workers]
    with DistributedIndex.load(str(tmp_path / "old"), threads, workers=some) as old:
        assert known_of(old).encoder.seeds == LEGACY
        assert_same(old.merge(lazy(frame, 2)).compute(), frame.merge(frame, on="k"))
        old.insert(rows_of(["key 1", "another"]))
        assert old.lookup(["another", "key 699"])["v"].tolist() == [1, 699]
        assert len(old.lookup(["key 1"])) == 3
        old.save(tmp_path / "new")
    whole = json.loads((tmp_path / "new" / "manifest.json").read_text())
    assert whole["index"]["encoder"]["seeds"] == LEGACY.to_json()
    with DistributedIndex.load(str(tmp_path / "new"), threads) as new:
        assert len(new) == 902


@pytest.mark.parametrize("seeds", [{"columns": -1, "owners": 1}, {"columns": 1}, [1, 2], "1"])
def test_what_are_no_seeds_is_damage(threads, tmp_path, seeds):
    with DistributedIndex.build(rows_of([1, 2]), on="k", client=threads) as index:
        index.save(tmp_path / "saved")
    change_manifest(
        tmp_path / "saved", "index", lambda _, body: body["encoder"].update(seeds=seeds)
    )
    with pytest.raises(FormatError, match="damaged"):
        DistributedIndex.load(str(tmp_path / "saved"), threads)


def test_a_table_keeps_its_seeds_whatever_becomes_of_it(threads, tmp_path):
    keys = np.arange(500)
    with DistributedMap.from_arrays(keys, keys + 1, client=threads) as table:
        seeds = table.spec.seed, table._owner_seed
        with table.copy() as other:
            assert (other.spec.seed, other._owner_seed) == seeds
            assert not other.insert(keys, keys).any()
            assert (other.find(keys)[0] == keys + 1).all()
        table.save(tmp_path / "saved")
        # A part that a worker lost gets its rows from its own file.
        threads.run(let_go, table._uid, workers=table.workers[1:2])
        assert table.rebuild() == (1,)
        assert (table.spec.seed, table._owner_seed) == seeds
        assert (table.find(keys)[0] == keys + 1).all() and len(table) == len(keys)
    with DistributedMap.load(tmp_path / "saved", client=threads) as again:
        assert (again.spec.seed, again._owner_seed) == seeds
        assert (again.find(keys)[0] == keys + 1).all()


def test_a_table_that_was_saved_without_an_owner_seed_has_that_of_old(threads, tmp_path):
    with DistributedSet.from_keys(np.arange(500), client=threads) as table:
        table.save(tmp_path / "old")
    change_manifest(tmp_path / "old", "table", lambda _, body: body.pop("owner_seed"))
    with DistributedSet.load(tmp_path / "old", client=threads) as old:
        assert old._owner_seed == LEGACY_OWNER_SEED
        assert old.contains(np.arange(500)).all() and not old.insert(np.arange(500)).any()
    for wrong in (-1, 2**64, 1.5, "1", None, True):
        change_manifest(
            tmp_path / "old", "table", lambda _, body, it=wrong: body.update(owner_seed=it)
        )
        with pytest.raises(FormatError, match="malformed"):
            DistributedSet.load(tmp_path / "old", client=threads)


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
def test_two_clients_agree(threads, mode):
    frame = rows_of([f"key {number}" for number in range(300)])
    with (
        DistributedIndex.build(frame, on="k", mode=mode, client=threads) as index,
        Client(threads.scheduler.address, set_as_default=False) as other,
    ):
        opened = DistributedIndex.open(index.name, other)
        assert known_of(opened).encoder == known_of(index).encoder
        assert opened.lookup(frame["k"]).tolist() == frame["v"].tolist()
        assert opened.insert(rows_of(["another"])) == 1
        index = DistributedIndex.open(index.name, threads)
        assert index.contains(["another", "key 7", "none"]).tolist() == [True, True, False]


def test_what_lazy_work_answers_is_settled_when_it_is_planned(threads, monkeypatch):
    frame = rows_of([f"key {number % 40}" for number in range(300)])
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        merged = [
            index.merge(lazy(frame, 3), deduplicate=True, bloom_filter=filtered)
            for filtered in (True, False)
        ]
        monkeypatch.setenv(VARIABLE, "5")
        for each in merged * 2:
            assert_same(each.compute(), frame.merge(frame, on="k"))


@pytest.mark.parametrize("alike", [True, False])
def test_only_tables_of_one_seed_are_placed_range_by_range(device, monkeypatch, alike):
    placed = []
    place = StreamedBuild.place
    monkeypatch.setattr(
        StreamedBuild, "place", lambda *args, **options: placed.append(1) or place(*args, **options)
    )
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(
        cardinality, "new_key_flags", lambda home, *_: home.from_host(np.array([True]))
    )
    ranks = Ranks(device, 3, (1000, 1000), "set", "int64", capacity=3000, seed=1)
    if not alike:
        # As a table that had to change its seed.
        ranks.parts[2] = TableShard(
            TableSpec.of("set", "int64", seed=2), 3000, device.name, ranks.owner_seed
        )
    keys = np.random.default_rng(0).integers(0, 1 << 60, 900)
    (fresh,) = ranks.joined(Verb("insert"), [300, 600], [0, 1, 2], keys)
    assert fresh.all() and len(ranks) == 900
    assert bool(placed) is alike
    (found,) = ranks.joined(Verb("contains"), [400], [2, 0], np.concatenate([keys, keys + 1]))
    assert found.tolist() == [True] * 900 + [False] * 900
