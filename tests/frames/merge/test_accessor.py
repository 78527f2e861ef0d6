"""``df.dgpuhash`` beside pandas, with every other engine shut."""

from __future__ import annotations

import datetime as dt
import inspect
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, KeyTypeError, SpecError
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.merge.accessor import FrameAccessor
from dgpuhash.frames.merge.distinct import DistinctPlan, DistinctRows

# GPU machines may lack it.
pl = pytest.importorskip("polars")

# With several columns, pandas tells -0.0 from 0.0 in this dtype alone.
ARROW = pa.array([0.0, 2.5, float("nan"), None, 1.5], pa.float64())
# Values of which rows are drawn, by dtype; nulls of all kinds are among them.
VALUES = {
    "int8": [0, 1, -1],
    "uint64": [0, 2**63, 2**64 - 1],
    "bool": [True, False],
    "float16": [0.0, -0.0, np.nan, 0.5],
    "float64": [0.0, -0.0, np.nan, 2.5, np.inf],
    "complex128": [0j, complex(0, 1), complex(1, 0)],
    "Int64": [2**60, 2**60 + 1, None],
    "boolean": [True, False, None],
    "Float32": [0.0, -0.0, None, 1.5],
    "str": ["", "a", "é", None],
    "string": ["", "a", None],
    "category": ["b", "a", None],
    "M8[ns]": [0, 1, None],
    "datetime64[s, Europe/Berlin]": [0, 3600, None],
    "m8[us]": [0, 1, None],
    "period[M]": [pd.Period("2026-01", "M"), pd.Period("2026-02", "M"), pd.NaT],
    "interval[int64, right]": [pd.Interval(0, 1), pd.Interval(0, 2), pd.Interval(1, 2)],
    "Sparse[int64]": [0, 1],
    "date32[day][pyarrow]": [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None],
    "time64[us][pyarrow]": [dt.time(1), dt.time(2), None],
    "binary[pyarrow]": [b"", b"\xff", None],
    "decimal": [Decimal("1.50"), Decimal("1.25"), None],
    "double[pyarrow]": [0, 1, 2, 3, 4],
    "texts": ["a", "b", None, np.nan, pd.NaT, pd.NA],
    "integers": [1, 2**70, None, np.nan],
    "mixed": [1, True, 1.0, "1", (1, 2), Decimal(1), None, np.nan],
    "dates": [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 1), None],
    "decimals": [Decimal("1.0"), Decimal("1.00"), Decimal(2), None],
}


def series(kind, rows):
    values = [VALUES[kind][row % len(VALUES[kind])] for row in rows]
    if kind == "double[pyarrow]":
        # A NaN that is no null.
        taken = ARROW.take(pa.array(values, pa.int64()))
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([taken])))
    if kind in {"texts", "integers", "mixed", "dates", "decimals"}:
        made = np.empty(len(values), object)
        made[:] = values
        return pd.Series(made, dtype=object)
    if kind == "decimal":
        kind = pd.ArrowDtype(pa.decimal128(5, 2))
    if kind == "category":
        return pd.Series(pd.Categorical(values, ["b", "a"]))
    if kind == "datetime64[s, Europe/Berlin]":
        return pd.Series(pd.array(values, "Int64").astype("M8[s]")).dt.tz_localize("Europe/Berlin")
    return pd.Series(values, dtype=kind)


def same_kept(frame, subset=None, keep="first"):
    """Assert that our result is pandas', to its labels."""
    with no_other_engine():
        made = frame.dgpuhash.drop_duplicates(subset, keep=keep)
    pd.testing.assert_frame_equal(made, frame.drop_duplicates(subset, keep=keep))


ROWS = st.lists(st.integers(0, 7), max_size=9)
KEEP = st.sampled_from(["first", "last", False])


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(list(VALUES)), rows=ROWS, keep=KEEP, labels=st.randoms())
def test_one_column(kind, rows, keep, labels):
    frame = pd.DataFrame({"k": series(kind, rows), "row": np.arange(len(rows))})
    frame.index = pd.Index([labels.choice("abc") for _ in rows], dtype="str")
    same_kept(frame, "k", keep)


