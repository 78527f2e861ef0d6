"""Aggregates that live on the workers, beside pandas' groupby of all rows so far."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy
from distributed import Client
from suites.raising import no_other_engine

from dgpuhash.distributed import DistributedGroupBy, DistributedIndex, load
from dgpuhash.distributed.ingest import commit
from dgpuhash.distributed.ingest.commit import drop_shards
from dgpuhash.distributed.ingest.shuffle_tasks import shuffle_partition
from dgpuhash.distributed.storage import change_log
from dgpuhash.errors import (
    ClosedError,
    ColumnError,
    FormatError,
    IndexChanged,
    IndexLost,
    KeyTypeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster

NAMED: dict[str, Any] = {
    "rows": ("v", "size"), "n": ("v", "count"), "total": ("v", "sum"), "off": ("v", "std"),
    "whole": ("w", "sum"),
}  # fmt: skip
BY = ["k", "s"]


def rows(number: int, count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({
        "k": rng.integers(0, 6, count), "s": pd.Series(rng.choice(["a", "b", None], count)),
        "v": np.where(rng.random(count) < 0.2, np.nan, rng.normal(5, 2, count)),
        "w": rng.integers(0, 3, count), "other": "not read",
    })  # fmt: skip


def aggregated(given: list[pd.DataFrame], named: dict[str, Any] = NAMED) -> pd.DataFrame:
    return pd.concat(given).groupby(BY, dropna=False).agg(**named)


def check(state: DistributedGroupBy, given: list[pd.DataFrame]) -> None:
    with no_other_engine():
        found = state.result().compute()
    pd.testing.assert_frame_equal(found.sort_index(), aggregated(given), rtol=1e-9)
    assert len(state) == len(found)


@pytest.fixture
def first() -> pd.DataFrame:
    return rows(0, 100)


@pytest.fixture
def state(threads: Client, first: pd.DataFrame) -> Iterator[DistributedGroupBy]:
    """Yield groups of the first rows."""
    with DistributedGroupBy.build(
        lazy(first, 3), BY, dropna=False, client=threads, **NAMED
    ) as built:
        yield built


def test_changes_are_those_of_pandas(state, first):
    given = [first]
    with no_other_engine():
        for number, change in enumerate([rows(1), lazy(rows(2), 4), rows(3)[:0]], start=1):
            touched = aggregated([rows(number)]) if number < 3 else []
            assert state.update(change) == len(touched)
    given += [rows(1), rows(2)]
    check(state, given)
    assert state.retract(lazy(rows(1), 2)) == len(aggregated([rows(1)]))
    check(state, [first, rows(2)])
    state.retract(first)
    state.retract(rows(2))
    assert (len(state), len(state.result().compute()), state.epoch) == (0, 0, 7)


def test_pandas_frames_and_any_partitions_give_the_same(state, first, threads):
    with DistributedGroupBy.build(
        first, BY, dropna=False, client=threads, sort=False, **NAMED
    ) as other:
        check(other, [first])
        assert f"on {BY!r}: columns {list(NAMED)!r}, {len(other)} groups, " in repr(other)
        other.update(rows(1).astype({"k": "int16", "w": "int8"}))
        check(other, [first, rows(1)])
    with pytest.raises(ClosedError):
        other.update(first)


def test_lookups_and_merges_are_left_merges_with_the_results(state, first):
    asked = rows(9, 20)[[*BY, "other"]]
    asked.loc[3, "k"] = 77
    wanted = aggregated([first]).reset_index()
    with no_other_engine():
        found, lazily = state.lookup(asked), state.merge(lazy(asked, 2), how="left").compute()
        inner = state.merge(lazy(asked, 2).persist(), columns=["total"], persist=True).compute()
    assert_same(found, asked[BY].merge(wanted, how="left"))
    pd.testing.assert_frame_equal(
        lazily.reset_index(drop=True), asked.merge(wanted, how="left"), check_dtype=False
    )
    assert_same(inner, asked.merge(wanted[[*BY, "total"]]))
    assert state.contains(asked).tolist() == (asked["k"] != 77).tolist()
    assert state.to_dask_dataframe()["rows"].sum().compute() == len(first)


def test_which_groups_changed(state, first):
    before = state.epoch
    more = rows(5, 4)
    state.update(more)
    with no_other_engine():
        found = state.changed(since=before).compute().sort_index()
    touched = aggregated([more]).index
    wanted = aggregated([first, more])
    pd.testing.assert_frame_equal(found, wanted[wanted.index.isin(touched)])
    assert len(state.changed(since=state.epoch).compute()) == 0
    late = state.changed(before)
    state.update(more)
    with pytest.raises(IndexChanged):
        late.compute()
    for wrong in (-1, state.epoch + 1, "1", True):
        with pytest.raises(SpecError, match="give an epoch, from 0 to 3"):
            state.changed(since=wrong)


def test_wrong_rows_change_nothing(state, first):
    wrong: list[tuple[Any, type[Exception], str]] = [
        (first.drop(columns="v"), ColumnError, r"no column \['v'\]"),
        (first.astype({"w": "float64"}), ColumnError, "groups were built with int64"),
        (first.assign(k="x"), ColumnError, "'k' is str"),
    ]
    for given, error, text in wrong:
        for change in (given, lazy(given, 2)):
            with pytest.raises(error, match=text):
                state.update(change)
    with pytest.raises(ColumnError, match=r"the group \{.*\} are retracted than were added"):
        state.retract(pd.concat([first, rows(8)]))
    with pytest.raises(UnsupportedError, match="delayed frames"):
        state.update([dask.delayed(first)])
    assert state.epoch == 1
    check(state, [first])


def test_a_partition_that_fails_changes_nothing(state, first):
    def odd(part: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
        if partition_info and partition_info["number"] == 1:
            raise ZeroDivisionError("the reader fails")
        return part

    with pytest.raises(ZeroDivisionError, match="the reader fails"):
        state.update(lazy(rows(1), 3).map_partitions(odd, meta=first[:0]))
    # Other dtypes than the frame says.
    with pytest.raises(ColumnError, match="nothing was changed"):
        state.update(
            lazy(rows(1), 3).map_partitions(lambda x: x.astype({"w": float}), meta=first[:0])
        )
    assert state.epoch == 1
    check(state, [first])
    state.update(rows(1))
    check(state, [first, rows(1)])


def put_twice(frame: Any, sealed: Any, partition: int, *others: Any) -> Any:
    receipts = [shuffle_partition(frame, sealed, partition, *others) for _ in range(2)]
    return receipts[partition % 2]


def test_attempts_that_are_repeated_count_once(state, first, monkeypatch):
    monkeypatch.setattr(commit, "shuffle_partition", put_twice)
    state.update(lazy(rows(1), 4))
    state.retract(lazy(rows(1).iloc[:20], 3))
    check(state, [first, rows(1).iloc[20:]])


def test_updates_of_two_clients_are_ordered(threads, first):
    named = {**NAMED, "last": ("other", "last")}
    with (
        DistributedGroupBy.build(
            first, BY, dropna=False, client=threads, name="both", **named
        ) as state,
        Client(threads.scheduler.address, loop=threads.loop, set_as_default=False) as other,
    ):
        again = DistributedGroupBy.open("both", client=other)

        def work() -> None:
            for number in (1, 2):
                again.update(rows(number))

        thread = threading.Thread(target=work)
        thread.start()
        for number in (3, 4):
            state.update(rows(number))
        thread.join()
        state.refresh()
        assert state.epoch == 5
        wanted = aggregated([first, *map(rows, range(1, 5))], named)
        pd.testing.assert_frame_equal(state.result().compute().sort_index(), wanted)
        assert pickle.loads(pickle.dumps(again)).by == BY
        with pytest.raises(SpecError, match=r"use DistributedGroupBy.open\('both'\)"):
            DistributedIndex.open("both", client=other)
        with pytest.raises(UnsupportedError, match="cannot be retracted from"):
            state.retract(first)
        again.close()


def test_saved_groups_are_loaded_and_go_on(state, first, tmp_path, threads):
    state.update(rows(1))
    state.save(str(tmp_path / "saved"))
    with load(tmp_path / "saved", client=threads) as again:
        assert isinstance(again, DistributedGroupBy)
        assert (again.epoch, again.by) == (1, BY)
        check(again, [first, rows(1)])
        again.update(rows(2))
        again.retract(rows(1))
        check(again, [first, rows(2)])
        assert again.rebuild(whole=True).rows == len(again)
        check(again, [first, rows(2)])
    with pytest.raises(SpecError, match=r"use DistributedGroupBy\.load"):
        DistributedIndex.load(str(tmp_path / "saved"), threads)
    manifest = tmp_path / "saved" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"sort": true', '"sort": false'))
    with pytest.raises(FormatError):
        load(tmp_path / "saved", client=threads)


def lose(state: DistributedGroupBy, threads: Client, *parts: int) -> None:
    uid = state._descriptor.uid
    drop_shards(threads, uid, [state.workers[part] for part in parts])


def test_lost_groups_are_noticed_and_read_again(state, first, threads):
    state.update(lazy(rows(1), 3))
    state.retract(rows(1).iloc[:10])
    lose(state, threads, 1)
    with pytest.raises(IndexLost, match="rebuild"):
        state.result().compute()
    with pytest.raises(IndexLost, match="rebuild"):
        state.update(rows(2))
    assert state.rebuild().parts == (1,)
    check(state, [first, rows(1).iloc[10:]])
    moved = state.rebalance(state.workers[:2])
    assert moved > 0
    check(state, [first, rows(1).iloc[10:]])


def test_a_log_has_each_change_that_returned(threads, first, tmp_path, monkeypatch):
    url = str(tmp_path / "log")
    with DistributedGroupBy.build(
        lazy(first, 2), BY, dropna=False, client=threads, durable=url, **NAMED
    ) as state:
        state.update(lazy(rows(1), 3))
        state.retract(rows(1).iloc[:20])
        state.update(rows(2))
        given = [first, rows(1).iloc[20:], rows(2)]

        def fails(*args: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(change_log, "_commit", fails)
            with pytest.raises(KeyboardInterrupt):
                state.update(rows(3))
        check(state, given)
        assert state._history.ways_to_rebuild(state._descriptor)[1:] == []
        lose(state, threads, 0, 2)
        assert state.rebuild().parts == (0, 2)
        check(state, given)
        state.save(url)
        state.update(rows(4))
        lose(state, threads, 0, 1, 2)
        with DistributedGroupBy.load(url, threads, durable=url) as again:
            check(again, [*given, rows(4)])
    assert len(list(Path(url).glob("log-*.record"))) == 2


def test_builds_that_cannot_be_leave_nothing(threads, first):
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"by": "z"}, ColumnError, "no column"),
        ({"by": "k", "x": ("z", "sum")}, Exception, "z"),
        ({"by": "k", "x": ("v", "median")}, UnsupportedError, "'median' of these columns"),
        ({"by": "k"}, SpecError, "no aggregate is named"),
        ({"by": "k", "x": ("v", "sum"), "dropna": 1}, SpecError, "give True or False"),
    ]
    for given, error, text in wrong:
        with pytest.raises(error, match=text):
            DistributedGroupBy.build(first, client=threads, **given)
    with pytest.raises(KeyTypeError):
        DistributedGroupBy.build(
            first.assign(k=1j), "k", total=("v", "sum"), client=threads
        ).close()
    named = {"client": ("v", "sum")}
    with DistributedGroupBy.build(first, "k", named, client=threads) as state:
        assert state.columns == ["k", "client"]


def test_digits_that_went_with_retracted_rows_are_missed(threads, tmp_path):
    named = {"v": ("x", "var"), "total": ("x", "sum"), "n": ("x", "count"), "off": ("x", "sem")}
    keys = [f"k{number}" for number in range(7)]
    near = pd.DataFrame({"k": np.repeat(keys, 3), "x": [1.0, 2.0, 4.0] * 7})
    far = pd.DataFrame({"k": keys, "x": [1e9] * 6 + [50.0]})
    state = DistributedGroupBy.build(near, "k", client=threads, **named)
    state.update(lazy(far, 2))
    exact = pd.concat([near, far]).groupby("k").agg(**named)
    pd.testing.assert_frame_equal(state.result().compute().sort_index(), exact)
    state.retract(far)
    for name in ("loaded", "moved", "itself"):
        if name == "loaded":
            state.save(f"{tmp_path}/saved")
            asked = DistributedGroupBy.load(f"{tmp_path}/saved", threads)
        else:
            asked = state
        for label in ("v", "off"):
            with pytest.raises(UnsupportedError, match=r"of \d groups?, as 'k.*retracted"):
                asked.result()[label].compute()
        with pytest.raises(UnsupportedError, match="not known to 6 digits"):
            asked.result().compute()
        with pytest.raises(UnsupportedError, match="as 'k1', is not known"):
            asked.lookup(["k6", "k1"])
        wanted = near.groupby("k").agg(**named)
        found = asked.result()[["n", "total"]].compute().sort_index()
        pd.testing.assert_frame_equal(found, wanted[["n", "total"]])
        assert asked.result()["total"].compute().to_dict() == wanted["total"].to_dict()
        assert asked.lookup("k6")["v"].tolist() == pytest.approx([7 / 3])
        if name == "loaded":
            asked.close()
            state.rebalance(workers=list(threads.scheduler_info()["workers"])[:1])
    # A group of which all rows went begins anew.
    state.retract(near)
    state.update(near)
    pd.testing.assert_frame_equal(state.result().compute().sort_index(), wanted)
    state.close()


def test_sums_whose_digits_went_with_retracted_rows_are_missed(threads, tmp_path):
    named = {"total": ("x", "sum"), "mean": ("x", "mean"), "n": ("x", "count")}
    keys = [f"k{number}" for number in range(8)]
    near = pd.DataFrame({"k": np.repeat(keys, 2), "x": [1.1, 2.5] * 8})
    far = [pd.DataFrame({"k": keys, "x": [size] * 7 + [1e9]}) for size in (1e40, 1e25)]
    state = DistributedGroupBy.build(near, "k", client=threads, **named)
    for rows in far:
        state.update(lazy(rows, 2))
    exact = pd.concat([near, *far]).groupby("k").agg(**named)
    pd.testing.assert_frame_equal(state.result().compute().sort_index(), exact)
    for rows in far:
        state.retract(rows)
    state.save(f"{tmp_path}/saved")
    loaded = DistributedGroupBy.load(f"{tmp_path}/saved", threads)
    state.rebalance(workers=list(threads.scheduler_info()["workers"])[:1])
    wanted = near.groupby("k").agg(**named)
    for each in (loaded, state):
        for label in ("total", "mean"):
            with pytest.raises(UnsupportedError, match=r"of \d groups?, as 'k.* were much larger"):
                each.result()[label].compute()
            with pytest.raises(UnsupportedError, match="as 'k3', is not known to 6 digits"):
                each.lookup(["k7", "k3"])
            assert each.lookup("k7")[label].tolist() == [wanted[label]["k7"]]
        assert each.result()["n"].compute().to_dict() == wanted["n"].to_dict()
    with pytest.raises(UnsupportedError, match=r"sum of 7 groups, as ('k\d', ){4}'k\d', is not"):
        state.result().compute()
    state.retract(near)
    state.update(near)
    pd.testing.assert_frame_equal(state.result().compute().sort_index(), wanted)
    loaded.close()
    state.close()


def test_labels_of_objects_stay_objects_in_every_partition(threads):
    frame = pd.DataFrame({"k": pd.Series(["1", "1", None], dtype=object), "x": [1, 2, 3]})
    for by in ("k", ["k", "x"]):
        with DistributedGroupBy.build(
            frame, by, client=threads, dropna=False, n=("x", "sum")
        ) as state:  # fmt: skip
            found = state.result()
            for part in [found._meta, *dask.compute(*found.to_delayed()), found.compute()]:
                assert part.index.get_level_values(0).dtype == object
            assert len(found) == (2 if by == "k" else 3)


@pytest.mark.parametrize("value", [pd.Timestamp("2020-01-01").as_unit("s"), "a", 1])
def test_objects_of_groups_stay_objects_in_every_partition(threads, value):
    frame = pd.DataFrame({"k": [1, 2], "v": pd.Series([value] * 2, dtype=object)})
    aggs = {how: ("v", how) for how in ("first", "last")}
    with DistributedGroupBy.build(frame, "k", client=threads, **aggs) as state:
        found = state.result()
        for part in [found._meta, *dask.compute(*found.to_delayed()), found.compute()]:
            assert set(part.dtypes) == {np.dtype(object)}
        assert found.compute()["last"].tolist() == [value] * 2


@pytest.mark.parametrize("how", ["sum", "mean", "var", "std"])
def test_sums_beyond_floats_change_nothing(threads, how):
    small = pd.DataFrame({"k": [1, 2], "x": [1.0, np.inf]})
    great = pd.DataFrame({"k": [1, 1], "x": [1e308, 1e308]})
    if how in {"var", "std"}:
        great["x"] = [1e200, -1e200]
    with pytest.raises(UnsupportedError, match="exceeds float64"):
        DistributedGroupBy.build(great, "k", out=("x", how), client=threads)
    with DistributedGroupBy.build(small, "k", out=("x", how), client=threads) as state:
        before = state.result().compute()
        with pytest.raises(UnsupportedError, match="exceeds float64"):
            state.update(great)
        with pytest.raises(UnsupportedError, match=r"\{'k': 1\}, or of their squares, exceeds"):
            state.update(lazy(great, 2))
        assert state.epoch == 1
        pd.testing.assert_frame_equal(state.result().compute(), before)
        # Infinite values have sums that are.
        state.update(great.iloc[:1].assign(k=2))
    # Where no rows can be taken off, sums are those of pandas.
    more = {"out": ("x", how), "most": ("x", "max")}
    with DistributedGroupBy.build(great, "k", client=threads, **more) as state:
        pd.testing.assert_frame_equal(state.result().compute(), great.groupby("k").agg(**more))
