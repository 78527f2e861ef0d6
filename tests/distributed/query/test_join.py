"""Joins against pandas, on clusters of threads and of processes."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of, joined, lazy, merged_lazily, wide_keys

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.errors import (
    ColumnError,
    DgpuhashError,
    KeyTypeError,
    OutOfMemoryError,
    ShapeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "semi", "anti"]


@pytest.mark.parametrize("how", HOWS)
def test_merge_equals_pandas(client, left, right, how):
    with DistributedIndex.build(lazy(right, 4), on="k", client=client) as index:
        merged = index.merge(lazy(left, 3), on="k", how=how)
        assert merged.npartitions == 3
        assert not merged.known_divisions
        result = merged.compute()
    wanted = joined(left, right, ["k"], how)
    assert_same(result, wanted)
    assert list(merged._meta.columns) == list(wanted.columns)
    assert merged._meta.dtypes.equals(wanted.dtypes)


def test_order_of_partitions_and_of_rows_in_them_is_kept(threads, left, right):
    parts = [left[:10], left[10:10], left[10:400], left[400:401], left[401:]]
    frame = dd.from_map(lambda number: parts[number], range(5), meta=left[:0])
    with DistributedIndex.build(lazy(right, 2), on="k", client=threads) as index:
        result = [part.compute() for part in index.merge(frame).partitions]
    for part, found in zip(parts, result, strict=True):
        assert_same(found, joined(part, right, ["k"], "inner"))


@pytest.mark.parametrize("how", HOWS)
def test_several_wide_keys(client, how):
    rng = np.random.default_rng(0)
    left, right = wide_keys(rng, 300), wide_keys(rng, 90)
    with DistributedIndex.build(lazy(right, 3), on=["city", "day"], client=client) as index:
        result = index.merge(lazy(left, 4), how=how).compute()
    assert_same(result, joined(left, right, ["city", "day"], how))


def test_left_on_suffixes_columns_and_accessor(client, left, right):
    renamed = left.rename(columns={"k": "key"})
    with DistributedIndex.build(lazy(right, 2), on="k", client=client) as index:
        result = lazy(renamed, 2).dgpuhash.merge(
            index, left_on="key", how="left", columns=["note"], suffixes=("", "_right")
        )
        found = result.compute()
    wanted = renamed.merge(
        right[["k", "note"]], left_on="key", right_on="k", how="left", suffixes=("", "_right")
    )
    assert_same(found, wanted)
    assert list(result.columns) == list(wanted.columns)


def test_columns_that_were_not_asked_for_are_not_stored(threads, right):
    with DistributedIndex.build(lazy(right, 2), on="k", columns=["y"], client=threads) as index:
        assert list(index.meta.columns) == ["k", "y"]
        assert list(index.lookup([50]).columns) == ["k", "y"]


def test_sources_of_all_kinds(threads):
    keys, values = np.arange(100), np.arange(100) * 3
    frame = pd.DataFrame({"k": keys, "v": values})
    delayed = dd.from_delayed([dask.delayed(frame[:50]), dask.delayed(frame[50:])], meta=frame[:0])
    for source in [frame, {"k": keys, "v": values}, delayed, lazy(frame, 3).persist()]:
        with DistributedIndex.build(source, on="k", client=threads) as index:
            assert len(index) == 100
            assert index.lookup([7])["v"].tolist() == [21]
    with DistributedIndex.build(keys, on="k", client=threads) as index:
        assert index.merge(frame, how="semi").compute()["v"].tolist() == values.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        pd.MultiIndex.from_tuples([(1, "a"), (2, "b"), (3, None)]),
        pd.Index(["a", None, "b"]),
        pd.DatetimeIndex(["2026-01-01", None, "2025-01-01"]),
    ],
)
def test_a_frame_of_the_client_is_merged_as_it_is(threads, right, labels):
    left = pd.DataFrame({"k": [41, 999, 47], "text": ["x", None, "z"]}, index=labels)
    # Dask would make other strings of its columns, and refuses such labels.
    convert = dask.config.set({"dataframe.convert-string": True})
    with convert, DistributedIndex.build(right, on="k", client=threads) as index:
        for how in HOWS:
            merged, wanted = index.merge(left, how=how), joined(left, right, ["k"], how)
            assert merged.dtypes["text"] == wanted.dtypes["text"]
            pd.testing.assert_frame_equal(merged.compute(), wanted)


def test_a_frame_of_the_client_is_merged_as_it_was(threads, right):
    left = pd.DataFrame({"k": [41, 42], "w": [1, 2]})
    wanted = joined(left, right, ["k"], "inner")
    with DistributedIndex.build(right, on="k", client=threads) as index:
        merged = index.merge(left)
        left["k"] = -1
        left.loc[:, "w"] = 0
        assert_same(merged.compute(), wanted)


@pytest.mark.parametrize("workers", [1, 5, 8])
def test_any_number_of_workers(workers, left, right):
    tiny = pd.DataFrame({"k": [41, 42, 42], "z": ["a", "b", "c"]})
    with (
        cluster_of(workers, processes=False) as client,
        DistributedIndex.build(lazy(right, 6), on="k", client=client) as index,
        DistributedIndex.build(lazy(tiny, 1), on="k", client=client) as few,
    ):
        assert len(index.stats()) == workers
        assert index.stats()["rows"].sum() == len(index) == 500
        both = few.merge(index.merge(lazy(left, 2), how="left"), how="left").compute()
    wanted = merged_lazily(merged_lazily(left, right, "left", on="k"), tiny, "left", on="k")
    assert_same(both, wanted)


def test_one_key_with_half_of_the_rows(threads):
    heavy = pd.DataFrame({"k": np.where(np.arange(4000) % 2, 7, np.arange(4000)), "v": range(4000)})
    probes = pd.DataFrame({"k": [6, 7, 8, 7, 4001]})
    with DistributedIndex.build(lazy(heavy, 5), on="k", client=threads) as index:
        found = index.merge(lazy(probes, 2), how="left").compute()
    assert_same(found, merged_lazily(probes, heavy, "left", on="k"))


@pytest.mark.parametrize("npartitions", [127, 130])
def test_many_partitions_some_of_them_empty(threads, npartitions, left):
    cuts = np.sort(np.random.default_rng(3).integers(0, 600, npartitions - 1))
    ends = np.concatenate([[0], cuts, [600]])
    rows = pd.DataFrame({"k": np.arange(600) % 150, "v": np.arange(600)})
    frame = dd.from_map(
        lambda number: rows[ends[number] : ends[number + 1]], range(npartitions), meta=rows[:0]
    )
    probes = left.dropna().astype({"k": "int64"})
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        result = index.merge(lazy(probes, npartitions)).compute()
    assert_same(result, probes.merge(rows, on="k"))


def test_an_index_of_no_rows(client, left, right):
    with DistributedIndex.build(lazy(right[:0], 1), on="k", client=client) as index:
        assert len(index) == 0
        assert_same(index.merge(lazy(left, 2), how="anti").compute(), left)
        wanted = left.merge(right[:0], on="k", how="left")
        found = index.merge(lazy(left, 2), how="left").compute()
        assert list(found.columns) == list(wanted.columns)
        assert found["y"].isna().all()


def test_messages_in_pieces(threads, monkeypatch, left, right):
    monkeypatch.setitem(dask.config.get("dgpuhash.exchange"), "message", 64)
    with DistributedIndex.build(lazy(right, 3), on="k", client=threads) as index:
        result = index.merge(lazy(left, 2), how="left").compute()
    assert_same(result, merged_lazily(left, right, "left", on="k"))


def test_graphs_are_deterministic_and_small(threads, left, right):
    with DistributedIndex.build(lazy(right, 2), on="k", client=threads) as index:
        frame = lazy(left, 2)
        assert index.merge(frame)._name == index.merge(frame)._name
        assert index.merge(frame)._name != index.merge(frame, how="left")._name
        before = index.merge(frame)._name
        index.insert(right[:1])
        assert index.merge(frame)._name != before
        merged = index.merge(lazy(left[["k", "x"]], 2))
        assert merged[["y"]].compute()["y"].notna().all()
        assert len(merged) == len(left.merge(pd.concat([right, right[:1]]), on="k"))


def test_bad_requests(threads, left, right):
    with pytest.raises(ColumnError, match="missing"):
        DistributedIndex.build(lazy(right, 2), on="missing", client=threads)
    with pytest.raises(ColumnError, match="nothing"):
        DistributedIndex.build(lazy(right, 2), on="k", columns=["nothing"], client=threads)
    with pytest.raises(UnsupportedError, match="dictionary"):
        DistributedIndex.build(np.arange(3), on=["a", "b"], client=threads)
    with pytest.raises(ColumnError, match="unique"):
        DistributedIndex.build(lazy(right, 2), on="k", unique=True, client=threads, name="twice")
    with pytest.raises(UnsupportedError, match="different addresses"):
        DistributedIndex.build(right, on="k", client=threads, workers=["tcp://nowhere:1"])
    with DistributedIndex.build(lazy(right, 2), on="k", client=threads, name="twice") as index:
        with pytest.raises(SpecError, match="twice"):
            DistributedIndex.build(lazy(right, 2), on="k", client=threads, name="twice")
        with pytest.raises(UnsupportedError, match=r"dgpuhash\.merge"):
            index.merge(lazy(left, 2), how="cross")
        with pytest.raises(UnsupportedError, match="use one of"):
            index.merge(lazy(left, 2), how=["inner"])
        with pytest.raises(SpecError, match="name=5"):
            DistributedIndex.open(5, threads)
        with pytest.raises(ColumnError):
            index.merge(lazy(left[["x"]], 2))
        with pytest.raises(KeyTypeError):
            index.merge(lazy(left.assign(k="text"), 2))
        with pytest.raises(ColumnError, match="y"):
            index.insert(right[["k"]])
        for options in ({"on": [["k"]]}, {"left_on": left["k"]}, {"columns": 5}):
            with pytest.raises(ColumnError):
                index.merge(left, **options)


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ({"data": None}, ShapeError, "NoneType"),
        ({"data": {"k": 5}}, ShapeError, "'k' is a int"),
        ({"data": [dask.delayed(pd.DataFrame)()]}, UnsupportedError, "from_delayed"),
        ({"name": 5}, SpecError, "name=5"),
        ({"name": ""}, SpecError, "non-empty"),
        ({"unique": "yes"}, SpecError, "True, False or None"),
        ({"unique": np.ones(2, bool)}, SpecError, "True, False or None"),
        ({"on": {"k"}}, ColumnError, r"a set .*not a label.*'k'"),
        ({"on": [["k"]]}, ColumnError, "a list of them"),
        ({"on": pd.Series(["k"])}, ColumnError, "a list of them"),
        ({"columns": 5}, ColumnError, r"no column \[5\]"),
        ({"data": {"k": {1, 2}}}, ShapeError, "'k' is a set"),
        ({"data": da.ones((4, 2))}, ShapeError, "give a flat one"),
        ({"workers": []}, UnsupportedError, "different addresses"),
        ({"workers": ["a", "a"]}, UnsupportedError, "different addresses"),
        ({"workers": "tcp://10.0.0.1:99"}, UnsupportedError, "give a list"),
        ({"workers": 2}, UnsupportedError, "give a list"),
        ({"durable": "nosuch://place"}, SpecError, "Protocol not known.*give a path"),
        ({"client": "tcp://10.0.0.1:99"}, UnsupportedError, "not a Dask client"),
    ],
)
def test_bad_builds(threads, right, options, error, hint):
    before = threads.list_datasets()
    with pytest.raises(error, match=hint):
        DistributedIndex.build(**{"data": right, "on": "k", "client": threads} | options)
    workers = list(threads.nthreads())
    with pytest.raises(UnsupportedError, match="different addresses"):
        DistributedIndex.build(right, on="k", client=threads, workers=workers + workers[:1])
    assert threads.list_datasets() == before


def test_a_task_that_runs_out_of_memory_changes_nothing(threads, right):
    def full(part):
        raise MemoryError("on purpose")

    wide = lazy(right, 2).map_partitions(full, meta=right[:0])
    said = "ran out of memory: on purpose; free memory, or process fewer rows at once"
    with pytest.raises(OutOfMemoryError, match=said):
        DistributedIndex.build(wide, on="k", client=threads)
    with DistributedIndex.build(right, on="k", client=threads) as index:
        for change in (index.insert, index.erase):
            with pytest.raises(OutOfMemoryError, match=said):
                change(wide)
        assert len(index) == len(right)


def test_a_merge_without_memory_says_so(threads, left, right, monkeypatch):
    def full(*arguments):
        raise MemoryError("on purpose")

    with DistributedIndex.build(right, on="k", client=threads) as index:
        for step in ("asking", "put_together"):
            with monkeypatch.context() as patch:
                patch.setattr(Probe, step, full)
                with pytest.raises(OutOfMemoryError, match="merge ran out of memory: on purpose"):
                    index.merge(lazy(left, 2)).compute()
        assert_same(index.merge(lazy(left, 2)).compute(), joined(left, right, ["k"], "inner"))


def test_what_is_no_frame_or_no_index_is_refused(threads, left, right):
    with DistributedIndex.build(right, on="k", client=threads) as index:
        for series in (left["k"], lazy(left, 2)["k"], None):
            with pytest.raises(UnsupportedError, match="cannot be merged"):
                index.merge(series)
        with pytest.raises(TypeError, match="Series or DataFrame"):
            lazy(left, 2).dgpuhash.merge([right])
        for url in (None, 5):
            with pytest.raises(SpecError, match="give a path"):
                index.save(url)
            with pytest.raises(SpecError, match="give a path"):
                DistributedIndex.load(url, threads)
        with pytest.raises(SpecError, match="give the name"):
            DistributedIndex.open(None, threads)
        with pytest.raises(SpecError, match="use True or False"):
            index.merge(left, persist="no")


def test_arrays_with_fields_are_refused(threads):
    pairs = np.zeros(10, [("k", "i8"), ("v", "f8")])
    for array in (da.from_array(pairs, 5), pairs):
        with pytest.raises(DgpuhashError):
            DistributedIndex.build(array, on="k", client=threads)
    with pytest.raises(UnsupportedError, match=r"\['k', 'v'\].*an array for each field"):
        DistributedIndex.build(da.from_array(pairs, 5), on="k", client=threads)


def test_the_name_of_the_columns_is_saved(threads, right, tmp_path):
    rows = right.rename_axis(columns="what")
    with DistributedIndex.build(rows, on="k", client=threads) as index:
        index.save(str(tmp_path / "named"))
    with DistributedIndex.load(str(tmp_path / "named"), threads) as index:
        assert index.meta.columns.name == "what"


def test_a_value_that_fits_no_key_column_fails_the_build_and_leaves_nothing(threads):
    rows = pd.DataFrame({"k": [1.0, None], "v": [1, 2]})
    frame = dd.from_map(lambda part: rows, [0], meta=rows.astype({"k": "int64"}, errors="ignore"))
    frame = dd.from_map(lambda part: rows, [0], meta=pd.DataFrame({"k": [1], "v": [1]})[:0])
    with pytest.raises(KeyTypeError, match="nullable"):
        DistributedIndex.build(frame, on="k", client=threads, name="nothing")
    from dgpuhash.distributed.partition.registry import Registry

    assert "nothing" not in Registry(threads).names()


def test_integers_that_floats_would_round_are_refused_and_nothing_is_lost(client, right):
    exact = right.assign(x=2**53 + 1 + 2 * np.arange(len(right)))
    with DistributedIndex.build(lazy(exact, 3), on="k", client=client) as index:
        with pytest.raises(ColumnError, match="'x' holds integers such as"):
            index.insert(right[:50].assign(x=0.5))
        index.insert(exact[:5])
        left = exact[["k"]].drop_duplicates()
        found = index.merge(lazy(left, 2)).compute()
    wanted = joined(left, pd.concat([exact, exact[:5]]), ["k"], "inner")
    assert_same(found, wanted)
