"""`dgpuhash.merge` beside pandas, with every other engine shut."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import KEY_COLUMNS
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, KeyTypeError, ShapeError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes.pandas import PandasFrames

HOWS = ["inner", "left", "right", "outer", "left_anti", "right_anti"]
KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, None]), max_size=7)


def ours(left, right, **arguments):
    with no_other_engine():
        return dgpuhash.merge(left, right, **arguments)


def same(left, right, **arguments):
    """Assert that our result is pandas', to its dtypes and labels."""
    expected = pd.merge(left, right, **arguments)
    pd.testing.assert_frame_equal(ours(left, right, **arguments), expected)


@pytest.mark.parametrize("how", HOWS)
def test_many_columns_of_few_rows(how):
    keys = np.arange(6)
    left = pd.DataFrame({"k": keys, **{f"a{i}": keys / (i + 1) for i in range(40)}})
    right = pd.DataFrame({"k": keys + 3, **{f"a{i}": keys.astype(str) for i in range(20, 60)}})
    same(left, right, on="k", how=how)
    same(left, right.iloc[:0], on="k", how=how)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(KEY_COLUMNS)), how=st.sampled_from(HOWS))
def test_one_key(data, kind, how):
    left, right = (KEY_COLUMNS[kind](data.draw(KEYS)) for _ in range(2))
    a = pd.DataFrame({"k": left, "x": np.arange(len(left)), "both": left})
    b = pd.DataFrame({"k": right, "flag": np.arange(len(right)) % 2 == 0, "both": right})
    sort, indicator = data.draw(st.booleans()), data.draw(st.booleans())
    same(a, b, on="k", how=how, sort=sort, indicator=indicator)
    same(a, b.rename(columns={"k": "other"}), left_on="k", right_on="other", how=how)


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    kinds=st.lists(st.sampled_from(["ints", "texts", "nullable", "moments"]), min_size=2,
                   max_size=2),
    how=st.sampled_from(HOWS),
)  # fmt: skip
def test_two_keys(data, kinds, how):
    sides = []
    for side in range(2):
        rows = data.draw(st.integers(0, 7))
        keys = [
            KEY_COLUMNS[kind](data.draw(st.lists(st.sampled_from([0, 1, None]), min_size=rows,
                                            max_size=rows)))
            for kind in kinds
        ]  # fmt: skip
        sides.append(pd.DataFrame({"a": keys[0], "b": keys[1], f"v{side}": np.arange(rows)}))
    # Nulls of two keys have no one order in pandas.
    whole = all(side[["a", "b"]].notna().all(axis=None) for side in sides)
    if how != "outer" or whole:
        same(*sides, on=["a", "b"], how=how)


@pytest.mark.parametrize("how", HOWS[:4])
@pytest.mark.parametrize("names", [("k", "k"), ("k", None), ("k", "l")])
def test_indexes(how, names):
    rng = np.random.default_rng(3)
    left, right = (
        pd.DataFrame({value: np.arange(6)}, pd.Index(rng.integers(0, 5, 6), name=name))
        for value, name in zip("xy", names, strict=True)
    )
    same(left, right, how=how, left_index=True, right_index=True)
    same(left, right.reset_index(drop=True), how=how, left_index=True, right_on="y")
    same(left.reset_index(drop=True), right, how=how, left_on="x", right_index=True)


@pytest.mark.parametrize("how", HOWS[:4])
def test_levels_and_arrays(how):
    left = pd.DataFrame({"a": [1, 2, 2], "x": [1.5, 2.5, 3.5]}).set_index("a")
    right = pd.DataFrame({"a": [2, 3], "y": ["p", "q"]})
    same(left, right, on="a", how=how)
    same(left, right.set_index("a"), on="a", how=how)
    same(left, right, left_on=np.array([2, 3, 3]), right_on="a", how=how)
    same(left, right, left_on=[np.array([2, 3, 3])], right_on=[np.array([3, 4])], how=how)


