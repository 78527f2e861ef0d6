"""Dtypes that differ between partitions or shards: refused, or one dtype."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import assert_same, joined, merged_lazily

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import ColumnError

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["distributed", "independent", "replicated"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def partitions(*frames: pd.DataFrame) -> dd.DataFrame:
    """Return a Dask DataFrame of frames, with the meta of the first one."""
    return dd.from_map(lambda frame: frame, frames, meta=frames[0][:0])


def test_large_integers_and_floats_do_not_meet_on_any_worker(threads, mode, tmp_path):
    """Read together they would be floats, of which one is another number."""
    large = pd.DataFrame({"k": [1], "v": [2**60 + 1]})
    with DistributedIndex.build(large, on="k", mode=mode) as index:
        for key in range(2, 12):
            with pytest.raises(ColumnError, match=f"{2**60 + 1}, which would be rounded"):
                index.insert(pd.DataFrame({"k": [key], "v": [0.5]}))
        assert index.lookup([1])["v"].tolist() == [2**60 + 1]
    floats = pd.DataFrame({"k": [1], "v": [7]})
    with DistributedIndex.build(floats, on="k", mode=mode, durable=tmp_path / "log") as index:
        index.insert(pd.DataFrame({"k": [2], "v": [0.5]}))
        for key in range(3, 12):
            # Rows of the client and those that lie on workers.
            rows = pd.DataFrame({"k": [key], "v": [2**60 + 1]})
            for given in (rows, dd.from_pandas(rows, npartitions=1).persist()):
                with pytest.raises(ColumnError, match=f"{2**60 + 1}, which would be rounded"):
                    index.insert(given)
            index.insert(rows.assign(v=2**60))
        with DistributedIndex.load(tmp_path / "log") as loaded:
            assert sorted(loaded.lookup([1, 2, 5])["v"].tolist()) == [0.5, 7, 2**60]
        index.erase([2])
        assert len(index) == 10


def test_partitions_of_large_integers_and_floats_make_no_index(threads, mode):
    frames = [
        pd.DataFrame({"k": range(40), "v": [2**60 + key for key in range(40)]}),
        pd.DataFrame({"k": range(50, 90), "v": [key / 2 for key in range(40)]}),
    ]
    with pytest.raises(ColumnError, match="which would be rounded"):
        DistributedIndex.build(partitions(*frames), on="k", mode=mode)


def test_partitions_without_rows_have_whatever_dtypes(threads, right, left, mode):
    """As a reader has that finds none."""

    def empty(frame):
        return pd.DataFrame(columns=frame.columns)

    with DistributedIndex.build(partitions(right, empty(right)), on="k", mode=mode) as index:
        probes = partitions(left, empty(left))
        for how in ("inner", "left"):
            wanted = merged_lazily(left, right, how, on="k")
            for persist in (False, True):
                assert_same(index.merge(probes, how=how, persist=persist).compute(), wanted)
        assert_same(index.merge(probes, how="anti").compute(), joined(left, right, ["k"], "anti"))
        nothing = empty(right)
        assert index.contains(nothing).tolist() == [] and len(index.lookup(nothing[["k"]])) == 0
        assert index.insert(partitions(right, empty(right))) == len(right)
        assert index.erase(partitions(right[["k"]], empty(right[["k"]]))) == 2 * len(right)


def test_categories_stay_in_their_order(threads, mode):
    order = pd.CategoricalDtype(["low", "high"], ordered=True)
    keys = pd.Series(range(20))
    rows = pd.DataFrame({"k": keys, "v": pd.Series(["low", "high"] * 10, dtype=order)})
    with DistributedIndex.build(rows, on="k", mode=mode) as index:
        for categories in (["high", "none"], ["high", "low"], ["low", "high", "more"]):
            added = pd.Categorical(["high"], categories, ordered=True)
            index.insert(pd.DataFrame({"k": [100], "v": added}))
        with pytest.raises(ColumnError, match=r"as_unordered"):
            index.insert(pd.DataFrame({"k": [100], "v": pd.Categorical(["more"])}))
        left = dd.from_pandas(pd.DataFrame({"k": [*range(20), 100]}), npartitions=21)
        found = index.merge(left).compute()["v"]
        assert found.dtype == order
        assert found.tolist() == ["low", "high"] * 10 + ["high"] * 3


@pytest.mark.parametrize("verb", ["build", "insert", "erase", "lookup", "merge"])
def test_types_of_which_pandas_takes_no_rows(threads, verb):
    views = pd.arrays.ArrowExtensionArray(pa.array(["a", None], pa.string_view()))
    stuck = pd.DataFrame({"k": pd.Series(views), "v": [1, 2]})
    stored = stuck.assign(k=pd.Series(["a", None], dtype="str"))
    with DistributedIndex.build(stored, on="k", client=threads) as index:
        with pytest.raises(ColumnError, match=r"cannot gather rows of .*'k': 'string_view"):
            index.build(stuck, on="k") if verb == "build" else getattr(index, verb)(stuck)
        assert len(index) == 2


def nullable(values: list, dtype: str) -> pd.Series:
    """Return floats of which None is null, and NaN a value if possible.

    It is possible if the dtype has both.
    """
    nulls = np.array([value is None for value in values])
    floats = np.array([np.nan if value is None else value for value in values])
    if dtype == "float64":
        return pd.Series(floats)
    if dtype == "Float64":
        return pd.Series(pd.arrays.FloatingArray(floats, nulls))
    array = pa.array(floats, mask=nulls)
    return pd.Series(pd.array(array, dtype=pd.ArrowDtype(pa.float64())))


@pytest.mark.parametrize("stored", ["float64", "Float64", "double[pyarrow]"])
def test_nan_and_null_are_one_key_or_two_as_in_pandas(threads, mode, stored, tmp_path):
    values = [np.nan, None, 1.0, 2.0]
    right = pd.DataFrame({"k": nullable(values * 2, stored), "y": range(8)})
    with DistributedIndex.build(partitions(right[:3], right[3:]), on="k", mode=mode) as index:
        index.save(tmp_path / "save")
        with DistributedIndex.load(tmp_path / "save") as loaded:
            for asked in ("float64", "Float64", "double[pyarrow]"):
                left = pd.DataFrame({"k": nullable(values, asked), "x": range(4)})
                wanted, kept = left.merge(right, on="k"), left.merge(right, on="k")["x"]
                for one in (index, loaded):
                    found = one.merge(partitions(left[:1], left[1:])).compute()
                    assert_same(found, wanted)
                    assert one.contains(left).tolist() == left["x"].isin(kept).tolist()
        left = pd.DataFrame({"k": nullable(values, stored)[:1]})
        wanted = len(left.merge(right, on="k"))
        assert index.erase(left) == wanted and len(index) == 8 - wanted


def test_objects_of_nulls_alone_are_of_the_type_of_the_index(threads, mode):
    """Wherever partitions are cut."""
    moments = pd.to_datetime(["2020-01-01", None, "2020-01-02"])
    right = pd.DataFrame({"k": moments, "y": [1.0, 2.0, 3.0]})
    nothing = pd.DataFrame(columns=["k", "x"])
    nulls = pd.DataFrame({"k": pd.Series([pd.NaT, None], dtype=object), "x": [1, 2]})
    with DistributedIndex.build(right, on="k", mode=mode) as index:
        for how, rows in {"inner": 0, "left": 0, "semi": 0, "anti": 0}.items():
            for left in (nothing, dd.from_pandas(nothing, npartitions=1)):
                assert len(index.merge(left, how=how).compute()) == rows
        for left in (nulls, dd.from_pandas(nulls, npartitions=2)):
            assert index.merge(left).compute()["y"].tolist() == [2.0, 2.0]
            assert index.merge(left, persist=True).compute()["x"].tolist() == [1, 2]
        assert index.contains(nulls).tolist() == [True, True]
        index.insert(nothing.rename(columns={"x": "y"}))
        index.insert(partitions(right[:1], nulls.rename(columns={"x": "y"})))
        assert len(index) == 6 and index.erase(nulls) == 3


class Trips(pd.DataFrame):
    """Subclass of DataFrame, written as pandas' documentation has it."""

    @property
    def _constructor(self):
        return Trips


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_results_are_of_the_class_of_the_left_partitions(threads, how):
    right = pd.DataFrame({"k": range(9), "y": range(9)})
    with DistributedIndex.build(right, on="k") as index:
        # Dask gives equal frames of both classes one name, and so one of them for both.
        for left in (right[["k"]], Trips({"k": range(1, 10)})):
            for given in (left, partitions(left[:4], left[4:]).persist()):
                for persist in (False, True):
                    merged = index.merge(given, how=how, persist=persist)
                    found = merged.partitions[0].compute()
                    assert type(found) is type(merged._meta) is type(left)
            assert type(index.lookup(left)) is type(left)