@settings(max_examples=80, deadline=None)
@given(
    kinds=st.tuples(st.sampled_from(list(VALUES)), st.sampled_from(list(VALUES))),
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
    keep=KEEP,
)
def test_two_columns(kinds, rows, keep):
    frame = pd.DataFrame({"a": series(kinds[0], [row[0] for row in rows])})
    frame["b"] = series(kinds[1], [row[1] for row in rows])
    frame["a and b"] = np.arange(len(rows))
    same_kept(frame, ["a", "b"], keep)
    same_kept(frame.drop(columns="a and b"), keep=keep)


@pytest.fixture
def colliding(monkeypatch):
    """Keys with two different hashes altogether."""
    original = KeyEncoder.for_frame.__func__
    monkeypatch.setattr(
        KeyEncoder, "for_frame", classmethod(lambda cls, *args: original(cls, *args, hash_bits=1))
    )


@pytest.mark.usefixtures("colliding")
@pytest.mark.parametrize("keep", ["first", "last", False])
def test_keys_of_one_hash_are_told_apart(keep):
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"a": rng.integers(0, 9, 200).astype(str), "b": rng.integers(0, 9, 200)})
    same_kept(frame, keep=keep)
    other = frame.iloc[:20]
    found = frame.dgpuhash.isin(other)
    expected = pd.MultiIndex.from_frame(frame).isin(pd.MultiIndex.from_frame(other))
    assert found.tolist() == expected.tolist()


def test_labels_of_columns():
    frame = pd.DataFrame([[1, 2, 3], [1, 3, 3], [1, 2, 3]], columns=["a", "a", 0])
    same_kept(frame)
    same_kept(frame, "a")
    same_kept(frame, [0])
    same_kept(frame.set_axis([("a", "b"), ("a", "c"), 0], axis=1), ("a", "b"))
    same_kept(frame.iloc[:0])
    same_kept(pd.DataFrame(index=[1, 1]))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"subset": "z"}, KeyError, "'z'"),
        ({"subset": []}, ColumnError, "subset is empty"),
        ({"keep": "any"}, SpecError, "keep='any'"),
        ({"keep": True}, SpecError, "keep=True"),
        ({"subset": "l"}, KeyTypeError, "'l' has values that cannot be compared.*unhashable"),
    ],
)
def test_bad_arguments(arguments, error, words):
    frame = pd.DataFrame({"k": [1, 1], "l": [[1], [1]]})
    with pytest.raises(error, match=words):
        frame.dgpuhash.drop_duplicates(**{"subset": "k", **arguments})


def test_merge_has_the_arguments_of_merge():
    ours = list(inspect.signature(FrameAccessor.merge).parameters.values())[1:]
    theirs = list(inspect.signature(dgpuhash.merge).parameters.values())[1:]
    assert ours == theirs
    left = pd.DataFrame({"k": [1, 2], "v": [3, 4]}, index=[5, 6])
    right = pd.DataFrame({"l": [2, 2], "v": [7, None]})
    arguments = {
        "how": "outer", "left_on": "k", "right_on": "l", "suffixes": ("", "_right"),
        "indicator": "side", "validate": "1:m",
    }  # fmt: skip
    with no_other_engine():
        made = left.dgpuhash.merge(right, **arguments)
    pd.testing.assert_frame_equal(made, left.merge(right, **arguments))
    assert left.dgpuhash.merge(pl.DataFrame({"k": [2]}))["v"].tolist() == [4]


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["int8", "Int64", "str", "M8[ns]", "float64", "category"]),
                   min_size=1, max_size=2),
    data=st.data(),
)  # fmt: skip
def test_isin_is_a_semi_join(kinds, data):
    frames = []
    for name in "xy":
        rows = data.draw(ROWS)
        columns = {f"k{place}": series(kind, rows) for place, kind in enumerate(kinds)}
        frames.append(pd.DataFrame({name: np.arange(len(rows)), **columns}))
    left, right = frames
    on = [label for label in right if label != "y"]
    left.index = pd.Index(range(10, 10 + len(left)))
    with no_other_engine():
        found = left.dgpuhash.isin(right)
        pd.testing.assert_series_equal(left.dgpuhash.isin(right, on=on), found)
        indexed = left.dgpuhash.isin(right.set_index(on).index)
    pd.testing.assert_series_equal(indexed, found)
    expected = left["x"].isin(pd.merge(left, right, on=on)["x"])
    pd.testing.assert_series_equal(found, expected, check_names=False)


