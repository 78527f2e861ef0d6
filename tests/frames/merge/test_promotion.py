"""What columns become on a side of a merge that lacks rows: no integer is ever rounded."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dgpuhash
from dgpuhash import FrameIndex
from dgpuhash.errors import ColumnError, SpecError

BIG = 1618556707013635763
LEFT = pd.DataFrame({"k": [1, 2]})
# Each integer that a float64 rounds, and the nullable dtype that holds it.
WIDE = [
    ("int64", BIG, "Int64"),
    ("int64", -(2**53) - 1, "Int64"),
    ("int64", 2**63 - 1, "Int64"),
    ("uint64", 2**64 - 1, "UInt64"),
    ("uint64", 2**53 + 1, "UInt64"),
]
# The side that may lack rows, by the join.
LACKING = [("left", "right"), ("right", "left"), ("outer", "right"), ("left_anti", "right")]


def sides(dtype, value, lacking):
    """Return two frames, of which `lacking` has a value that rows of the other one lack."""
    narrow = pd.DataFrame({"k": [1], "v": np.array([value], dtype)})
    return (narrow, LEFT) if lacking == "left" else (LEFT, narrow)


@pytest.mark.parametrize(("dtype", "value", "nullable"), WIDE)
@pytest.mark.parametrize(("how", "lacking"), LACKING)
def test_an_integer_that_a_float_cannot_hold(dtype, value, nullable, how, lacking):
    left, right = sides(dtype, value, lacking)
    merged = dgpuhash.merge(left, right, how, on="k", promote="nullable")
    assert merged["v"].dtype == nullable
    wanted = [pd.NA] if how == "left_anti" else [value, pd.NA]
    assert merged["v"].tolist() == wanted
    if how != "left_anti":
        for promote in (None, "pandas"):
            with pytest.raises(ColumnError, match=rf"'v'.*{value}.*promote='nullable'") as info:
                dgpuhash.merge(left, right, how, on="k", promote=promote)
            # The other remedy.
            assert f".astype({nullable!r})" in str(info.value)
            changed = [side.astype({"v": nullable}) if "v" in side else side for side in sides(
                dtype, value, lacking
            )]  # fmt: skip
            assert dgpuhash.merge(*changed, how, on="k")["v"].tolist() == wanted


def test_a_value_that_no_row_takes_is_no_error():
    right = pd.DataFrame({"k": [1, 9], "v": [7, BIG]})
    merged = dgpuhash.merge(LEFT, right, "left", on="k")
    pd.testing.assert_frame_equal(merged, LEFT.merge(right, "left", on="k"))


@pytest.mark.parametrize("how", ["left", "right", "outer", "inner", "left_anti", "right_anti"])
@pytest.mark.parametrize("swap", [False, True])
def test_nullable_dtypes_follow_from_dtypes_alone(how, swap):
    """Those of a merge without a miss are those of one with misses."""
    columns = {
        "b": [True], "i": np.array([3], "i1"), "u": np.array([3], "u4"), "f": [0.5],
        "t": pd.array(["x"], "str"), "d": pd.array(["2020-01-01"], "M8[s]"),
        "c": pd.Categorical(["x"]), "n": pd.array([1], "Int16"), "o": pd.Series([1], dtype=object),
    }  # fmt: skip
    wide, narrow = pd.DataFrame({"k": [1]} | columns), pd.DataFrame({"k": [1]})
    missing = pd.DataFrame({"k": [2]})
    metas = []
    for other in (narrow, missing):
        given = (other, wide) if swap else (wide, other)
        metas.append(dgpuhash.merge(*given, how, on="k", promote="nullable").dtypes)
    assert metas[0].tolist() == metas[1].tolist()
    lacks = how in (("left", "outer", "left_anti") if swap else ("right", "outer", "right_anti"))
    for label, plain, nullable in (
        ("b", "bool", "boolean"), ("i", "int8", "Int8"), ("u", "uint32", "UInt32"),
        ("f", "float64", "float64"), ("n", "Int16", "Int16"), ("k", "int64", "int64"),
    ):  # fmt: skip
        assert metas[0][label] == (nullable if lacks else plain), label


@pytest.mark.parametrize("how", ["left", "right", "outer"])
@pytest.mark.parametrize("by", ["index", "column and index"])
def test_labels_lack_rows_too(how, by):
    left = pd.DataFrame({"k": [BIG, 5], "x": [1, 2]}, index=[BIG + 1, 8])
    right = pd.DataFrame({"y": [3, 4]}, index=[BIG, 9])
    keys = {"left_on": "k", "right_index": True}
    if by == "index":
        left, keys = left.set_index("k"), {"left_index": True, "right_index": True}
    merged = dgpuhash.merge(left, right, how, promote="nullable", **keys)
    if by == "index":
        assert merged.index.dtype == np.int64
        wanted = {"left": [BIG, 5], "right": [BIG, 9], "outer": [5, 9, BIG]}[how]
    else:
        assert merged.index.dtype == ("int64" if how == "left" else "Int64")
        wanted = {"left": [BIG + 1, 8], "right": [BIG + 1, pd.NA], "outer": [8, pd.NA, BIG + 1]}
        wanted = wanted[how]
        if how != "left":
            with pytest.raises(ColumnError, match=str(BIG + 1)):
                dgpuhash.merge(left, right, how, **keys)
    assert merged.index.tolist() == wanted


@pytest.mark.filterwarnings("ignore:You are merging on int and float")
def test_a_key_of_two_dtypes_is_not_rounded():
    left = pd.DataFrame({"k": [2**53 + 1]})
    right = pd.DataFrame({"k": [0.5]})
    for promote in (None, "nullable"):
        with pytest.raises(ColumnError, match=r"'k'.*9007199254740993.*\.astype\('object'\)"):
            dgpuhash.merge(left, right, "outer", on="k", promote=promote)
    merged = dgpuhash.merge(left.astype("object"), right.astype("object"), "outer", on="k")
    assert merged["k"].tolist() == [0.5, 2**53 + 1]


def test_intervals_and_sparse_columns_are_not_rounded():
    right = pd.DataFrame({"k": [1], "v": pd.arrays.IntervalArray.from_breaks([BIG, BIG + 5])})
    with pytest.raises(ColumnError, match=r"'v'.*\.astype\('object'\)"):
        dgpuhash.merge(LEFT, right, "left", on="k")
    right["v"] = right["v"].astype("object")
    assert dgpuhash.merge(LEFT, right, "left", on="k")["v"][0].left == BIG
    sparse = pd.DataFrame({"k": [1], "v": pd.arrays.SparseArray([BIG])})
    with pytest.raises(ColumnError, match=r"'v'.*\.astype\('object'\)"):
        dgpuhash.merge(LEFT, sparse, "left", on="k")


@pytest.mark.parametrize("columns", [1, 30])
@pytest.mark.parametrize(
    "values",
    [
        pd.arrays.IntervalArray.from_arrays([2**53 + 1], [2**53 + 3]),
        pd.arrays.SparseArray([2**53 + 1]),
    ],
    ids=["interval", "sparse"],
)
def test_few_rows_of_many_columns_are_not_rounded(values, columns):
    wide = pd.DataFrame({"k": [1], "v": values} | dict.fromkeys(range(columns), 0))
    with pytest.raises(ColumnError, match=r"column 'v' becomes float64.*astype\('object'\)"):
        dgpuhash.merge(LEFT, wide, "left", on="k")
    merged = dgpuhash.merge(LEFT, wide.astype({"v": object}), "left", on="k")
    assert merged["v"][0] == values[0]


CODES = pd.Series(pd.Categorical([2**53 + 1, None]))
ARROW = {
    dtype: pd.Series(values, dtype=dtype)
    for dtype, values in {
        "int64[pyarrow]": [2**53 + 1, None],
        "uint64[pyarrow]": [2**64 - 1, None],
        "double[pyarrow]": [0.5, None],
        "float[pyarrow]": [0.5, None],
    }.items()
}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (CODES, pd.Series([0.5, 1.5])),
        (CODES, pd.Series([0.5, 1.5]).astype("category")),
        (pd.Series([2**53 + 1]).astype("category"), pd.Series([0.5]).astype("category")),
        (CODES, pd.Series([0.5, None], dtype="Float64")),
        (CODES, pd.Series([1, 2], dtype="int32")),
        (pd.Series([2**64 - 1, 2**64 - 3], dtype="uint64").astype("category"), pd.Series([-1])),
        (pd.Series([2**53 + 1]), ARROW["double[pyarrow]"]),
        (pd.Series([2**53 + 1]), ARROW["float[pyarrow]"]),
        (pd.Series([2**53 + 1]), ARROW["uint64[pyarrow]"]),
        (ARROW["int64[pyarrow]"], pd.Series([0.5])),
        (ARROW["int64[pyarrow]"], pd.Series([0.5]).astype("category")),
        (ARROW["int64[pyarrow]"].astype("category"), ARROW["double[pyarrow]"]),
    ],
    ids=lambda side: f"{side.dtype}",
)
@pytest.mark.parametrize("by", ["columns", "indexes"])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.filterwarnings("ignore:You are merging on int and float")
def test_keys_of_two_dtypes_are_not_rounded(left, right, by, swap):
    left, right = (pd.DataFrame({"k": side}) for side in ((right, left) if swap else (left, right)))
    options = {"on": "k"} if by == "columns" else {"left_index": True, "right_index": True}

    def merged(*frames):
        sides = frames if by == "columns" else [frame.set_index("k") for frame in frames]
        made = dgpuhash.merge(*sides, "outer", **options)
        keys = made["k"] if by == "columns" else made.index
        return {int(each) if each == int(each) else each for each in keys.dropna()}

    wanted = {
        int(each) if each == int(each) else each
        for side in (left, right)
        for each in side["k"].dropna()
    }
    try:
        assert merged(left, right) == wanted
    except ColumnError as error:
        assert ".astype('object')" in str(error)
    assert merged(left.astype(object), right.astype(object)) == wanted


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64", "int64[pyarrow]"])
def test_categories_of_integers_beside_complex_numbers_are_not_rounded(dtype, nulls):
    codes = pd.Series([2**53 + 1, 5], dtype=dtype).astype("category")
    left = pd.DataFrame({"k": codes.reindex(range(2 + nulls))})
    right = pd.DataFrame({"k": [2.0**53 + 0j, 5]})
    by_index = {"left_index": True, "right_index": True}
    for sides in ((left, right), (right, left)):
        labelled = [side.set_index("k") for side in sides]
        for frames, by in ((sides, {"on": "k"}), (labelled, by_index)):
            for how in ("left", "right", "outer"):
                try:
                    found = dgpuhash.merge(*frames, how, **by)
                except ColumnError as error:
                    assert ".astype('object')" in str(error)
                    continue
                values = (found["k"] if "on" in by else found.index).dropna().astype(object)
                known = {2**53 + 1, 2**53, 5}
                assert {int(each.real) for each in values if each == each} <= known
                if how == "outer":
                    assert 2**53 + 1 in set(values)
    exact = [side.astype(object) for side in (left, right)]
    assert 2**53 + 1 in set(dgpuhash.merge(*exact, "outer", on="k")["k"])


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_categories_with_nulls_beside_nullable_integers_are_exact(dtype):
    right = pd.DataFrame({"k": pd.Series([2, None], dtype=dtype)})
    merged = dgpuhash.merge(pd.DataFrame({"k": CODES}), right, "outer", on="k")["k"]
    assert merged.dropna().tolist() == [2, 2**53 + 1]


def test_datetimes_that_no_unit_holds_are_refused():
    left = pd.DataFrame({"k": np.array(["9999-12-31", "2020-01-01"], "M8[s]")})
    right = pd.DataFrame({"k": np.array(["2020-01-01", "NaT"], "M8[ns]")})
    assert len(dgpuhash.merge(left, right, on="k")) == 1
    with pytest.raises(ColumnError, match=r"no dtype for the values.*astype\('object'\)"):
        dgpuhash.merge(left, right, "outer", on="k")
    merged = dgpuhash.merge(left.astype(object), right.astype(object), "outer", on="k")
    assert merged["k"].dropna().tolist() == sorted(left["k"])


def test_dates_of_two_types_stay_dates():
    date = pd.Series(["2020-01-01", None], dtype="date32[pyarrow]")
    frames = (pd.DataFrame({"k": date.astype(f"date{bits}[pyarrow]")}) for bits in (32, 64))
    assert dgpuhash.merge(*frames, "outer", on="k")["k"].dtype == date.dtype


def test_sparse_integers_meet_nullable_floats():
    left = pd.DataFrame({"k": pd.arrays.SparseArray([1, 2])})
    right = pd.DataFrame({"k": pd.Series([1.0, 0.5, None], dtype="Float64")})
    with pytest.warns(UserWarning, match="float"):
        assert dgpuhash.merge(left, right, on="k")["k"].tolist() == [1]


def test_many_columns_of_few_rows():
    right = pd.DataFrame({"k": [1]} | {f"v{place}": [BIG] for place in range(30)})
    with pytest.raises(ColumnError, match=r"'v0'.*promote='nullable'"):
        dgpuhash.merge(LEFT, right, "left", on="k")
    assert dgpuhash.merge(LEFT, right, "left", on="k", promote="nullable")["v29"][0] == BIG


def test_promote_is_a_known_name():
    with pytest.raises(SpecError, match="promote='float'"):
        dgpuhash.merge(LEFT, LEFT, promote="float")
    index = FrameIndex.build(LEFT, "k")
    for verb in (index.lookup, index.find):
        with pytest.raises(SpecError, match="promote='float'"):
            verb([1], promote="float")


@pytest.mark.parametrize("how", ["left", "right", "outer"])
def test_merges_of_an_index(how):
    left, right = sides("int64", BIG, "left" if how == "right" else "right")
    index = FrameIndex.build(right, "k")
    with pytest.raises(ColumnError, match=r"promote='nullable'"):
        index.merge(left, how=how)
    assert index.merge(left, how=how, promote="nullable")["v"].tolist() == [BIG, pd.NA]


def test_merges_of_an_index_by_another_dtype_of_keys():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [BIG]}), "k")
    left = LEFT.astype("int32")
    with pytest.raises(ColumnError, match=r"promote='nullable'"):
        index.merge(left, how="left")
    assert index.merge(left, how="left", promote="nullable")["v"].tolist() == [BIG, pd.NA]


@pytest.mark.parametrize(
    "keys", [pd.DataFrame({"k": [1, 2]}), pd.Series([1, 2]), [1, 2], [1, 2.5]], ids=repr
)
def test_lookups(keys):
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [BIG], "w": [True]}), "k")
    for verb in (index.lookup, index.find):
        with pytest.raises(ColumnError, match=r"'v'.*promote='nullable'"):
            verb(keys)
    answer = index.lookup(keys, promote="nullable")
    assert answer["v"].tolist() == [BIG, pd.NA] and answer["w"].tolist() == [True, pd.NA]
    assert index.find(keys, promote="nullable").frame["v"].tolist() == [BIG, pd.NA]


def test_lookups_of_arrays():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": pd.array([BIG], "Int64")}), "k")
    for promote in (None, "nullable"):
        with pytest.raises(ColumnError, match=r"'v'.*give the keys as a Series"):
            index.lookup(np.array([1, 2]), promote=promote)
    assert index.lookup(pd.Series([1, 2])).tolist() == [BIG, pd.NA]


def test_lookups_of_a_column_that_no_key_lacks():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [BIG]}), "k")
    assert index.lookup(np.array([1])).tolist() == [BIG]
    assert index.lookup([1])["v"].dtype == np.int64


def test_labels_that_are_categories_of_dates_and_null():
    day = pd.Series([None, "2026-03-01"], dtype="str").astype("date32[day][pyarrow]")
    left, right = (
        pd.DataFrame(index=pd.CategoricalIndex(labels, name="k")) for labels in (day[:1], day[1:])
    )
    merged = dgpuhash.merge(left, right, "outer", left_index=True, right_index=True)
    assert merged.index.dropna().tolist() == [day[1]]
    assert len(merged) == 2


def test_labels_that_are_dates_stay_dates_beside_datetimes():
    day = pd.Series(["9999-12-31"], dtype="str").astype("date32[day][pyarrow]")
    left = pd.DataFrame(index=pd.DatetimeIndex(["2026-03-01", None], name="k"))
    right = pd.DataFrame(index=pd.Index(day, name="k"))
    merged = dgpuhash.merge(left, right, "outer", left_index=True, right_index=True)
    assert set(merged.index.dropna()) == {day[0], pd.Timestamp("2026-03-01")}


@pytest.mark.parametrize("labels", [["b", "1"], [2**53 + 1, 0.5], [True, False]])
def test_labels_that_are_objects_stay_objects(labels):
    left, right = (
        pd.DataFrame(index=pd.Index([label], dtype=object, name="k")) for label in labels
    )
    merged = dgpuhash.merge(left, right, "outer", left_index=True, right_index=True)
    assert merged.index.tolist() == sorted(labels)
    assert merged.index.dtype == object


@pytest.mark.parametrize("dtypes", ["MM", "mm", "periods", "units"])
@pytest.mark.parametrize("columns", [False, True])
def test_nulls_of_datetimes_and_durations_come_where_pandas_has_them(dtypes, columns):
    values = np.array([np.iinfo(np.int64).min, 5, np.iinfo(np.int64).min])
    kinds = {"MM": ("M8[s]",) * 2, "mm": ("m8[s]",) * 2, "units": ("m8[s]", "m8[ns]")}
    for rows in ([], [1], [1, 1]):
        left, right = values[rows], values
        keys = [
            pd.Series(pd.PeriodIndex.from_ordinals(each, freq="M"))
            if dtypes == "periods"
            else pd.Series(each.view(kinds[dtypes][place]))
            for place, each in enumerate((left, right))
        ]
        sides = [pd.DataFrame({"k": key}) for key in keys]
        how = {"left_on": "k", "right_on": "k"}
        if not columns:
            sides = [side.set_index("k") for side in sides]
            how = {"left_index": True, "right_index": True}
        merged = dgpuhash.merge(*sides, "outer", **how)
        wanted = sides[0].merge(sides[1], "outer", **how)
        labels = (
            (each["k"] if columns else each.index).isna().tolist() for each in (merged, wanted)
        )
        assert next(labels) == next(labels)
