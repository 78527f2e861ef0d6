"""Merges of Dask frames whose stored side turns out to be small, beside pandas."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import assert_no_value_is_rounded, assert_same_rows, free_run_after, lazy
from gate import Gate, read_halfway
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.ingest import shuffle_tasks
from dgpuhash.distributed.merge import tasks
from dgpuhash.distributed.query import fetch
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames.merge.keys import MergeError

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(4)
LEFT = pd.DataFrame({"k": RANDOM.integers(0, 12, 40), "a": np.arange(40)})
LEFT["t"] = "t" + LEFT["k"].astype("str")
RIGHT = pd.DataFrame({"k": [3, 11, 5, 7, 1, 20, 5], "b": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]})
RIGHT["t"] = "t" + RIGHT["k"].astype("str")


@pytest.fixture(autouse=True)
def few_rows_get_shards() -> None:
    """They do not, here."""


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """Return the numbers of the partitions that are sent to owners."""
    found: list[int] = []

    def counted(frame: Any, change: Any, partition: int, arrival: int) -> Any:
        found.append(partition)
        return shuffle_tasks.shuffle_partition(frame, change, partition, arrival)

    monkeypatch.setattr(tasks, "shuffle_partition", counted)
    return found


def rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    columns = sorted(frame.columns)
    values = frame[columns].astype(object)
    return sorted(map(tuple, values.where(values.notna(), -1).to_numpy().tolist()), key=repr)


@pytest.mark.parametrize("on", [["k"], ["t"], ["k", "t"]])
@pytest.mark.parametrize("how", ["inner", "left", "right", "semi", "anti"])
def test_rows_are_those_of_pandas(threads, sent, on, how):
    right = RIGHT.drop(columns=[label for label in ("k", "t") if label not in on])
    with no_other_engine():
        found = dgpuhash.merge(lazy(LEFT, 4), lazy(right, 3), how, on=on).compute()
    if how in ("semi", "anti"):
        there = LEFT["k"].isin(RIGHT["k"])
        wanted = LEFT[there if how == "semi" else ~there]
        pd.testing.assert_frame_equal(found.sort_index(), wanted)
    else:
        assert rows(found) == rows(LEFT.merge(right, how, on=on))
    assert sent == []
    assert not any(plugin_of(each).shards._shards for each in threads.cluster.workers.values())


def test_rows_of_the_left_side_keep_their_order(threads, sent):
    found = dgpuhash.merge(lazy(LEFT, 4), lazy(RIGHT, 3), "left", on="k").compute()
    wanted = LEFT.merge(RIGHT, "left", on="k")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)


def test_membership(threads, sent):
    found = lazy(LEFT, 4).dgpuhash.isin(lazy(RIGHT, 3), on="k").compute()
    assert found.tolist() == LEFT["k"].isin(RIGHT["k"]).tolist()
    assert sent == []


def test_nulls_labels_and_no_rows(threads, sent):
    left = LEFT.astype({"k": "Int64"})
    left.loc[::5, "k"] = None
    right = pd.DataFrame({"k": pd.Series([1, None, 7], dtype="Int64"), "b": [1, 2, 3]})
    for equal in (True, False):
        found = dgpuhash.merge(lazy(left, 3), lazy(right, 2), on="k", nulls_equal=equal).compute()
        assert rows(found) == rows(left.merge(right if equal else right.dropna(), on="k"))
        found = dgpuhash.merge(lazy(left, 3), lazy(right, 2), "anti", on="k", nulls_equal=equal)
        there = left["k"].isin([1, 7]) | (left["k"].isna() & equal)
        assert found.compute()["a"].tolist() == left["a"][~there].tolist()
    labelled = RIGHT.set_index("k")[["b"]]
    found = dgpuhash.merge(lazy(LEFT, 4), lazy(labelled, 2), left_on="k", right_index=True)
    assert rows(found.compute()) == rows(LEFT.merge(labelled, left_on="k", right_index=True))
    none = lazy(RIGHT, 3)
    none = none[none["k"] > 99]
    assert len(dgpuhash.merge(lazy(LEFT, 4), none, on="k").compute()) == 0
    kept = dgpuhash.merge(lazy(LEFT, 4), none, "left", on="k").compute()
    assert kept["a"].tolist() == LEFT["a"].tolist()
    assert sent == []


def test_all_rows_are_sent_where_those_of_one_partition_are_many(threads, sent):
    right = pd.DataFrame({"k": np.r_[np.arange(500), 3, 4], "b": np.arange(502)})
    stored = lazy(right, 1).repartition(divisions=[0, 499, 501])
    with dask.config.set({"dgpuhash.placement.replicate": "1 KiB"}):
        found = dgpuhash.merge(lazy(LEFT, 4), stored, on="k").compute()
    assert sorted(sent) == [0, 1]
    assert rows(found) == rows(LEFT.merge(right, on="k"))


def test_merges_that_tell_of_stored_rows_have_shards(threads, sent):
    found = dgpuhash.merge(lazy(LEFT, 4), lazy(RIGHT, 3), "outer", on="k").compute()
    assert rows(found) == rows(LEFT.merge(RIGHT, "outer", on="k"))
    assert sorted(sent) == [0, 1, 2]
    none = lazy(RIGHT, 3)
    found = dgpuhash.merge(lazy(LEFT, 4), none[none["k"] > 99], "outer", on="k").compute()
    assert sorted(found["a"]) == LEFT["a"].tolist()
    with pytest.raises(MergeError, match="not unique in right"):
        dgpuhash.merge(lazy(LEFT, 2), lazy(RIGHT, 2), on="k", validate="m:1").compute()


@pytest.mark.parametrize("parts", [1, 2])
def test_a_result_without_place(threads, monkeypatch, parts):
    many = pd.DataFrame({"k": np.zeros(50, "int64"), "v": np.arange(50)})
    merged = dgpuhash.merge(lazy(many, 2), lazy(many, parts), on="k")
    monkeypatch.setattr(fetch, "MOST_ROWS", 1249)
    with pytest.raises(OutOfMemoryError, match=r"1,250 rows.*place for 1,249 rows; use finer"):
        merged.compute()


def test_partitions_of_other_dtypes(threads, sent):
    assert_no_value_is_rounded()
    assert sent == []


def test_shards_that_were_freed_are_made_anew(threads, sent, tmp_path):
    # The last partition is put when shards with others are gone.
    gate = Gate(tmp_path)
    left, right = (pd.DataFrame({"k": np.arange(n) % 50, "v": np.arange(n)}) for n in (300, 90))
    with dask.config.set({"dgpuhash.placement.replicate": "1 B"}):
        merged = dgpuhash.merge(lazy(left, 2), read_halfway(right, 3, gate, 2), on="k")
    with gate.opened_after(partial(free_run_after, threads, "dgpuhash_put")):
        assert_same_rows(merged.compute(), left.merge(right, on="k"))
    assert len(sent) > 3


@pytest.mark.parametrize("keep", ["first", "last", False])
@pytest.mark.parametrize("subset", [["k"], ["t"], ["k", "t"], None])
def test_distinct_rows_that_are_few_are_in_the_first_hash_range(threads, sent, keep, subset):
    found = lazy(LEFT, 3).dgpuhash.drop_duplicates(subset, keep=keep, npartitions=2)
    first, second = (found.partitions[number].compute() for number in range(2))
    pd.testing.assert_frame_equal(first, LEFT.drop_duplicates(subset, keep=keep))
    assert not sent and second.equals(first.iloc[:0])
    pd.testing.assert_frame_equal(found.compute(), first)


def test_distinct_rows_that_are_many_are_sent(threads, sent):
    with dask.config.set({"dgpuhash.placement.replicate": 100}):
        found = lazy(LEFT, 3).dgpuhash.drop_duplicates("k").compute()
    assert set(sent) == {0, 1, 2}
    pd.testing.assert_frame_equal(found.sort_index(), LEFT.drop_duplicates("k"))
