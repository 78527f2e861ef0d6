"""Merges of polars and PyArrow frames: beside polars' own joins, with every other engine shut."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import narwhals
import narwhals.stable.v1
import narwhals.stable.v2
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.key_columns import IncomparableError
from dgpuhash.frames.merge.kinds import PANDAS, as_pandas, from_pandas

# GPU machines may lack it.
pl = pytest.importorskip("polars")
assert_frame_equal = pytest.importorskip("polars.testing").assert_frame_equal

EPOCH = dt.datetime(2026, 1, 1)
# Keys by number, None for a null.
MAKERS = {
    pl.Int64: lambda k: 2**60 + k,
    pl.Int8: lambda k: k - 2,
    pl.UInt64: lambda k: 2**63 + k,
    pl.Float64: lambda k: float("nan") if k == 2 else k / 2,
    pl.Boolean: lambda k: k > 1,
    pl.String: lambda k: "é" * k,
    pl.Binary: lambda k: b"\xff" * k,
    pl.Date: lambda k: EPOCH.date() + dt.timedelta(days=k),
    pl.Time: lambda k: dt.time(k, 30),
    pl.Duration("ms"): lambda k: dt.timedelta(milliseconds=k),
    pl.Datetime("us"): lambda k: EPOCH + dt.timedelta(microseconds=k),
    pl.Datetime("ns", "Europe/Berlin"): lambda k: EPOCH + dt.timedelta(hours=k),
    pl.Decimal(10, 2): lambda k: Decimal(k) / 4,
    pl.Categorical: lambda k: f"k{k}",
    pl.Enum([f"k{k}" for k in (3, 1, 0, 2)]): lambda k: f"k{k}",
}
PAYLOADS = {
    "list": pl.List(pl.Int16),
    "struct": pl.Struct({"a": pl.String, "b": pl.Enum(["u", "v"])}),
    "array": pl.Array(pl.Int8, 2),
    "ids": pl.Int32,
    "flags": pl.Boolean,
}
HOWS = {
    "inner": "inner",
    "left": "left",
    "right": "right",
    "outer": "full",
    "semi": "semi",
    "anti": "anti",
}
KEYS = st.lists(st.sampled_from([0, 1, 2, 3, None]), max_size=7)


def ours(left, right, **arguments):
    with no_other_engine():
        return dgpuhash.merge(left, right, **arguments)


def column(name, keys, dtype):
    values = [None if key is None else MAKERS[dtype](key) for key in keys]
    made = pl.Series(name, values, dtype=dtype if not is_zoned(dtype) else pl.Datetime("ns"))
    return made.dt.replace_time_zone("Europe/Berlin") if is_zoned(dtype) else made


def is_zoned(dtype):
    return getattr(dtype, "time_zone", None) is not None


def payload(rows):
    values = {
        "list": [[row, None] if row % 2 else None for row in range(rows)],
        "struct": [{"a": str(row), "b": "v"} if row % 3 else None for row in range(rows)],
        "array": [[row, row] for row in range(rows)],
        "ids": list(range(rows)),
        "flags": [None if row % 2 else True for row in range(rows)],
    }
    return pl.DataFrame(values, schema=PAYLOADS)


def same_rows(made, expected):
    """Assert that two frames have equal columns and dtypes, and equal rows in any order."""
    made = made.select(expected.columns)
    assert made.schema == expected.schema
    assert sorted(map(repr, made.rows())) == sorted(map(repr, expected.rows()))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(list(MAKERS)), how=st.sampled_from(list(HOWS)))
def test_one_key_as_polars(data, dtype, how):
    sides = []
    for _ in range(2):
        keys = data.draw(KEYS)
        side = payload(len(keys)).insert_column(1, column("k", keys, dtype))
        cut = data.draw(st.integers(0, len(keys)))
        sides.append(pl.concat([side[:cut], side[cut:]], rechunk=False))
    left, right = sides
    nulls = data.draw(st.booleans())
    expected = left.join(right, on="k", how=HOWS[how], nulls_equal=nulls, coalesce=True)
    made = ours(left, right, on="k", how=how, suffixes=("", "_right"), nulls_equal=nulls)
    if how == "right":
        # Polars gives the suffix to the right columns there, too, and pandas' order is ours.
        assert made.columns[: len(left.columns)] == left.columns
    else:
        assert made.columns == expected.columns
    same_rows(made, expected)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    dtypes=st.tuples(st.sampled_from(list(MAKERS)), st.sampled_from(list(MAKERS))),
    how=st.sampled_from(list(HOWS)),
)
def test_two_keys_of_different_names_as_polars(data, dtypes, how):
    sides = []
    for names in (("a", "b"), ("c", "d")):
        pairs = data.draw(st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * 2), max_size=7))
        columns = [
            column(name, [pair[place] for pair in pairs], dtypes[place])
            for place, name in enumerate(names)
        ]
        sides.append(pl.DataFrame([*columns, pl.Series("x", range(len(pairs)), pl.UInt8)]))
    arguments = {"left_on": ["a", "b"], "right_on": ["c", "d"], "how": how}
    made = ours(*sides, **arguments, suffixes=("", "_right"))
    arguments["how"] = HOWS[how]
    same_rows(made, sides[0].join(sides[1], **arguments, nulls_equal=True, coalesce=False))


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "left_anti", "cross"])
def test_rows_have_pandas_order(how):
    rng = np.random.default_rng(5)
    left, right = (
        pl.DataFrame({"k": [f"k{k}" for k in rng.integers(0, 6, 9)], x: range(9)}) for x in "xy"
    )
    arguments = {} if how == "cross" else {"on": "k"}
    made = ours(left, right, how=how, **arguments)
    expected = ours(left.to_pandas(), right.to_pandas(), how=how, **arguments)
    assert made["x"].to_list() == expected["x"].astype("Int64").tolist()
    assert made.columns == list(expected)


def test_integers_with_nulls_stay_integers():
    left = pl.DataFrame({"k": [1, 2**60 + 1, None]})
    right = pl.DataFrame({"k": [1, 5], "n": [2**60 + 1, None]})
    made = ours(left, right, how="outer", indicator=True)
    assert made.schema == {"k": pl.Int64, "n": pl.Int64, "_merge": pl.Categorical()}
    assert made["n"].to_list() == [2**60 + 1, None, None, None]
    assert made["k"].to_list() == [1, 5, 2**60 + 1, None]
    assert made["_merge"].to_list() == ["both", "right_only", "left_only", "left_only"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None], pa.int16()),
        pa.array([1.5, None], pa.float16()),
        pa.array(["a", None]),
        pa.array(["a", None], pa.large_string()),
        pa.array(["a", None], pa.string_view()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array([1, None], pa.time32("s")),
        pa.array([1, None], pa.time64("us")),
        pa.array([1, None], pa.date64()),
        pa.array([1, None], pa.timestamp("ms", "Asia/Tokyo")),
        pa.array([Decimal("1.500"), None], pa.decimal256(50, 3)),
        pa.nulls(2),
        pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int8()), pa.array(["b", "a"])),
        pa.DictionaryArray.from_arrays([1, 0], pa.array(["b", "a"]), ordered=True),
        # A null and a value twice among the categories, which pandas does not allow.
        pa.DictionaryArray.from_arrays([0, 1], pa.array([7, None, 7])),
        pa.chunked_array(
            [pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]
        ),
        pa.array([[1], None], pa.list_view(pa.int64())),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([["a"], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([b"0" * 16, None], pa.uuid()),
    ],
    ids=lambda array: str(array.type),
)
def test_arrow_types_stay(array):
    table = pa.table({"a": array})
    frame, kind = as_pandas(table)
    back = from_pandas(frame, kind)
    assert back.schema == table.schema
    assert back.to_pylist() == table.to_pylist()
    sided = pa.table({"k": range(len(array)), "a": array, "b": array})
    made = ours(sided, sided.drop("b"), on="k", how="outer")
    assert [field.type for field in made.schema] == [pa.int64(), *[array.type] * 3]
    assert made["a_y"].to_pylist() == array.to_pylist()


def test_what_a_schema_says_stays():
    key = pa.field("k", pa.int64(), nullable=False, metadata={"unit": "m"})
    flag = pa.field("flag", pa.bool_(), nullable=False)
    schema = pa.schema([key, flag], {"source": "test", "pandas": "{}"})
    left = pa.table({"k": [1, 2], "flag": [True, False]}, schema)
    right = pa.table({"k": [2, 3], "w": ["x", "y"]})
    made = ours(left, right, how="outer")
    assert made.schema.field("k").equals(key, check_metadata=True)
    assert made.schema.field("flag").nullable
    assert made.schema.metadata == {b"source": b"test"}
    doubled = pa.Table.from_arrays([pa.array([1]), pa.array(["a"])], names=["k", "k"])
    assert from_pandas(*as_pandas(doubled)).equals(doubled)


@pytest.mark.parametrize(
    ("suffixes", "names"),
    [
        (("_x", "_y"), ["t_x", "t_y"]),
        (("", "_y"), ["t", "t_y"]),
        (("_x", None), ["t_x", "t"]),
    ],
)
def test_columns_of_one_name_keep_their_types(suffixes, names):
    left = pl.DataFrame({"k": [1], "t": [dt.time(1)]})
    right = pl.DataFrame(
        {"k": [1], "t": [dt.timedelta(hours=1)]}, {"t": pl.Duration("ns"), "k": int}
    )
    made = ours(left, right.select("k", "t"), on="k", suffixes=suffixes)
    assert made.schema == {"k": pl.Int64, names[0]: pl.Time, names[1]: pl.Duration("ns")}


def test_categories_of_both_sides():
    enum = pl.Enum(["b", "a"])
    left = pl.DataFrame({"e": pl.Series(["a", "b"], dtype=enum)})
    # Sorted as the Enum is.
    assert ours(left, left, how="outer")["e"].to_list() == ["b", "a"]
    other = pl.DataFrame({"e": pl.Series(["c", "b"], dtype=pl.Enum(["c", "b"]))})
    assert ours(left, other, how="outer").schema == {"e": pl.String}
    categories = other.cast(pl.Categorical)
    made = ours(categories, left, how="outer")
    assert made.schema == {"e": pl.Categorical()}
    assert made["e"].to_list() == ["a", "b", "c"]


def test_beside_pandas():
    left = pl.DataFrame({"k": [1, 2, None], "s": ["a", None, "c"]})
    other = pd.DataFrame({"k": [2, 7], "v": [1.5, None]}, index=[5, 6])
    made = ours(left, other, how="outer")
    expected = pl.DataFrame(
        {"k": [1, 2, 7, None], "s": ["a", None, None, "c"], "v": [None, 1.5, None, None]}
    )
    assert_frame_equal(made, expected)
    indexed = ours(left, other.set_index("k"), left_on="k", right_index=True)
    assert_frame_equal(
        indexed, pl.DataFrame({"k": [2], "s": [None], "v": [1.5]}, left.schema | {"v": float})
    )
    named = ours(left, pd.Series(["a"], name="s"))
    assert named.rows() == [(1, "a")]


def test_pandas_beside_others():
    left = pd.DataFrame({"k": ["a", "b"]}, index=[5, 6])
    other = pl.DataFrame(
        {
            "k": ["b", "c"], "n": [2**60 + 1, None], "f": [1.5, 2.5], "t": [EPOCH, None],
            "c": pl.Series(["x", None], dtype=pl.Categorical), "d": [EPOCH.date(), None],
            "l": [[1], None], "flag": [None, True],
        }
    )  # fmt: skip
    made = ours(left, other.with_columns(pl.col("t").dt.replace_time_zone("UTC")), how="left")
    dtypes = {name: str(dtype) for name, dtype in made.dtypes.items()}
    assert dtypes == {
        "k": "str", "n": "Int64", "f": "float64", "t": "datetime64[us, UTC]", "c": "category",
        "d": "date32[day][pyarrow]", "l": "large_list<item: int64>[pyarrow]", "flag": "boolean",
    }  # fmt: skip
    assert made["n"].tolist() == [pd.NA, 2**60 + 1]
    pd.testing.assert_frame_equal(ours(left, pa.table({"k": ["b"]})), ours(left, left.iloc[1:]))


def test_one_library_beside_another():
    frame = pl.DataFrame({"k": ["a", "b"], "y": [1, 2]})
    table = pa.table({"k": ["b"], "d": pa.array([5]).dictionary_encode()})
    assert ours(frame, table).schema == {"k": pl.String, "y": pl.Int64, "d": pl.Int64}
    assert ours(table, frame).schema == table.schema.append(pa.field("y", pa.int64()))


@pytest.mark.parametrize("module", [narwhals, narwhals.stable.v1, narwhals.stable.v2])
def test_frames_of_narwhals(module):
    frame = pl.DataFrame({"k": [1, 2]})
    for native in (frame, frame.to_arrow(), frame.to_pandas()):
        made = ours(module.from_native(native, eager_only=True), frame)
        assert type(made) is module.DataFrame
        assert type(made.to_native()) is type(native)
    assert ours(frame, frame["k"].head(1)).rows() == [(1,)]


@pytest.mark.parametrize(
    ("left", "right", "arguments", "words"),
    [
        (pl.LazyFrame({"k": [1]}), None, {}, r"polars LazyFrame is lazy.*frame\.collect\(\)"),
        (None, pl.LazyFrame({"k": [1]}), {}, r"frame\.collect\(\)"),
        (None, None, {"left_index": True, "right_on": "k"}, "polars frame, which has no index"),
        (None, None, {"right_index": True, "left_on": "k"}, "which has no index.*right_on="),
        (None, pl.DataFrame({"k": pl.Series([1], dtype=pl.Int128)}), {}, "cast it"),
        (None, pl.DataFrame({"k": [1], "o": [{1}]}, {"k": int, "o": pl.Object}), {}, "objects"),
        (None, pd.DataFrame({"k": [1, 2], "o": [1, "a"]}), {}, "'o' is object.*astype"),
        (None, pl.DataFrame({"k": [True]}), {"how": "outer"}, "cast the keys"),
        (
            pa.table({"k": [1], "v": pa.array([["a"]], pa.list_(pa.string_view()))}),
            None,
            {},
            "views",
        ),
    ],
)
def test_what_is_refused(left, right, arguments, words):
    frame = pl.DataFrame({"k": [5]})
    left, right = (frame if side is None else side for side in (left, right))
    with pytest.raises(UnsupportedError, match=words):
        ours(left, right, **arguments)


def test_labels_that_are_refused():
    frame = pl.DataFrame({"k": [1]})
    with pytest.raises(ColumnError, match=r"labels \[0\] are not strings"):
        ours(frame, pd.DataFrame({"k": [1], 0: [1]}))
    with pytest.raises(ColumnError, match=r"'v'.*more than once"):
        ours(frame, pd.DataFrame([[1, 2, 3]], columns=["k", "v", "v"]))
    with pytest.raises(pd.errors.MergeError, match="Series without a name"):
        ours(frame, pl.Series([1]))


def test_what_is_no_frame_stays_as_it_is():
    for given_ in (pd.DataFrame({"k": [1]}), pd.Series([1]), [1], {"k": [1]}, None):
        made, kind = as_pandas(given_)
        assert made is given_
        assert kind == PANDAS
        assert from_pandas(made, kind) is given_


def test_narwhals_is_imported_for_other_libraries_alone():
    code = (
        "import sys, pandas as pd, pyarrow as pa, dgpuhash; "
        "frame = pd.DataFrame({'k': [1]}); "
        "dgpuhash.merge(frame, pa.Table.from_pandas(frame)); "
        "print('narwhals' in sys.modules, 'polars' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.split() == ["False", "False"]


def test_types_without_a_value_in_common_are_refused():
    numbers = [pl.Series("k", [1]), pl.Series("k", [1.5]), pl.Series("k", [Decimal(2)])]
    others = [
        pl.Series("k", each) for each in (
            ["a"], [b"a"], [EPOCH], [EPOCH.date()], [dt.time(1)], [dt.timedelta(1)],
        )
    ]  # fmt: skip
    zoned = pl.Series("k", [EPOCH]).dt.replace_time_zone("UTC")
    categories = pl.Series("k", ["a"], dtype=pl.Categorical)
    domains = [numbers, [zoned], [others[0], categories], *([each] for each in others[1:])]
    for place, domain in enumerate(domains):
        for number, other in enumerate(domains):
            left, right = domain[0].to_frame(), other[-1].to_frame()
            for how in HOWS:
                if place == number:
                    dgpuhash.merge(left, right, how, on="k")
                    continue
                with pytest.raises(IncomparableError, match="cast one side"):
                    dgpuhash.merge(left, right, how, on="k")
                with pytest.raises(IncomparableError, match="never equal"):
                    dgpuhash.merge(left.to_arrow(), right.to_arrow(), how, on="k")
    # A column of nulls alone has no domain.
    nothing = pl.DataFrame({"k": [None]})
    assert len(dgpuhash.merge(nothing, others[0].to_frame(), "outer", on="k")) == 2


def test_keys_of_two_types_of_numbers_keep_their_values():
    whole, half = pl.DataFrame({"k": [1, 2]}), pl.DataFrame({"k": [Decimal("1.0"), Decimal("2.5")]})
    for sides in ((whole, half), (half, whole)):
        found = dgpuhash.merge(*sides, "outer", on="k")["k"].to_list()
        assert found == [1, 2, Decimal("2.5")]
    with pytest.raises(UnsupportedError, match="cast the keys"):
        dgpuhash.merge(pl.DataFrame({"k": [True]}), whole, "outer", on="k")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(pl.Series("k", [2**63], pl.UInt64), pl.Series("k", [2.0**53], pl.Float32)),
     (pl.Series("k", [10**9], pl.Duration("ns")), pl.Series("k", [2**62], pl.Duration("us")))],
)  # fmt: skip
def test_keys_that_no_type_holds_have_a_remedy_of_the_library(ours, theirs):
    left, right = ours.to_frame(), theirs.to_frame()
    for sides in ((left, right), (left.to_arrow(), right.to_arrow())):
        with pytest.raises(ColumnError, match="cast the keys of both sides to one type") as raised:
            dgpuhash.merge(*sides, "outer", on="k")
        assert "pandas" not in str(raised.value)
        assert ".astype" not in str(raised.value)
    cast = left.cast(pl.Duration("us")) if ours.dtype == pl.Duration else right.cast(pl.UInt64)
    sides = (cast, right) if ours.dtype == pl.Duration else (left, cast)
    assert len(dgpuhash.merge(*sides, "outer", on="k")) == 2
