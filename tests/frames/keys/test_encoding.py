"""Key encoding: packing, exact conversion of probe keys, refusals."""

from __future__ import annotations

import decimal
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames.generated import FAMILIES, keys
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.errors import ColumnError, FormatError, KeyTypeError, SpecError
from dgpuhash.frames import FrameIndex, KeyEncoder

STAMP = pd.Timestamp("2020-02-29 12:00:00.000001")


def encoder(*columns: Any, **settings: Any) -> KeyEncoder:
    frame = pd.DataFrame({f"k{n}": column for n, column in enumerate(columns)})
    return KeyEncoder.for_frame(frame, list(frame.columns), **settings)


def series(values: list[Any], dtype: Any) -> pd.Series:
    return pd.Series(values, dtype=dtype)


@pytest.mark.parametrize(
    ("dtypes", "packing", "code"),
    [
        (["int8"], "packed", "u4"),
        (["int32"], "packed", "u4"),
        (["int64"], "packed", "u8"),
        (["float32"], "packed", "u4"),
        (["float64"], "packed", "u8"),
        (["M8[ns]"], "packed", "u8"),
        (["bool", "int16", "uint8"], "packed", "u4"),
        (["Int16", "boolean"], "packed", "u4"),
        (["int32", "float32"], "packed", "u8"),
        (["Int32"], "reserved", "u4"),
        (["Int64"], "reserved", "u8"),
        (["Int32", "int32"], "hashed", "u8"),
        (["int64", "bool"], "hashed", "u8"),
        (["str"], "hashed", "u8"),
        (["int8", "category"], "hashed", "u8"),
    ],
)
def test_packing(dtypes, packing, code):
    made = encoder(*(series([], dtype) for dtype in dtypes))
    assert made.packing == packing
    assert made.code_dtype == np.dtype(code)
    assert made.exact is (packing == "packed")


@settings(max_examples=60)
@given(st.data(), st.sampled_from(sorted(FAMILIES)))
def test_equal_keys_have_equal_codes_whatever_their_dtype(data, family):
    index = data.draw(keys(family, 10))
    query = data.draw(keys(family, 10))
    made = encoder(index)
    stored = made.encode(pd.DataFrame({"k0": index}))
    asked = made.encode(pd.DataFrame({"k0": query}))
    assert stored.valid is None
    same = np.equal.outer(asked.codes, stored.codes)
    if asked.valid is not None:
        same &= asked.valid[:, None]
    expected = [[_same(q, i) for i in index.tolist()] for q in query.tolist()]
    np.testing.assert_array_equal(same, np.array(expected))


def _same(one: Any, other: Any) -> bool:
    return bool((pd.isna(one) and pd.isna(other)) or (not pd.isna(one) and one == other) is True)


@pytest.mark.parametrize(
    ("index", "query", "valid"),
    [
        (series([1], "int32"), series([2**31, -(2**31) - 1, 5], "int64"), [False, False, True]),
        (series([1], "uint64"), series([-1, 1], "int64"), [False, True]),
        (series([1], "int64"), series([2**64 - 1, 1], "uint64"), [False, True]),
        (
            series([1], "int64"),
            series([0.5, np.nan, np.inf, 2.0**63, -(2.0**63)], "float64"),
            [False, False, False, False, True],
        ),
        (series([1], "uint64"), series([2.0**64, 2.0**63, -1.0], "float64"), [False, True, False]),
        (series([1], "float64"), series([2**53 + 1, 2**53, 2**63 - 1], "int64"), [0, 1, 0]),
        (series([1], "float32"), series([0.1, 0.5, np.nan, 1e300], "float64"), [0, 1, 1, 0]),
        (series([True], "bool"), series([0, 1, 2], "int64"), [True, True, False]),
        (series([1], "int8"), series([True, None], "boolean"), [True, False]),
        (series([STAMP], "M8[s]"), series([STAMP, None], "M8[us]"), [False, True]),
        (
            series([STAMP], "M8[ns]"),
            series([STAMP, pd.Timestamp("9999-01-01")], "M8[us]"),
            [True, False],
        ),
    ],
)
def test_query_values_that_the_index_cannot_hold_match_nothing(index, query, valid):
    asked = encoder(index).encode(pd.DataFrame({"k0": query}))
    found = np.ones(len(query), bool) if asked.valid is None else asked.valid
    np.testing.assert_array_equal(found, np.array(valid, bool))


def test_negative_zero_and_every_nan_are_one_key():
    odd_nan = np.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000], "u8").view("f8")
    values = np.concatenate([[0.0, -0.0, np.nan], odd_nan])
    codes = encoder(values).encode(pd.DataFrame({"k0": values})).codes
    assert codes[0] == codes[1]
    assert len(set(codes[2:].tolist())) == 1


