"""Merges of a Dask frame with one of one partition, which workers get whole, beside pandas."""

from __future__ import annotations

import gc

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.merge import broadcast
from dgpuhash.distributed.merge.broadcast import BroadcastExpr, KnownKeys, keys_of
from dgpuhash.distributed.runs.run import Runs
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames.merge.keys import MergeError

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(3)
LEFT = pd.DataFrame({"k": RANDOM.integers(0, 12, 40), "a": np.arange(40)})
LEFT["t"] = "t" + LEFT["k"].astype("str")
RIGHT = pd.DataFrame({"k": [3, 11, 5, 7, 1, 20], "b": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]})
RIGHT["t"] = "t" + RIGHT["k"].astype("str")
TWICE = pd.concat([RIGHT, RIGHT.assign(b=0.0)], ignore_index=True)


def begun(dask_scheduler):
    return set(dask_scheduler.plugins[Runs.name]._begun)


def computed(left: pd.DataFrame, right: pd.DataFrame, parts: tuple[int, int], **how: object):
    with no_other_engine():
        merged = dgpuhash.merge(lazy(left, parts[0]), lazy(right, parts[1]), **how)
        assert list(merged.optimize(fuse=False).expr.find_operations(BroadcastExpr))
        return merged.compute()


@pytest.mark.parametrize("right", [RIGHT, TWICE, RIGHT.iloc[:0]], ids=["once", "twice", "none"])
@pytest.mark.parametrize("on", [["k"], ["t"], ["k", "t"]])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_are_those_of_pandas_in_order(threads, right, on, how):
    others = [label for label in ("k", "t") if label not in on]
    right = right.drop(columns=others)
    found = computed(LEFT, right, (4, 1), on=on, how=how)
    wanted = LEFT.merge(right, on=on, how=how)
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)


@pytest.mark.parametrize("how", ["inner", "right"])
def test_the_side_of_many_partitions_gives_the_order(threads, how):
    found = computed(TWICE, LEFT, (1, 4), on="k", how=how)
    wanted = LEFT.merge(TWICE, on="k", how="left" if how == "right" else how)
    assert found["a"].tolist() == wanted["a"].tolist()
    assert found["b"].fillna(-1).tolist() == wanted["b"].fillna(-1).tolist()


def test_nulls_and_other_dtypes(threads):
    left = LEFT.astype({"k": "Int64"})
    left.loc[::5, "k"] = None
    right = pd.DataFrame({"k": pd.Series([1, None, 7], dtype="Int64"), "b": [1, 2, 3]})
    for equal in (True, False):
        found = computed(left, right, (3, 1), on="k", nulls_equal=equal)
        kept = right if equal else right.dropna()
        wanted = left.merge(kept, on="k")
        assert found[["a", "b"]].to_numpy().tolist() == wanted[["a", "b"]].to_numpy().tolist()


def test_labels_of_an_index(threads):
    right = RIGHT.set_index("k")[["b"]]
    found = computed(LEFT, right, (4, 1), left_on="k", right_index=True, how="left")
    wanted = LEFT.merge(right, left_on="k", right_index=True, how="left")
    pd.testing.assert_frame_equal(found, wanted)


def test_keys_are_known_as_long_as_their_frame_is_there(threads):
    plan = dgpuhash.merge(lazy(LEFT, 4), lazy(TWICE, 1), on="k").expr.plan
    known, frame = KnownKeys(), TWICE.copy()

    def made():
        return keys_of(plan.stored(TWICE), plan, 10)

    keys = known.of(frame, "merge", made)
    assert known.of(frame, "merge", made) is keys
    assert known.of(frame, "another", made) is not keys
    assert known.of(frame.copy(), "merge", made) is not keys
    assert len(known) == 2
    del frame
    gc.collect()
    assert len(known) == 0


def test_keys_that_are_to_be_unique(threads):
    with pytest.raises(MergeError, match="not unique in right"):
        dgpuhash.merge(lazy(LEFT, 2), lazy(TWICE, 1), on="k", validate="m:1").compute()


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_small_side_is_read_once_and_all_else_is_fused(threads, how):
    many = dd.from_map(lambda start: LEFT.iloc[start : start + 10], range(0, 40, 10))
    small = dd.from_map(lambda _: RIGHT, [0])
    merged = dgpuhash.merge(many[many["a"] % 3 > 0], small[small["b"] < 6], how, on="k")
    optimized = merged[["k", "a"]].optimize()
    assert len(optimized.dask) == 4 + 1
    wanted = LEFT[LEFT["a"] % 3 > 0]
    kept = RIGHT[RIGHT["b"] < 6]
    met = wanted["k"].isin(kept["k"])
    if how != "left":
        wanted = wanted[~met if how == "anti" else met]
    assert optimized.compute()["a"].tolist() == wanted["a"].tolist()


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti", "left_anti", "cross"])
def test_workers_fetch_copies_where_they_lie(threads, how):
    many = dd.from_map(lambda start: LEFT.iloc[start : start + 10], range(0, 40, 10))
    few = dd.from_map(lambda start: TWICE.iloc[start : start + 4], range(0, 12, 4))
    on = {} if how == "cross" else {"on": "k"}
    build = "auto" if how == "cross" else "replicate"
    merged = dgpuhash.merge(many, few[["k", "b"]], how, build=build, **on)
    optimized = merged.optimize()
    assert len(optimized.dask) == 4 + 3
    before = threads.run_on_scheduler(begun)
    with no_other_engine():
        found = optimized.compute()
    assert threads.run_on_scheduler(begun) == before
    if how in ("semi", "anti"):
        wanted = LEFT[LEFT["k"].isin(TWICE["k"]) == (how == "semi")]
    else:
        wanted = LEFT.merge(TWICE[["k", "b"]], how, **on)
    columns = list(wanted)
    pd.testing.assert_frame_equal(
        found.sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


@pytest.mark.parametrize(
    "given", [{"how": "outer"}, {"validate": "m:m"}, {"validate": "1:m"}], ids=str
)
def test_copies_beside_rows_that_shards_alone_tell(threads, given):
    ours, theirs = LEFT.drop_duplicates("k"), TWICE[["k", "b"]]
    merged = dgpuhash.merge(lazy(ours, 3), lazy(theirs, 2), on="k", build="replicate", **given)
    told = merged.dgpuhash.explain()
    assert ("replicated" in told) == (given == {"validate": "m:m"})
    found, wanted = merged.compute(), ours.merge(theirs, on="k", **given)
    assert found["b"].sum() == wanted["b"].sum() and len(found) == len(wanted)


def test_copies_that_are_too_large_are_refused(threads, monkeypatch):
    merged = dgpuhash.merge(lazy(LEFT, 3), lazy(TWICE, 2), on="k", build="replicate")
    limits = {worker["memory_limit"] for worker in threads.scheduler_info(-1)["workers"].values()}
    # Together they are too large, and not each by itself.
    monkeypatch.setattr(broadcast, "COPY_SHARE", max(limits) // 150)
    with pytest.raises(OutOfMemoryError, match=r"a copy of \d+ bytes, .* leave build= out"):
        merged.compute()
