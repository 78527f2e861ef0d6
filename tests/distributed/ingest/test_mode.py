"""Independent and replicated indexes against pandas.

Rows lie on any worker.
"""

from __future__ import annotations

import pickle
from itertools import pairwise

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from answers import answers_like_pandas
from clusters import assert_same, cluster_of, joined, kill, lazy, merged_lazily, until, wide_keys
from distributed import wait

from dgpuhash.distributed import DistributedIndex, Placement
from dgpuhash.distributed.cluster import rpc as requests
from dgpuhash.errors import ColumnError, IndexChanged, IndexLost, KeyTypeError, SpecError

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "semi", "anti"]


@pytest.fixture(params=["independent", "replicated"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the operations that workers request, except heartbeats."""
    operations = []
    round_trip = requests._round_trip

    async def noted(worker, address, operation, message):
        if operation not in {"dgpuhash_ping", "dgpuhash_collective"}:
            operations.append(operation)
        return await round_trip(worker, address, operation, message)

    monkeypatch.setattr(requests, "_round_trip", noted)
    return operations


@pytest.mark.parametrize("how", HOWS)
def test_merge_equals_pandas(client, left, right, mode, how):
    with DistributedIndex.build(lazy(right, 4), on="k", client=client, mode=mode) as index:
        assert index.placement is Placement(mode)
        assert f"shards, {mode}, epoch 1" in repr(index)
        merged = index.merge(lazy(left, 3), how=how)
        result = merged.compute()
        assert list(index.meta.columns) == list(right.columns)
    wanted = joined(left, right, ["k"], how)
    assert_same(result, wanted)
    assert list(merged._meta.columns) == list(wanted.columns)


@pytest.mark.parametrize("how", HOWS)
def test_several_wide_keys(threads, mode, how):
    rng = np.random.default_rng(0)
    left, right = wide_keys(rng, 300), wide_keys(rng, 90)
    on = ["city", "day"]
    with DistributedIndex.build(lazy(right, 3), on=on, client=threads, mode=mode) as index:
        result = index.merge(lazy(left, 4), how=how).compute()
    assert_same(result, joined(left, right, on, how))


def test_lookups_in_every_form(client, right, left, mode):
    asked = left[:60].set_axis(pd.Index(np.arange(60) // 2, name="label"), axis=0)
    with DistributedIndex.build(lazy(right, 5), on="k", client=client, mode=mode) as index:
        for keys in (asked, asked[:1], asked[:0]):
            answers_like_pandas(index, keys, right, ["k"])


def test_empty_partitions_and_an_index_of_no_rows(threads, left, right, mode):
    cuts = [0, 0, 130, 130, 500, 500]
    parts = [right[start:end] for start, end in pairwise(cuts)]
    frame = dd.from_map(lambda number: parts[number], range(5), meta=right[:0])
    probes = dd.from_map(lambda number: left[number * 700 :], range(2), meta=left[:0])
    with DistributedIndex.build(frame, on="k", client=threads, mode=mode) as index:
        assert_same(
            index.merge(probes, how="left").compute(), merged_lazily(left, right, "left", on="k")
        )
    with DistributedIndex.build(right[:0], on="k", client=threads, mode=mode) as index:
        assert len(index) == 0
        assert_same(index.merge(probes, how="anti").compute(), left)
        assert index.merge(probes, how="semi").compute().empty
        found = index.merge(probes, how="left").compute()
        assert list(found.columns) == list(left.merge(right, on="k").columns)
        assert index.insert(right[:2]) == 2
        assert len(index) == 2


@pytest.mark.parametrize("workers", [1, 5])
def test_any_number_of_workers(workers, left, right, mode):
    with (
        cluster_of(workers, processes=False) as client,
        DistributedIndex.build(lazy(right, 6), on="k", client=client, mode=mode) as index,
    ):
        rows = index.stats()["rows"]
        assert len(rows) == workers
        assert len(index) == 500
        assert rows.sum() == 500 if mode == "independent" else rows.eq(500).all()
        assert_same(index.merge(lazy(left, 2)).compute(), left.merge(right, on="k"))


def test_workers_without_a_shard(threads, left, right, mode):
    some = sorted(threads.nthreads())[:2]
    options = {"client": threads, "mode": mode, "workers": some}
    with DistributedIndex.build(lazy(right, 6), on="k", **options) as index:
        assert index.workers == some
        result = index.merge(lazy(left, 9), how="left").compute()
        assert index.lookup(left[["k"]]).shape == (len(result), 3)
    assert_same(result, merged_lazily(left, right, "left", on="k"))


def test_messages_in_pieces(threads, monkeypatch, left, right, mode):
    monkeypatch.setitem(dask.config.get("dgpuhash.exchange"), "message", 64)
    few = left[:80]
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads, mode=mode) as index:
        assert_same(
            index.merge(few, how="left").compute(), merged_lazily(few, right, "left", on="k")
        )
        assert_same(index.merge(few, how="anti").compute(), joined(few, right, ["k"], "anti"))


def test_inserts_and_erases(client, left, right, mode):
    with DistributedIndex.build(lazy(right, 4), on="k", client=client, mode=mode) as index:
        before = index.merge(left)
        other = DistributedIndex.open(index.name, client)
        assert index.insert(lazy(right[:40], 3)) == 40
        now = pd.concat([right, right[:40]], ignore_index=True)
        with pytest.raises(IndexChanged, match="again"):
            before.compute()
        assert len(other.lookup([50])) == (now["k"] == 50).sum()
        assert_same(other.merge(lazy(left, 3)).compute(), left.merge(now, on="k"))
        assert index.erase([50, 60, 999]) == int(now["k"].isin([50, 60]).sum())
        now = now[~now["k"].isin([50, 60]).fillna(False)]
        assert len(index) == len(now)
        assert_same(index.merge(lazy(left, 3)).compute(), left.merge(now, on="k"))
        copied = pickle.loads(pickle.dumps(index))
        assert copied.placement is index.placement
        stored = int(now["k"].dropna().iloc[0])
        assert copied.contains([50, stored]).tolist() == [False, True]
        index.rebuild()
        assert_same(index.merge(lazy(left, 3)).compute(), left.merge(now, on="k"))
        with pytest.raises(KeyTypeError):
            index.merge(left.assign(k="text"))


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_changes(threads, mode, seed):
    rng = np.random.default_rng(seed)
    probes = pd.DataFrame({"k": np.arange(-1, 41)})

    def rows(most: int) -> pd.DataFrame:
        n = int(rng.integers(1, most))
        return pd.DataFrame({"k": rng.integers(0, 40, n), "v": rng.integers(0, 1 << 40, n)})

    now = rows(200)
    with DistributedIndex.build(lazy(now, 3), on="k", client=threads, mode=mode) as index:
        for _ in range(6):
            if rng.random() < 0.6:
                added = rows(60)
                assert index.insert(lazy(added, int(rng.integers(1, 5)))) == len(added)
                now = pd.concat([now, added])
            else:
                keys = rng.integers(0, 40, int(rng.integers(0, 9)))
                assert index.erase(keys) == int(now["k"].isin(keys).sum())
                now = now[~now["k"].isin(keys)]
            assert len(index) == len(now)
            result = index.merge(lazy(probes, 2), how="left").compute()
            assert_same(result, merged_lazily(probes, now, "left", on="k"))
            assert index.contains(probes).tolist() == probes["k"].isin(now["k"]).tolist()


def test_saved_and_loaded_on_other_numbers_of_workers(processes, left, right, mode, tmp_path):
    now = right
    with DistributedIndex.build(lazy(right, 5), on="k", client=processes, mode=mode) as index:
        index.insert(right[:70])
        now = pd.concat([now, right[:70]])
        index.save(tmp_path / "saved")
    for workers in (3, 1):
        with (
            cluster_of(workers, processes=False) as client,
            DistributedIndex.load(tmp_path / "saved", client) as loaded,
        ):
            assert loaded.placement is Placement(mode)
            assert len(loaded) == len(now)
            loaded.insert(lazy(right[30:90], 2))
            now = pd.concat([now, right[30:90]])
            assert_same(loaded.merge(lazy(left, 2)).compute(), left.merge(now, on="k"))
            loaded.save(tmp_path / "saved")


def test_unique_keys_are_refused_wherever_they_lie(client, mode):
    rows = pd.DataFrame({"k": np.arange(300), "v": np.arange(300) * 2})
    options = {"on": "k", "unique": True, "client": client, "mode": mode}
    twice = pd.concat([rows, rows[17:18]])
    with pytest.raises(ColumnError, match=r"unique.*'k': 17"):
        DistributedIndex.build(lazy(twice, 6), **options)
    with DistributedIndex.build(lazy(rows, 6), **options) as index:
        with pytest.raises(ColumnError, match=r"unique.*'k': 7"):
            index.insert(lazy(pd.DataFrame({"k": [500, 7, 501], "v": [1, 2, 3]}), 3))
        with pytest.raises(ColumnError, match=r"unique.*'k': 500"):
            index.insert(lazy(pd.DataFrame({"k": [500, 501, 500], "v": [1, 2, 3]}), 3))
        assert index.epoch == 1
        assert len(index) == 300
        assert index.insert(lazy(pd.DataFrame({"k": [500, 501, 502], "v": [1, 2, 3]}), 3)) == 3
        assert index.erase([7]) == 1
        assert index.insert({"k": [7], "v": [9]}) == 1
        assert index.lookup(np.array([7, 501, 299])).tolist() == [9, 2, 598]


def test_unique_keys_that_are_empty_on_some_workers(threads, mode):
    rows = pd.DataFrame({"k": ["a", "b"], "v": [1, 2]})
    options = {"on": "k", "unique": True, "client": threads, "mode": mode}
    with DistributedIndex.build(rows, **options) as index:
        assert index.insert(pd.DataFrame({"k": ["c"], "v": [3]})) == 1
        with pytest.raises(ColumnError, match="'k': 'a'"):
            index.insert(pd.DataFrame({"k": ["a"], "v": [3]}))
        assert index.lookup("c")["v"].tolist() == [3]


def scattered(client, frame: pd.DataFrame, npartitions: int) -> dd.DataFrame:
    """Return a persisted frame with partitions on the workers in turn."""
    workers = sorted(client.nthreads())
    parts = np.array_split(np.arange(len(frame)), npartitions)
    futures = [
        client.scatter(frame.iloc[rows], workers=[workers[number % len(workers)]], hash=False)
        for number, rows in enumerate(parts)
    ]
    return dd.from_delayed(futures, meta=frame[:0], verify_meta=False)


def test_independent_rows_stay_where_they_lie(threads, right, sent):
    source = scattered(threads, right, 3)
    with DistributedIndex.build(source, on="k", client=threads, mode="independent") as index:
        assert index.insert(source.persist()) == 500
        assert "dgpuhash_put" not in sent
        stats = index.stats().set_index("worker")["rows"]
    assert stats[sorted(threads.nthreads())].tolist() == [334, 334, 332]


def test_every_partition_of_one_worker_stays_there(threads, right):
    (worker, *_) = sorted(threads.nthreads())
    source = threads.persist(lazy(right, 7), workers=[worker])
    wait(source)
    with DistributedIndex.build(source, on="k", client=threads, mode="independent") as index:
        rows = index.stats().set_index("worker")["rows"]
    assert rows[worker] == 500
    assert rows.sum() == 500


def test_nothing_is_sent_to_a_replicated_index(threads, left, right, sent):
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads, replicated=True) as index:
        assert set(sent) == {"dgpuhash_put"}
        sent.clear()
        merged = index.merge(lazy(left, 8), how="left").compute()
        assert index.contains([50, 7]).tolist() == [True, False]
        index.lookup(left["k"])
        assert sent == []
        assert_same(merged, merged_lazily(left, right, "left", on="k"))


RULES = ["first", "last", "min", "max", "sum"]


@pytest.mark.parametrize("rule", RULES)
def test_conflicts_are_settled_by_the_declared_rule(client, tmp_path, rule):
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "v": rng.integers(-50, 50, 400),
            "k": rng.integers(0, 60, 400),
            "x": np.where(rng.random(400) < 0.4, np.nan, rng.integers(0, 9, 400)),
            "n": pd.array(rng.integers(0, 9, 400), dtype="Int64"),
        }
    )
    rows.loc[rows["k"] == 5, ["x", "n"]] = pd.NA
    wanted = settled(rows, rule)
    asked = pd.DataFrame({"k": np.arange(70)})
    options = {"on": "k", "mode": "independent", "conflict": rule, "client": client}
    with DistributedIndex.build(lazy(rows, 5), **options) as index:
        assert f"conflict={rule!r}" in repr(index)
        assert_same(index.merge(lazy(asked, 2)).compute(), asked.merge(wanted, on="k"))
        assert_same(index.lookup(asked), asked.merge(wanted, on="k", how="left"))
        assert index.contains(asked).tolist() == asked["k"].isin(rows["k"]).tolist()
        narrow = index.merge(asked, columns=["x"]).compute()
        assert_same(narrow, asked.merge(wanted[["k", "x"]], on="k"))
        assert len(index) == 400
        more = rows[:90].assign(v=77)
        index.insert(lazy(more, 3))
        wanted = settled(pd.concat([rows, more]), rule)
        assert_same(index.merge(asked).compute(), asked.merge(wanted, on="k"))
        index.save(tmp_path / "saved")
    with DistributedIndex.load(tmp_path / "saved", client) as loaded:
        assert_same(loaded.merge(asked).compute(), asked.merge(wanted, on="k"))


def settled(rows: pd.DataFrame, rule: str) -> pd.DataFrame:
    if rule in {"first", "last"}:
        return rows.drop_duplicates("k", keep=rule)
    options = {"min_count": 1} if rule == "sum" else {}
    return getattr(rows.groupby("k", as_index=False), rule)(**options)[list(rows.columns)]


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ({"mode": "elsewhere"}, SpecError, "'replicated'"),
        ({"replicated": "no"}, SpecError, "True or False"),
        ({"mode": "independent", "replicated": True}, SpecError, "give one"),
        ({"mode": "independent", "conflict": "newest"}, SpecError, "'first'"),
        ({"conflict": "first"}, SpecError, "mode='independent'"),
        ({"mode": "independent", "conflict": "min", "unique": False}, SpecError, "unique=False"),
        ({"mode": "independent", "conflict": "min"}, ColumnError, "'note'"),
        ({"mode": "independent", "conflict": "sum", "columns": ["s"]}, ColumnError, "int64"),
    ],
)
def test_options_that_contradict_each_other(threads, right, options, error, hint):
    rows = right.assign(s=right["y"].astype("int16"))
    with pytest.raises(error, match=hint):
        DistributedIndex.build(rows, **{"on": "k", "client": threads} | options)


def test_a_column_called_like_our_own(threads, right):
    rows = right.rename(columns={"y": "dgpuhash arrival"})
    options = {"on": "k", "client": threads, "mode": "independent"}
    for columns in (None, []):
        with pytest.raises(ColumnError, match="rename the column"):
            DistributedIndex.build(lazy(rows, 2).persist(), columns=columns, **options)
    with DistributedIndex.build(right[["k"]], **options) as index:
        with pytest.raises(ColumnError, match="rename the column"):
            index.insert(rows)
        assert len(index) == len(right)


def test_columns_of_several_levels_beside_our_own(threads):
    rows = pd.DataFrame({("a", "k"): [1, 2, 2], ("a", "v"): [1, 2, 3]})
    with pytest.raises(ColumnError, match="several levels; give the columns flat names"):
        DistributedIndex.build(rows, on=[("a", "k")], client=threads, mode="independent")
    with DistributedIndex.build(rows, on=[("a", "k")], client=threads) as index:
        assert len(index) == 3


def test_auto_decides_by_size_and_says_so(threads, right, monkeypatch):
    def built(data: object, **options: object) -> str:
        with DistributedIndex.build(data, "k", client=threads, mode="auto", **options) as index:
            assert len(index) == 500
            return repr(index)

    persisted = lazy(right, 4).persist()
    wait(persisted)
    assert "replicated (auto: 0.1 MiB, at most 16)" in built(right)
    assert "replicated (auto" in built(persisted)
    assert "distributed (auto: size unknown" in built(lazy(right, 4))
    assert "distributed (auto: one worker)" in built(right, workers=list(threads.nthreads())[:1])
    one = list(threads.nthreads())[:1]
    with DistributedIndex.build(right, "k", client=threads, mode="auto", workers=one) as index:
        index.rebalance()
        assert "3 shards, distributed, epoch" in repr(index)
    monkeypatch.setitem(dask.config.get("dgpuhash.placement"), "replicate", 1 << 10)
    assert "distributed (auto: 0.1 MiB, more than 0)" in built(right)
    assert "distributed (auto: 0.1 MiB, more than 0)" in built(persisted)


@pytest.mark.parametrize("every_mode", ["distributed", "independent", "replicated"])
@pytest.mark.parametrize("persisted", [False, True])
def test_partitions_of_other_dtypes_than_was_said(threads, every_mode, persisted):
    """As pandas has it: whole numbers and halves together are floats, in each shard as in all."""
    parts = [pd.DataFrame({"k": [1, 2], "v": [1, 2]}), pd.DataFrame({"k": [3.0], "v": [0.5]})]
    frame = dd.from_map(lambda number: parts[number], range(2), meta=parts[0][:0])
    if persisted:
        frame = frame.persist()
        wait(frame)
    probes = pd.DataFrame({"k": [3, 1, 2, 4]})
    expected = probes.merge(pd.concat(parts).astype({"k": "int64"}), on="k")
    with DistributedIndex.build(frame, on="k", client=threads, mode=every_mode) as index:
        for at_once in (False, True):
            found = index.merge(lazy(probes, 1).persist(), persist=at_once).compute()
            assert_same(found, expected)
        with pytest.raises(ColumnError, match=r"no column \['v'\]"):
            index.insert(dd.from_map(lambda number: parts[1][["k"]], [0], meta=parts[0][:0]))
        assert len(index) == 3


def test_a_lost_worker(left, right, mode, tmp_path):
    wanted = left.merge(right, on="k")
    with cluster_of(2, processes=True) as client:
        index = DistributedIndex.build(lazy(right, 4), on="k", client=client, mode=mode)
        index.save(tmp_path / "saved")
        lost = index.stats()["rows"][0] if mode == "independent" else 500
        lost_worker = index.workers[0]
        kill(client, lost_worker, noticed=False)
        try:
            # A copy that is there answers for itself.
            assert_same(index.merge(lazy(left, 4)).compute(), wanted)
            assert mode == "replicated"
        except IndexLost:
            pass
        for use in (lambda: len(index), lambda: index.insert(right[:5]), lambda: index.erase([50])):
            with pytest.raises(IndexLost, match=r"worker|nothing was changed"):
                use()
        if mode == "independent":
            with pytest.raises(IndexLost, match="worker"):
                index.lookup(np.arange(100))
        until(lambda: lost_worker not in client.nthreads())
        client.wait_for_workers(2, timeout=120)
        rebuilt = index.rebuild()
        assert (rebuilt.parts, rebuilt.kept) == ((0,), (1,))
        assert rebuilt.rows == lost
        assert_same(index.merge(lazy(left, 4)).compute(), wanted)
        assert index.rebuild().rows == 0
        index.close()
        with DistributedIndex.load(tmp_path / "saved", client) as loaded:
            assert_same(loaded.merge(lazy(left, 4)).compute(), wanted)


def test_workers_that_come_and_go(left, right, mode):
    wanted = left.merge(right, on="k")

    def check() -> None:
        assert_same(index.merge(lazy(left, 4)).compute(), wanted)
        assert len(index) == len(right)

    with cluster_of(2, processes=False) as client:
        index = DistributedIndex.build(lazy(right, 4), on="k", client=client, mode=mode)
        client.cluster.scale(3)
        client.wait_for_workers(3, timeout=120)
        check()
        assert index.rebalance() == (500 if mode == "replicated" else 0)
        assert len(index.workers) == 3
        check()
        first, *others = index.workers
        moved = index.stats()["rows"][0]
        assert index.rebalance(others) == (0 if mode == "replicated" else moved)
        assert index.workers == others
        check()
        assert index.rebalance([first, others[1]]) >= 0
        check()
        assert index.insert(right[:1]) == 1
        assert index.rebuild(whole=True).rows >= len(right)
        wanted = left.merge(pd.concat([right, right[:1]]), on="k")
        assert_same(index.merge(lazy(left, 4)).compute(), wanted)