@pytest.mark.parametrize("bits", ["u4", "u8"])
def test_the_reserved_code_of_a_null_is_no_forbidden_key(bits):
    from dgpuhash.frames.keys.encoding import NULL_CODE

    reserved = NULL_CODE[np.dtype(bits).itemsize]
    dtype = {"u4": "UInt32", "u8": "UInt64"}[bits]
    column = pd.array([reserved, None], dtype=dtype)
    encoded = encoder(column).encode(pd.DataFrame({"k0": column}))
    assert encoded.codes[0] == encoded.codes[1]
    assert (encoded.codes == encoded.ambiguous).tolist() == [True, True]


@pytest.mark.parametrize("dtypes", [["int32"], ["int64"], ["str"], ["str", "int8"]])
def test_owners_depend_on_the_code_only(dtypes):
    columns = [series(list(range(500)), "int64").astype(dtype) for dtype in dtypes]
    frame = pd.DataFrame({f"k{n}": column for n, column in enumerate(columns)})
    made = encoder(*columns)
    again = KeyEncoder.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    owners = made.owners(made.encode(frame).codes, 7)
    assert owners.dtype == np.uint32
    assert np.bincount(owners, minlength=7).min() > 30
    back = again.owners(again.encode(frame[::-1]).codes, 7)
    np.testing.assert_array_equal(back[::-1], owners)


def test_owners_do_not_change_with_the_dtype_of_the_query():
    made = encoder(series([1, 2], "int64"))
    one = made.encode(pd.DataFrame({"k0": series([5, 6], "int8")})).codes
    other = made.encode(pd.DataFrame({"k0": series([5, 6, None], "Float64")})).codes
    np.testing.assert_array_equal(made.owners(one, 130), made.owners(other[:2], 130))


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ([1, "a"], "astype"),
        ([1, 2], "Int64"),
        ([b"a"], "decode"),
        ([decimal.Decimal(1)], "decimal128"),
        ([True, None], "boolean"),
        ([pd.Timestamp("2020").date()], "to_datetime"),
        ([[1], [2]], "astype"),
    ],
)
def test_object_columns_that_are_no_strings_are_refused(values, remedy):
    column = pd.Series(values, dtype=object)
    with pytest.raises(KeyTypeError, match=remedy):
        encoder(column)
    with pytest.raises(KeyTypeError, match="'k0' is object"):
        encoder(series(["a"], "str")).encode(pd.DataFrame({"k0": column}))


