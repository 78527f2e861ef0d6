"""Upserts of a distributed index beside a dictionary of lists."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy
from distributed import Client, wait
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.errors import ColumnError, IndexChanged, KeyTypeError, UnsupportedError

pytestmark = pytest.mark.cluster

MODES = ["distributed", "replicated", "independent"]
KINDS = ["int64", "Int64", "str"]
KEYS = [*range(9), None]
STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "upsert", "erase"]), st.lists(st.sampled_from(KEYS))),
    min_size=1,
    max_size=3,
)

Model = dict[object, list[int]]


def keys_of(keys: Sequence[object], kind: str) -> list[object]:
    """Return the keys as values of a column of this kind."""
    if kind == "int64":
        return [99 if key is None else key for key in keys]
    return [key if kind == "Int64" or key is None else f"key {key}" for key in keys]


def frame_of(keys: Sequence[object], kind: str, first: int) -> pd.DataFrame:
    column = pd.Series(keys_of(keys, kind), dtype=kind)
    return pd.DataFrame({"k": column, "v": np.arange(first, first + len(keys))})


def changed(model: Model, verb: str, rows: pd.DataFrame) -> Model:
    """Return what a dictionary of lists has after a change."""
    keys = [None if pd.isna(key) else key for key in rows["k"]]
    made = {key: list(values) for key, values in model.items()}
    if verb != "insert":
        made = {key: values for key, values in made.items() if key not in keys}
    if verb != "erase":
        for key, value in zip(keys, rows["v"], strict=True):
            made.setdefault(key, []).append(value)
    return made


def check(index: DistributedIndex, model: Model, kind: str) -> None:
    asked = frame_of(KEYS, kind, 0)[["k"]]
    wanted = [model.get(None if pd.isna(key) else key, []) for key in asked["k"]]
    found = index.find(asked)
    values: list[list[int]] = [[] for _ in wanted]
    for row, value in zip(found.query_rows, found.frame["v"], strict=True):
        if not pd.isna(value):
            values[row].append(value)
    assert [sorted(each) for each in values] == [sorted(each) for each in wanted]
    assert len(index) == sum(map(len, model.values()))
    merged = index.merge(lazy(asked, 2)).compute()
    assert sorted(merged["v"]) == sorted(value for each in model.values() for value in each)
    stays = index.merge(lazy(asked, 2), how="semi").compute()
    assert stays.index.tolist() == [row for row, each in enumerate(wanted) if each]


@given(
    mode=st.sampled_from(MODES), kind=st.sampled_from(KINDS), steps=STEPS,
    before=st.lists(st.sampled_from(KEYS)), parts=st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=5)
def test_any_changes_are_those_of_a_dictionary(
    threads: Client,
    mode: str,
    kind: str,
    steps: list[tuple[str, list[object]]],
    before: list[object],
    parts: int,
) -> None:
    rows = frame_of(before, kind, 0)
    model = changed({}, "insert", rows)
    with DistributedIndex.build(lazy(rows, parts), on="k", client=threads, mode=mode) as index:
        for number, (verb, keys) in enumerate(steps, start=1):
            chosen = list(dict.fromkeys(keys)) if verb == "upsert" else keys
            rows = frame_of(chosen, kind, 100 * number)
            change: Callable[..., int] = getattr(index, verb)
            done = change(lazy(rows if verb != "erase" else rows[["k"]], parts))
            after = changed(model, verb, rows)
            assert done == (
                len(rows) if verb != "erase" else sum(map(len, model.values())) - len(index)
            )
            model = after
        check(index, model, kind)


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(600) % 200, "v": np.arange(600)})


def upserted(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame[~frame["k"].isin(rows["k"])], rows], ignore_index=True)


def rows_of(index: DistributedIndex) -> pd.DataFrame:
    return index.to_dask_dataframe().compute().sort_values(["k", "v"], ignore_index=True)


def assert_rows(index: DistributedIndex, wanted: pd.DataFrame) -> None:
    assert_same(rows_of(index), wanted.sort_values(["k", "v"], ignore_index=True))


@pytest.mark.parametrize("mode", MODES)
def test_doubles_are_refused_wherever_they_lie(threads, frame, mode):
    twice = pd.DataFrame({"k": [3, 500, 7, 500], "v": [-1, -2, -3, -4]})
    with DistributedIndex.build(lazy(frame, 3), on="k", client=threads, mode=mode) as index:
        for rows in (twice, lazy(twice, 4), lazy(twice, 2).persist()):
            with pytest.raises(ColumnError, match=r"'k': 500.* more than one row of the upsert"):
                index.upsert(rows)
        with pytest.raises(KeyTypeError):
            index.upsert(twice.astype({"k": str}))
        assert index.epoch == 1
        assert_rows(index, frame)
        before = index.merge(frame)
        assert index.upsert(lazy(twice[:3], 2)) == 3
        assert index.epoch == 2
        assert_rows(index, upserted(frame, twice[:3]))
        with pytest.raises(IndexChanged):
            before.compute()


@pytest.mark.parametrize("mode", MODES)
def test_unique_keys_stay_unique(threads, frame, mode):
    once = frame[:200]
    with DistributedIndex.build(
        lazy(once, 4), on="k", client=threads, mode=mode, unique=True
    ) as index:
        rows = pd.DataFrame({"k": np.arange(150, 250), "v": np.arange(100) + 1000})
        assert index.upsert(lazy(rows, 3)) == 100
        assert index.lookup(np.array([149, 150, 249])).tolist() == [149, 1000, 1099]
        assert index.upsert(lazy(rows.assign(v=-1), 2)) == 100
        assert len(index) == 250
        with pytest.raises(ColumnError, match="unique"):
            index.insert(rows[:1])


def test_a_method_that_cannot_erase(threads, frame):
    with DistributedIndex.build(frame, on="k", client=threads, method="chained") as index:
        with pytest.raises(UnsupportedError, match="cannot erase"):
            index.upsert(frame[:5])
        assert index.epoch == 1


def drop(uid: str, dask_worker) -> None:
    plugin_of(dask_worker).shards.drop(uid)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("durable", [False, True])
def test_lost_shards_come_back_with_their_upserts(threads, frame, tmp_path, mode, durable):
    options = {"mode": mode, "durable": tmp_path / "log" if durable else None}
    with DistributedIndex.build(lazy(frame, 4), on="k", client=threads, **options) as index:
        rows = pd.DataFrame({"k": np.arange(100, 260), "v": -np.arange(160)})
        index.upsert(lazy(rows, 3))
        more = pd.DataFrame({"k": [5, 105, 300], "v": [1, 2, 3]})
        index.insert(more)
        last = pd.DataFrame({"k": [105, 6, 300], "v": [7, 8, 9]})
        index.upsert(last)
        wanted = upserted(pd.concat([upserted(frame, rows), more]), last)
        assert_rows(index, wanted)
        threads.run(drop, index._descriptor.uid, workers=index.workers[2:])
        assert index.rebuild().parts == (2,)
        assert_rows(index, wanted)
        if durable:
            index.rebuild(whole=True)
        else:
            index.rebalance(index.workers[:2])
            threads.run(drop, index._descriptor.uid, workers=index.workers[:1])
            index.rebuild()
        assert_rows(index, wanted)
    if durable:
        workers = sorted(threads.nthreads())[:2]
        with DistributedIndex.load(tmp_path / "log", threads, workers=workers) as loaded:
            assert_rows(loaded, wanted)


@pytest.mark.parametrize("durable", [False, True])
def test_heavy_keys(threads, tmp_path, durable):
    """Their rows lie on all shards, and all go; the owner has the new one."""
    few = pd.DataFrame({"k": np.arange(2000), "v": np.arange(2000)})
    heavy = pd.DataFrame({"k": 7, "v": np.arange(2000, 9000)})
    log = tmp_path / "log" if durable else None
    rows = pd.concat([few, heavy], ignore_index=True)
    with DistributedIndex.build(lazy(rows, 3), on="k", client=threads, durable=log) as index:
        assert index._descriptor.heavy
        with pytest.raises(ColumnError, match="'k': 7"):
            index.upsert(lazy(pd.DataFrame({"k": [7, 3, 7], "v": -1}), 3))
        new = pd.DataFrame({"k": [7, 3, 3000], "v": [-7, -3, -1]})
        assert index.upsert(lazy(new, 2)) == 3
        wanted = upserted(rows, new)
        assert_rows(index, wanted)
        asked = pd.DataFrame({"k": [7, 2999, 3000]})
        assert index.merge(asked, how="semi").compute()["k"].tolist() == [7, 3000]
        index.insert(heavy[:100])
        wanted = pd.concat([wanted, heavy[:100]])
        threads.run(drop, index._descriptor.uid, workers=index.workers[:1])
        index.rebuild()
        assert_rows(index, wanted)
        index.rebuild(whole=True)
        assert_rows(index, wanted)


@pytest.mark.parametrize("heavy", [False, True])
def test_plain_rows_on_workers_are_put_together(threads, frame, dask_logs, heavy):
    """Unless all workers have rows of some keys."""
    rows = pd.concat([frame, pd.DataFrame({"k": 7, "v": np.arange(6000)})]) if heavy else frame
    with DistributedIndex.build(lazy(rows, 3), on="k", client=threads) as index:
        new = pd.DataFrame({"k": np.arange(5, 205), "v": -np.arange(200)})
        held = lazy(new, 3).persist()
        wait(held)
        with dask_logs.at_level(logging.DEBUG, logger="distributed.dgpuhash.bulk"):
            assert index.upsert(held) == 200
        how = "by tasks.*heavy keys" if heavy else "in one phase"
        assert re.search(f"upsert.*{how}", dask_logs.text)
        assert_rows(index, upserted(rows, new))


def test_an_upsert_costs_its_batch(threads):
    """The shards keep their tables and rows: what is sent and stored is the batch."""
    frame = pd.DataFrame({"k": np.arange(50_000), "v": np.arange(50_000)})
    with DistributedIndex.build(lazy(frame, 3), on="k", client=threads) as index:
        before = index.stats()["table_nbytes"].sum()
        for number in range(10):
            index.upsert(frame[100 * number : 100 * number + 300].assign(v=-number))
        found = index.stats()
        assert found["table_nbytes"].sum() == before
        assert found["rows"].sum() == 50_000
        assert index.lookup(np.array([0, 100, 1199, 1200])).tolist() == [0, -1, -9, 1200]