def test_cross_semi_and_anti():
    left = pd.DataFrame({"k": [1, 2, None], "v": [1, 2, 3]}, index=[7, 8, 9])
    right = pd.DataFrame({"k": [2.0, 2.0, None], "v": [4, 5, 6]})
    same(left, right, how="cross")
    found = left["k"].isin(right["k"])
    for how, kept in (("semi", found), ("leftsemi", found), ("anti", ~found), ("leftanti", ~found)):
        pd.testing.assert_frame_equal(ours(left, right, on="k", how=how), left[kept])
    # SQL's nulls match nothing.
    assert ours(left, right, on="k", how="semi", nulls_equal=False).index.tolist() == [8]
    assert len(ours(left, right, on="k", how="outer", nulls_equal=False)) == 5


def test_a_label_that_is_a_tuple_is_not_hashed():
    right = pd.Series([1, 2], name=("B", "C"))
    left = pd.DataFrame({("A", "A"): [3, 4]})
    with no_other_engine():
        found = dgpuhash.merge(left, right, left_index=True, right_index=True)
    assert found.columns.tolist() == [("A", "A"), ("B", "C")]


def test_a_semi_merge_renames_no_columns_of_a_result_without_the_right_side():
    left = pd.DataFrame({"k": [1, 2], "v": [5, 6], "v_y": [7, 8]})
    right = pd.DataFrame({"k": [2], "v": [9]})
    pd.testing.assert_frame_equal(ours(left, right, on="k", how="semi"), left[1:])


@pytest.mark.parametrize("validate", ["1:1", "1:m", "m:1", "m:m"])
@pytest.mark.parametrize("doubled", list(itertools.product([False, True], repeat=2)))
def test_validate(validate, doubled):
    left, right = (
        pd.DataFrame({"k": ["a", "b", "b" if twice else "c"], "v": [1, 2, 3]}) for twice in doubled
    )
    try:
        expected = pd.merge(left, right, on="k", validate=validate)
    except pd.errors.MergeError as error:
        with pytest.raises(pd.errors.MergeError) as raised:
            ours(left, right, on="k", validate=validate)
        assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        assert isinstance(raised.value, ColumnError)
    else:
        pd.testing.assert_frame_equal(ours(left, right, on="k", validate=validate), expected)


def obj(*values):
    return pd.Series(list(values), dtype=object)


DAY = pd.Timestamp("2020-01-01")
DECIMAL = pd.ArrowDtype(pa.decimal128(8, 2))
# Keys of both sides, and the rows that match.
DOMAINS = [
    (obj(b"a", b"b"), obj("a", "b"), []),
    (pd.Series([b"a"], dtype=pd.ArrowDtype(pa.binary())), pd.Series(["a"]), []),
    (obj(b"a", None), pd.Series([b"a"], dtype=pd.ArrowDtype(pa.binary())), [(0, 0)]),
    (obj(Decimal(1)), obj("1"), []),
    (obj(Decimal("1.50"), Decimal(2)), obj(2, 1.5), [(0, 1), (1, 0)]),
    (pd.Series([Decimal("1.50"), None], dtype=DECIMAL), obj(1.5, 2), [(0, 0)]),
    (pd.Series([Decimal("2.00")], dtype=DECIMAL), pd.Series([2, 3]), [(0, 0)]),
    (obj(2**53 + 1, 0.5), obj(2.0**53), []),
    (obj(2**53 + 1, 0.5), pd.Series([2**53 + 1, 1]), [(0, 0)]),
    (obj(2**53, 0.5), obj(2.0**53, 0.5), [(0, 0), (1, 1)]),
    (pd.Series([complex(2**53), 1j]), pd.Series([2**53 + 1, 2**53]), [(0, 1)]),
    (obj(True, 1, 1.0), obj(Decimal(1)), [(0, 0), (1, 0), (2, 0)]),
    (obj(1, "1", b"1", None), obj("1", None), [(1, 0), (3, 1)]),
    (obj(dt.date(2020, 1, 1)), obj(DAY), []),
    (obj(DAY), obj(DAY.tz_localize("UTC")), []),
    (obj(DAY), obj(dt.datetime(2020, 1, 1)), [(0, 0)]),
    (obj(pd.Period("2020", "M")), obj(pd.Period("2020", "D"), pd.Period("2020", "M")), [(0, 1)]),
    (obj((1, "a")), obj((1.0, "a"), ("1", "a")), [(0, 0)]),
    (obj(2**70), obj(2.0**70, 2**70 + 1), [(0, 0)]),
    (obj("\0ba", "\0s"), obj(b"a", "\0s"), [(1, 1)]),
    (obj(b"a").astype("category"), obj("a").astype("category"), []),
]