def test_isin_of_many_rows_of_one_key():
    left = pd.DataFrame({"k": np.zeros(100_000, np.int64)})
    assert left.dgpuhash.isin(left).all()
    assert not left.dgpuhash.isin(left + 1).any()


def test_isin_of_indexes_and_other_frames():
    left = pd.DataFrame({"k": [1, 2, 3], "s": ["a", "b", None]}, index=[7, 7, 8])
    right = pd.DataFrame({"k": [2, 3, 9], "s": ["b", "x", None]})
    expected = pd.Series([False, True, False], [7, 7, 8])
    for values in (right, pl.from_pandas(right), pa.Table.from_pandas(right)):
        pd.testing.assert_series_equal(left.dgpuhash.isin(values), expected)
    index = dgpuhash.FrameIndex.build(right, on=["k", "s"])
    pd.testing.assert_series_equal(left.dgpuhash.isin(index), expected)
    renamed = left.rename(columns={"k": "key"})
    pd.testing.assert_series_equal(renamed.dgpuhash.isin(index, on=["key", "s"]), expected)
    only = left.dgpuhash.isin(pd.Index([3, 1]), on="k")
    assert only.tolist() == [True, False, True]
    assert left.dgpuhash.isin(right["k"]).tolist() == [False, True, True]
    with pytest.raises(ColumnError, match=r"have no names.*on="):
        left.dgpuhash.isin(pd.Index([3, 1]))
    with pytest.raises(ColumnError, match="1 key columns"):
        left.dgpuhash.isin(index, on="k")
    with pytest.raises(KeyError, match="z"):
        left.dgpuhash.isin(index, on=["k", "z"])
    with pytest.raises(KeyTypeError, match="keys were given as a list"):
        left.dgpuhash.isin([1])
    with pytest.raises(KeyTypeError, match="str and int64"):
        left.dgpuhash.isin(pd.DataFrame({"s": [1]}))


@pytest.mark.parametrize(("kinds", "whole"), [(10**9, True), (9_000, False), (40_000, False)])
@pytest.mark.parametrize("keep", ["first", "last"])
def test_parts_whose_rows_are_mostly_distinct_go_whole(kinds, whole, keep):
    random = np.random.default_rng(2)
    keys = random.permutation(70_000)
    keys[:50] = 7
    frame = pd.DataFrame({"v": np.arange(70_000), "k": keys % kinds})
    plan = DistinctPlan(frame.iloc[:2], (1,), keep)
    made = DistinctRows(plan, plan.encoder())
    parts = [made.reduce(frame, 3), made.reduce(frame.iloc[:100], 1)]
    distinct = frame["k"].nunique()
    assert [len(part) for part in parts] == [
        len(frame) if whole else distinct, frame["k"].iloc[:100].nunique()
    ]  # fmt: skip
    assert distinct < len(frame)
    found = made.result(pd.concat(parts, ignore_index=True))
    wanted = pd.concat([frame.iloc[:100], frame]).drop_duplicates("k", keep=keep)
    pd.testing.assert_frame_equal(found, wanted)