@pytest.mark.parametrize(
    "column",
    [
        np.array([1j]),
        pd.period_range("2020", periods=1, freq="D"),
        pd.interval_range(0, 1),
        pd.arrays.SparseArray([1]),
        pd.array([decimal.Decimal(1)], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        pd.Categorical([1j]),
    ],
)
def test_other_dtypes_are_refused(column):
    with pytest.raises(KeyTypeError, match="cannot be a key"):
        encoder(column)


@pytest.mark.parametrize(
    ("index", "query", "remedy"),
    [
        ("int64", "str", "to_numeric"),
        ("str", "int64", "astype"),
        ("M8[ns]", "int64", "to_datetime"),
        ("M8[ns]", "m8[ns]", "to_datetime"),
        ("M8[ns]", pd.DatetimeTZDtype("ns", "UTC"), "tz_localize"),
    ],
)
def test_types_that_never_compare_are_refused(index, query, remedy):
    made = encoder(series([], index))
    with pytest.raises(KeyTypeError, match=remedy):
        made.encode(pd.DataFrame({"k0": series([], query)}))


def test_what_is_compared_with_dates_is_told_how_to_be_some():
    objects = series([pd.Timestamp("2020").date()], object)
    dates = objects.astype("date32[day][pyarrow]")
    made = encoder(dates)
    for asked in (objects, series(["2020-01-01"], "str"), pd.to_datetime(objects)):
        with pytest.raises(KeyTypeError, match=r"\.astype\('date32\[day\]\[pyarrow\]'\)"):
            made.encode(pd.DataFrame({"k0": asked}))
        as_told = pd.to_datetime(asked).astype("date32[day][pyarrow]")
        pd.testing.assert_series_equal(as_told, dates)


@pytest.mark.parametrize("dtype", [object, pa.binary(), pa.large_binary(), pa.binary(2)])
def test_bytes_are_told_how_to_be_keys_whatever_they_are(dtype):
    dtype = dtype if dtype is object else pd.ArrowDtype(dtype)
    packed = series([b"\xff\x00", b"AC", b"\xff\x00"], dtype)
    remedy = r"\.astype\(object\)\.str\.decode\('utf-8'\), or 'latin-1'"
    with pytest.raises(KeyTypeError, match=remedy):
        encoder(packed)
    as_told = packed.astype(object).str.decode("latin-1")
    codes = encoder(as_told).encode(pd.DataFrame({"k0": as_told})).codes
    assert codes[0] == codes[2] != codes[1]


def test_objects_of_floats_and_nulls_are_told_how_to_be_keys():
    objects = series([0.5, pd.NA], object)
    with pytest.raises(KeyTypeError, match=r"\.astype\('Float64'\)"):
        encoder(objects)
    encoder(objects.astype("Float64"))


def test_a_column_of_nulls_compares_with_everything():
    nulls = pd.DataFrame({"k0": pd.Series([None, None], dtype=object)})
    for dtype, found in (("int64", False), ("Int64", True), ("float32", True), ("M8[s]", True)):
        asked = encoder(series([], dtype)).encode(nulls)
        assert (asked.valid is None) is found, dtype
    made = encoder(series([], "str"))
    strings = made.encode(pd.DataFrame({"k0": series(["a", None], "str")}))
    assert made.encode(nulls).codes.tolist() == [strings.codes[1]] * 2


def test_column_names_are_checked():
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"])
    with pytest.raises(ColumnError, match=r"\['z'\].*\['a', 'b'\]"):
        KeyEncoder.for_frame(frame[["a"]].assign(b=1), "z")
    with pytest.raises(ColumnError, match="more than once"):
        KeyEncoder.for_frame(frame, "a")
    with pytest.raises(ColumnError, match="twice"):
        KeyEncoder.for_frame(frame[["a"]], ["a", "a"])
    with pytest.raises(ColumnError, match="reset_index"):
        KeyEncoder.for_frame(frame[["a"]].set_index("a"), "a")
    with pytest.raises(ColumnError, match="no key column"):
        KeyEncoder.for_frame(frame[["a"]], [])
    for no_label in ({"a"}, [["a"]], pd.Index(["a"])):
        with pytest.raises(ColumnError, match=r"one of \['a'\], or a list"):
            KeyEncoder.for_frame(frame[["a"]], no_label)
    for label in (True, None):
        odd = pd.DataFrame([[1, 2]], columns=pd.Index([label, "a"], dtype=object))
        for on in ([label], "a"):
            with pytest.raises(ColumnError, match="None as labels; rename them"):
                FrameIndex.build(odd, on)
        kept = FrameIndex.build(odd, "a", columns=[])
        assert list(kept.frame()) == ["a"]
    with pytest.raises(ColumnError, match="one column for each"):
        encoder([1], [2]).encode(frame[["a"]], "a")


def test_rows_to_be_stored_must_fit():
    made = encoder(series([1], "int32"))
    for wide in (series([2**40], "int64"), series([1, None], "Int64")):
        with pytest.raises(KeyTypeError, match="do not fit"):
            made.encode_rows(pd.DataFrame({"k0": wide}))


def test_bad_descriptions_are_refused():
    with pytest.raises(SpecError, match="hash_bits"):
        encoder([1], hash_bits=0)
    right = encoder([1]).to_json()
    (kind,) = right["types"]
    made = KeyEncoder.from_json(right)
    assert made == replace(encoder([1]), seeds=made.seeds)
    bad = [
        {},
        *(
            {field: it for field, it in right.items() if field != gone}
            for gone in right
            if gone != "seeds"
        ),
        *({**right, "names": names} for names in ([], ["a", "b"], "a", None, [None], [["a"]])),
        *({**right, "seeds": seeds} for seeds in (None, {}, [1, 2], {"columns": 1})),
        *(
            {**right, "seeds": {"columns": 1, "owners": 2, name: it}}
            for name in ("columns", "owners", "others")
            for it in (-1, 2**64, 1.0, "1", True, None)
        ),
        *({**right, "hash_bits": bits} for bits in (0, 65, "64", 64.0, None, True)),
        *({**right, "types": types} for types in ([], None, [3], [{"kin": 1}], [kind, kind])),
        *({**right, "types": [{**kind, "kind": it}]} for it in ("int8", "null", None, [], {}, 1)),
        *({**right, "types": [{**kind, "bits": it}]} for it in (0, 7, -8, 2**70, "64", None, [1])),
        *({**right, "types": [{**kind, "unit": it}]} for it in ("s", None, 1, [])),
        *({**right, "types": [{**kind, flag: 1}]} for flag in ("aware", "nullable")),
    ]
    for saved in bad:
        with pytest.raises(FormatError, match="encoder"):
            KeyEncoder.from_json(saved)