@pytest.mark.parametrize("place", range(len(DOMAINS)))
def test_values_of_different_domains_are_never_equal(place):
    left, right, matches = DOMAINS[place]
    a = pd.DataFrame({"k": left, "x": range(len(left))})
    b = pd.DataFrame({"k": right, "y": range(len(right))})
    found = ours(a, b, on="k")
    assert list(zip(found["x"], found["y"], strict=True)) == matches
    there = sorted({x for x, _ in matches})
    assert np.flatnonzero(a.dgpuhash.isin(b, "k")).tolist() == there
    assert np.flatnonzero(a["k"].isin(ours(a, b, on="k", how="semi")["k"])).tolist() == there
    outer = ours(a, b, on="k", how="outer")
    alone = outer.loc[outer["y"].isna(), "k"]
    wanted = [key for row, key in enumerate(left.astype(object)) if row not in there]
    assert sorted(map(repr, alone.dropna())) == sorted(repr(key) for key in wanted if pd.notna(key))


def test_repeated_keys_are_told_as_they_are():
    frame = pd.DataFrame({"k": obj(b"a", b"a", Decimal(1))})
    with pytest.raises(pd.errors.MergeError, match="b'a'"):
        ours(frame, frame, on="k", validate="1:1")


def test_a_match_a_row_shares_the_left_columns():
    left = pd.DataFrame({"k": np.arange(1000) % 7, "x": np.arange(1000.0)})
    right = pd.DataFrame({"k": np.arange(5), "y": np.arange(5)})
    merged = ours(left, right, on="k", how="left")
    assert np.shares_memory(merged["x"].to_numpy(), left["x"].to_numpy())
    merged.loc[0, "x"] = -1.0
    assert left.loc[0, "x"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"how": "full"}, SpecError, "'full' is not a valid Merge type"),
        ({"on": "z"}, KeyError, "'z'"),
        ({"on": "k", "left_on": "k"}, ColumnError, 'Can only pass argument "on" OR'),
        ({"left_on": "k"}, ColumnError, 'Must pass "right_on" OR "right_index"'),
        ({"left_on": ["k", "x"], "right_on": "k"}, ShapeError, r"len\(right_on\) must equal"),
        ({"on": "k", "suffixes": (None, None)}, ColumnError, "columns overlap"),
        ({"on": "k", "indicator": "x"}, ColumnError, "existing column"),
        ({"on": "k", "validate": "2:2"}, SpecError, "2:2"),
        ({"left_on": "k", "right_on": "x"}, KeyTypeError, "trying to merge on int64 and str"),
    ],
)
def test_bad_arguments(arguments, error, words):
    left = pd.DataFrame({"k": [1], "x": [1]})
    right = pd.DataFrame({"k": [1], "x": ["a"]})
    with pytest.raises(error, match=words):
        ours(left, right, **arguments)


def test_what_is_no_frame():
    frame = pd.DataFrame({"k": [1]})
    with pytest.raises(TypeError, match="Can only merge Series or DataFrame"):
        ours(frame, [1])
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(UnsupportedError, match="Client"):
        dgpuhash.merge(frame, dd.from_pandas(frame, npartitions=1))
    with pytest.raises(KeyTypeError, match=r"'k' holds a list, which cannot be compared"):
        lists = pd.DataFrame({"k": [[1], [2]]})
        ours(lists, lists, on="k")


def test_a_partition_of_another_dtype_than_told_loses_no_value():
    told = pd.DataFrame({"a": np.zeros(0, np.int64)})
    frames = PandasFrames()
    found = frames.with_dtypes(pd.DataFrame({"a": [1.0, 2.0]}), told, kept=False)
    assert found["a"].tolist() == [1, 2]
    with pytest.raises(ColumnError, match="true dtypes"):
        frames.with_dtypes(pd.DataFrame({"a": [1.0, 2.5]}), told, kept=False)
