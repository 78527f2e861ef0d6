"""Dask frames by keys of Python objects, bytes and decimals, beside pandas with all rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.frames.dataframes import frames_named

pytestmark = pytest.mark.cluster

DAY = pd.Timestamp("2020-01-01")
DECIMAL = pd.ArrowDtype(pa.decimal128(6, 2))


def obj(*values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=object)


# The keys of each partition of a frame.
OBJECTS: dict[str, list[pd.Series]] = {
    "dates": [obj(dt.date(2020, 1, 1), None), obj(None, None), obj(dt.date(2020, 1, 1))],
    "booleans": [obj(True, False), obj(None), obj(True, None)],
    "integers": [obj(1, 2**53 + 1), obj(None, None), obj(3, 2**70, 1)],
    "floats": [obj(1.0, 0.5), obj(2.0**53, None), obj(3.0)],
    "numbers": [obj(1, 0.5), obj(True, Decimal("0.5")), obj(2**53 + 1, 2.0**53, None)],
    "datetimes": [obj(DAY, pd.Timestamp("2020-01-02")), obj(None), obj(DAY, pd.Timestamp(1, 1, 1))],
    "zoned": [obj(DAY.tz_localize("UTC")), obj(pd.Timestamp("2020-01-01 01:00", tz="CET"), None)],
    "durations": [obj(pd.Timedelta(1), pd.Timedelta(days=1)), obj(None), obj(pd.Timedelta(1))],
    "bytes": [obj(b"a", b"1"), obj(None), obj(b"\xff", b"a")],
    "text": [obj("a", "1"), obj(None), obj("\0ba", "True", "2020-01-01")],
    "text and bytes": [obj("a", "1"), obj(b"a", b"b"), obj(None)],
    "decimals": [obj(Decimal(1), Decimal("1.50")), obj(None), obj(Decimal("1.5"), 1)],
    "tuples": [obj((1, "a"), (1.0, "a")), obj(None)],
    "nulls": [obj(None), obj(None, None)],
    "another dtype": [obj(1, 2), pd.Series([1, 3]), pd.Series([1.5, None])],
    "another date": [obj(DAY), pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03"]))],
}
TYPED = {
    "int64": pd.Series([1, 2**53 + 1, 3]),
    "float64": pd.Series([1.0, 2.0**53, np.nan]),
    "Int64": pd.Series([1, None, 2**53 + 1], dtype="Int64"),
    "bool": pd.Series([True, False]),
    "str": pd.Series(["a", "1", None], dtype="str"),
    "binary": pd.Series([b"a", b"1", None], dtype=pd.ArrowDtype(pa.binary())),
    "decimal": pd.Series([Decimal(1), Decimal("1.50"), None], dtype=DECIMAL),
    "category": pd.Series(["a", "1", None], dtype="category"),
}


def parts_of(keys: list[pd.Series], column: str) -> list[pd.DataFrame]:
    ends = np.cumsum([0, *map(len, keys)]).tolist()
    return [
        pd.DataFrame({"k": each, column: np.arange(first, first + len(each))})
        for each, first in zip(keys, ends, strict=False)
    ]


def lazy(parts: list[pd.DataFrame]) -> dd.DataFrame:
    return dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])


def whole(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([part.astype({"k": object}) for part in parts], ignore_index=True)


def rows(frame: pd.DataFrame) -> list[Any]:
    """Return rows in an order, with the types of their keys."""
    found = frame.astype(object).where(frame.notna(), None)
    return sorted(
        repr([
            (type(each).__name__, each) if name == "k" else None if each is None else int(each)
            for name, each in zip(frame, row, strict=True)
        ])
        for row in found.itertuples(index=False, name=None)
    )  # fmt: skip


@pytest.mark.parametrize("kind", OBJECTS)
def test_merges_of_objects(threads, kind):
    left, right = parts_of(OBJECTS[kind], "x"), parts_of([*OBJECTS[kind], OBJECTS[kind][0]], "y")
    for how in ("outer", "left_anti"):
        with no_other_engine():
            found = dgpuhash.merge(lazy(left), lazy(right), how, on="k").compute()
        assert rows(found) == rows(whole(left).merge(whole(right), how, "k")), how


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("text", "bytes"), ("decimals", "text"), ("dates", "datetimes"), ("datetimes", "zoned"),
     ("booleans", "numbers"), ("integers", "floats"), ("integers", "text"), ("nulls", "durations"),
     ("decimals", "floats")],
)  # fmt: skip
def test_merges_of_objects_of_two_types(threads, ours, theirs):
    left, right = parts_of(OBJECTS[ours], "x"), parts_of(OBJECTS[theirs], "y")
    for how in ("right", "left"):
        with no_other_engine():
            found = dgpuhash.merge(lazy(left), lazy(right), how, on="k").compute()
        assert rows(found) == rows(whole(left).merge(whole(right), how, "k")), how


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("integers", "int64"), ("numbers", "float64"), ("booleans", "Int64"), ("numbers", "bool"),
     ("text and bytes", "str"), ("bytes", "binary"), ("decimals", "decimal"), ("text", "category"),
     ("integers", "decimal"), ("another dtype", "int64"), ("text and bytes", "binary")],
)  # fmt: skip
def test_merges_of_objects_and_typed_keys(threads, kind, dtype):
    left, typed = parts_of(OBJECTS[kind], "x"), parts_of([TYPED[dtype], TYPED[dtype]], "y")
    objects = [part.astype({"k": object}) for part in typed]
    for how in ("right", "left"):
        with no_other_engine():
            found = dgpuhash.merge(lazy(left), lazy(typed), how, on="k").compute()
        assert rows(found) == rows(whole(left).merge(whole(objects), how, "k")), how


def test_decimals_and_numbers_are_equal_by_value(threads):
    left = pd.DataFrame({"k": pd.Series([Decimal("1.00"), Decimal("0.50"), None], dtype=DECIMAL)})
    for keys in ([1, 2], [0.5, 1.0], [True, False]):
        right = pd.DataFrame({"k": keys, "y": [0, 1]})
        lazily = dgpuhash.merge(
            dd.from_pandas(left, npartitions=2), dd.from_pandas(right, npartitions=2), on="k"
        )
        wanted = [each for each in left["k"].dropna() if each in keys]
        assert lazily["k"].compute().tolist() == wanted
        assert dgpuhash.merge(left, right, on="k")["k"].tolist() == wanted


@pytest.mark.parametrize("kind", OBJECTS)
def test_one_row_of_each_object(threads, kind):
    parts = parts_of(OBJECTS[kind], "x")
    for keep in ("first", "last", False):
        found = lazy(parts).dgpuhash.drop_duplicates("k", keep=keep)
        wanted = whole(parts).drop_duplicates("k", keep=keep)
        with no_other_engine():
            assert rows(found.compute()) == rows(wanted)


@pytest.mark.parametrize(
    "kind", ["numbers", "text and bytes", "decimals", "another dtype", "dates"]
)
def test_groups_of_objects(threads, kind):
    parts = parts_of(OBJECTS[kind], "x")
    # pandas rounds integers beside floats.
    sums, sizes = dict[Any, int](), dict[Any, int]()
    for key, value in whole(parts).dropna(subset="k").itertuples(index=False, name=None):
        sums[key] = sums.get(key, 0) + value
        sizes[key] = sizes.get(key, 0) + 1
    with no_other_engine():
        groups = dgpuhash.groupby(lazy(parts), "k", sort=False)["x"].sum()
        found = groups.compute()
        counts = lazy(parts).dgpuhash.value_counts("k").compute()
    assert {part.index.dtype for part in dask.compute(*groups.to_delayed())} == {np.dtype(object)}
    # Owners are others each time: some have integers alone.
    assert found.index.dtype == object
    assert dict(found.items()) == sums
    assert sorted(counts) == sorted(sizes.values())


def test_builds_of_other_texts_are_not_shared(threads):
    # Strings are stored as they are beside strings, and by tags beside objects.
    stored = dd.from_pandas(pd.DataFrame({"k": ["\0s", "a"], "y": [0, 1]}), npartitions=2).persist()
    for dtype in ("str", object):
        left = dd.from_pandas(
            pd.DataFrame({"k": pd.Series(["\0s", "b"], dtype=dtype)}), npartitions=2
        )
        assert dgpuhash.merge(left, stored, "outer", on="k")["y"].count().compute() == 2
        assert dgpuhash.merge(left, stored, "inner", on="k")["k"].compute().tolist() == ["\0s"]


def test_columns_do_not_depend_on_values():
    for each in OBJECTS["numbers"]:
        ((ours, theirs),) = frames_named("pandas").key_columns(each, each, "k", as_text=True)
        assert ours.series.dtype == theirs.series.dtype == "str"


@pytest.mark.parametrize(("how", "build"), [("inner", "left"), ("outer", "left"), ("left", "auto")])
def test_labels_of_objects_are_of_one_dtype(threads, how, build):
    parts = [part.set_index("k") for part in parts_of([obj("a", "b"), obj("c"), obj("a")], "x")]
    right = [part.rename(columns={"x": "y"}) for part in parts[:1]]
    merged = dgpuhash.merge(
        lazy(right), lazy(parts), how, left_index=True, right_index=True, build=build
    )
    assert {part.index.dtype for part in dask.compute(*merged.to_delayed())} == {np.dtype(object)}
