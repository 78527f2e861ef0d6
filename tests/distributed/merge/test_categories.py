"""Merges of frames whose categories only the partitions know, beside pandas."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import date
from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.utils import clear_known_categories
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames.keys.categories import as_texts, as_values, together

pytestmark = pytest.mark.cluster


def with_unknown(frame: pd.DataFrame, parts: int, *columns: str) -> dd.DataFrame:
    """Return a lazy frame with categories in these columns, which Dask does not know."""
    cuts = np.linspace(0, len(frame), parts + 1).astype(int)
    pieces = [
        frame.iloc[start:stop].astype(dict.fromkeys(columns, "category"))
        for start, stop in itertools.pairwise(cuts)
    ]
    meta = clear_known_categories(pieces[0].iloc[:0], cols=list(columns))
    return dd.from_map(itself, pieces, meta=meta)


def itself(piece: pd.DataFrame) -> pd.DataFrame:
    return piece


@pytest.mark.parametrize(
    ("how", "kind"),
    [("inner", "int64"), ("left", "int64"), ("right", "int64"), ("outer", "int64"),
     ("semi", "int64"), ("outer", "float64"), ("outer", "str"), ("left", "datetime64[us]")],
)  # fmt: skip
def test_keys_and_columns(threads, how, kind):
    left = pd.DataFrame({"k": np.array([0, 1, 2, 3, 50, 51]), "x": np.arange(6)})
    right = pd.DataFrame({"k": np.array([0, 1, 2, 4, 90]), "y": [4, 5, 7, 7, 8]})
    left, right = left.astype({"k": kind}), right.astype({"k": kind}).assign(d=[1.5, 2, 3, 4, 5])
    merged = dgpuhash.merge(
        with_unknown(left, 3, "k"), with_unknown(right, 3, "k", "d"), how, on="k"
    )
    with no_other_engine():
        parts = dask.compute(*merged.to_delayed())
    dtypes = {str(part["k"].dtype.categories.dtype) for part in parts if len(part)}
    assert dtypes == {str(pd.Index(left["k"]).dtype)}
    # Dask puts categories of one dtype together.
    found = merged.compute()
    assert found.dtypes[["k", "d"] if "d" in found else ["k"]].eq("category").all()
    wanted = left[left["k"].isin(right["k"])] if how == "semi" else left.merge(right, how, "k")
    columns = list(wanted)
    pd.testing.assert_frame_equal(
        found.astype(wanted.dtypes.to_dict()).sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
    )


@pytest.mark.parametrize("cuts", [(1, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("theirs", [[], [1, 4]])
def test_labels_are_categories_in_every_partition(threads, cuts, theirs):
    """Also in those of labels of both sides, of which pandas makes no categories."""
    sides = []
    for number, labels in enumerate((theirs, [1, 2, 3])):
        frame = pd.DataFrame({f"c{number}": range(len(labels))}, pd.Index(labels, dtype="int64"))
        places = np.linspace(0, len(labels), cuts[number] + 1).astype(int)
        pieces = [frame.iloc[slice(*each)] for each in itertools.pairwise(places)]
        pieces = [each.set_axis(each.index.astype("category"), axis=0) for each in pieces]
        meta = clear_known_categories(pieces[0].iloc[:0])
        sides.append(dd.from_map(itself, pieces, meta=meta))
    merged = dgpuhash.merge(*sides, "outer", left_index=True, right_index=True)
    parts = dask.compute(*merged.to_delayed())
    assert {part.index.dtype.name for part in parts} == {merged._meta.index.dtype.name}
    assert sorted(label for part in parts for label in part.index) == sorted({*theirs, 1, 2, 3})


def test_numbers_of_two_types_are_equal(threads):
    left = pd.DataFrame({"k": [1, 2, 3], "x": [1, 2, 3]})
    right = pd.DataFrame({"k": [1.0, 2.5, 3.0], "y": [1, 2, 3]})
    merged = dgpuhash.merge(with_unknown(left, 2, "k"), with_unknown(right, 2, "k"), on="k")
    assert merged.compute()["x"].tolist() == [1, 3]


def test_keys_of_which_one_side_has_unknown_categories(threads):
    # Of each pair of types one side has them, by turns.
    for number, (keys, others) in enumerate((
        ([1, 2, 3], [1, 2, 4]), (["a", "b", "1"], ["a", "c", "1"]), ([1, 2, 3], [2.0, 2.5, 1.0]),
        ([1, 2, 3], [True, False, True]), ([b"a", b"b"], ["a", "b"]), ([1, 2, 3], [1, 2, 4]),
    )):  # fmt: skip
        left = pd.DataFrame({"k": pd.Series(keys), "x": range(len(keys))})
        right = pd.DataFrame({"k": pd.Series(others), "y": range(len(others))})
        lazily = dd.from_pandas(right, npartitions=2)
        equal = [(k, x, y) for x, k in enumerate(keys) for y, o in enumerate(others) if o == k]
        sides = [with_unknown(left, 2, "k"), lazily][:: -1 if number % 2 else 1]
        inner = dgpuhash.merge(*sides, on="k").compute()[["k", "x", "y"]]
        assert sorted(map(tuple, inner.to_numpy().tolist())) == sorted(equal)
        outer = dgpuhash.merge(*sides, "outer", on="k").compute()
        alone = {k: x for x, k in enumerate(keys) if k not in others}
        found = outer[outer["y"].isna()].set_index("k")["x"]
        assert found.to_dict() == alone
        assert set(map(type, found.index)) <= set(map(type, keys))


def test_unknown_categories_keep_their_values(threads):
    left = pd.DataFrame({"k": [1, 2, 3], "x": range(3)})
    for keys in ([1.0, 2.5, 3.0], ["1", "2", "3"], [True, False, True]):
        right = pd.DataFrame({"k": keys, "y": range(3)})
        merged = dgpuhash.merge(
            with_unknown(left, 2, "k"), with_unknown(right, 2, "k"), "outer", on="k"
        )
        with no_other_engine():
            found = merged.compute()
        alone = [each for each in left["k"].tolist() if each not in keys]
        others = [each for each in keys if each not in left["k"].tolist()]
        assert sorted(found.loc[found["y"].isna(), "k"]) == alone
        assert sorted(found.loc[found["x"].isna(), "k"]) == others


@pytest.mark.parametrize(
    ("values", "enabled"),
    [([b"a", b"", b"a", None], True), ([Decimal(1), None, Decimal(1), None], False),
     (pd.array([1, 2, 1, None]), False), (pd.array([True, False, True, None]), True),
     (pd.to_datetime(["2020", "2021", "2020", None]), False),
     (pd.interval_range(0.0, 3.0).append(pd.interval_range(0.0, 1.0)), True),
     (pd.array([date(2020, 1, 1), None, date(2020, 1, 1), None], "date32[day][pyarrow]"), True)],
    ids=["bytes", "decimal", "Int64", "boolean", "datetime", "interval", "date32"],
)  # fmt: skip
def test_partitions_whose_categories_are_none(threads, values, enabled):
    # One partition has no rows, and one nulls alone: they have categories of some dtype.
    right = pd.DataFrame({"k": [0, 1, 2, 0], "c": pd.Series(values)})
    null = right.iloc[3:].assign(k=[5], c=None)
    pieces = [right.iloc[:0], right.iloc[:3], null, right.iloc[3:]]
    pieces = [each.astype({"c": "category"}) for each in pieces]
    meta = clear_known_categories(pieces[0].iloc[:0], cols=["c"])
    lazily = dd.from_map(itself, pieces, meta=meta)
    left = dd.from_pandas(pd.DataFrame({"k": [0, 2, 7], "a": [1, 2, 3]}), npartitions=2)
    whole = pd.concat([right, null.astype(right.dtypes.to_dict())])
    texts = whole.assign(c=texts_of(whole["c"]))
    wanted = {
        how: left.compute().merge(texts, how, on="k")["c"].dropna() for how in ("left", "outer")
    }
    merge = dd.DataFrame.merge if enabled else dgpuhash.merge
    with dgpuhash.dask.enabled(fallback=False) if enabled else nullcontext():
        for how, values in wanted.items():
            found = merge(left, lazily, how, on="k").compute()["c"]
            assert found.dtype == "category"
            assert sorted(texts_of(found).dropna()) == sorted(values)
            # The same column as a key.
            by = {"left_on": "c", "right_on": "c"}
            found = merge(lazily, lazily.assign(k=1), how, **by).compute()
            theirs = texts.merge(texts.assign(k=1), how, **by)
            assert len(found) == len(theirs)
            assert sorted(texts_of(found["c"]).dropna()) == sorted(theirs["c"].dropna())


def texts_of(column: pd.Series) -> pd.Series:
    return column.astype(object).map(str, na_action="ignore")


def test_categories_of_another_type_than_those_of_the_first_partition(threads):
    parts = [pd.DataFrame({"k": pd.Categorical(each)}) for each in ([1, 2], [2.5, 3.0])]
    meta = clear_known_categories(parts[0].iloc[:0], cols=["k"])
    left = dd.from_map(itself, parts, meta=meta)
    merged = dgpuhash.merge(left, dd.from_pandas(pd.DataFrame({"v": [1]})), "cross")
    kept = dgpuhash.merge(left, left.assign(x=7, j=left["k"]), on="k")
    for each in (kept, kept["k"], kept[["x", "k"]]):
        with pytest.raises(ColumnError, match="float64 in a partition, and of int64"):
            each.compute()
    # Columns that are dropped need not agree.
    assert kept["x"].compute().tolist() == kept[["x"]].compute()["x"].tolist() == [7] * 4
    assert merged.npartitions == 2
    assert dgpuhash.merge(left.assign(k=left["k"].cat.as_known()), left, "semi", on="k")[
        "k"
    ].compute().astype(float).tolist() == [1, 2, 2.5, 3]


@pytest.mark.parametrize("first", ["empty", "float64", "object"])
@pytest.mark.parametrize("kind", ["int64", "str", "datetime64[us]"])
@pytest.mark.parametrize("how", ["left", "outer"])
def test_first_partitions_whose_categories_have_no_dtype(threads, how, kind, first):
    rows = pd.DataFrame({"k": np.arange(4), "x": np.arange(4)}).astype({"k": kind})
    pieces = [rows.iloc[:2].astype({"k": "category"}), rows.iloc[2:].astype({"k": "category"})]
    meta = clear_known_categories(pieces[0].iloc[:0], cols=["k"])
    # In place of an empty partition, Dask has its meta.
    null = pd.DataFrame({"k": pd.Series([None], dtype="float64" if first == "empty" else first)})
    pieces.insert(0, meta if first == "empty" else null.astype("category").assign(x=9))
    left = dd.from_map(itself, pieces, meta=meta)
    right = left.rename(columns={"x": "y"})
    with no_other_engine():
        found = dgpuhash.merge(left, right, how, on="k").compute().sort_values("x")
    assert found["x"].tolist() == found["y"].tolist() == [0, 1, 2, 3, 9][: 4 + (first != "empty")]
    assert found["k"].dtype.categories.dtype == kind
    assert found["k"].dropna().tolist() == rows["k"].tolist()


def test_groups_and_distinct_rows_of_unknown_categories(threads):
    keys = [[2**53 + 1, 1], [0.5, 2.0**53, 1.0], [True, None]]
    parts = [pd.DataFrame({"k": pd.Categorical(each), "x": len(each)}) for each in keys]
    meta = clear_known_categories(parts[0].iloc[:0], cols=["k"])
    lazily = dd.from_map(itself, parts, meta=meta)
    with no_other_engine():
        found = dgpuhash.groupby(lazily, "k")["x"].sum().compute()
    assert found.to_dict() == {2**53 + 1: 2, 1: 7, 0.5: 3, 2.0**53: 3}
    frame = pd.DataFrame({"k": [3, 1, 3, 2**53 + 1, 2**53, 1], "x": range(6)})
    rows = with_unknown(frame, 3, "k").dgpuhash.drop_duplicates("k").compute()
    assert sorted(zip(rows["k"], rows["x"], strict=True)) == [
        (1, 1), (3, 0), (2**53, 4), (2**53 + 1, 3),
    ]  # fmt: skip


def test_texts_that_stand_for_values():
    for values in (
        ["a", "\0i5", ""], [1, -2], [1.5, 2.0], [True, False], [pd.Timedelta(5), pd.Timedelta(7)],
        [pd.Timestamp("2026-01-01", tz="UTC"), pd.Timestamp(2026, 1, 2, nanosecond=3, tz="UTC")],
        [pd.Timestamp(2026, 1, 1).date()], [b"a", "a"], [Decimal("1.50"), 2],
    ):  # fmt: skip
        column = pd.Series(pd.Categorical([*values, None, values[0]]))
        texts = as_texts(column)
        assert texts.cat.categories.dtype == "str"
        back = as_values(texts)
        assert list(map(repr, back)) == list(map(repr, column))
        assert back.cat.codes.tolist() == column.cat.codes.tolist()
    with pytest.raises(KeyTypeError, match="holds a frozenset"):
        as_texts(pd.Series(pd.Categorical([frozenset([1])])))


def test_categories_together_are_not_rounded():
    found = together([pd.Index([2**53 + 1, 1]), pd.Index([0.5, 1.0]), pd.Index(["1"])])
    assert list(found) == [2**53 + 1, 1, 0.5, "1"]
    assert together([pd.Index([1, 2]), pd.Index([2, 3])]).dtype == "int64"
