"""Bad input: error type, remedy, and an unchanged table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.lib.recfunctions import repack_fields
from verbs import KINDS, stored_keys, stores, table_of, verbs_with_keys

from dgpuhash import errors
from dgpuhash.tables import HashMap, HashSet, MultiMap

TEXTS = np.array(["a", "b", "c"], np.dtypes.StringDType())
RECORDS = np.zeros(3, [("a", "i4"), ("b", "f8")])
GAP = np.dtype({"names": ["a", "b"], "formats": ["u4", "u8"], "offsets": [0, 8]})
OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})


@pytest.mark.parametrize(
    ("make", "kind", "remedy"),
    [
        (lambda: HashSet("object"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("complex64"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("complex128"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("S4"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("i4,i4"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("f8,u8"), errors.KeyTypeError, "record of integers that has 16 bytes"),
        (lambda: HashSet("u8,u4"), errors.KeyTypeError, "16 bytes"),
        (lambda: HashSet(GAP), errors.KeyTypeError, "16 bytes"),
        (lambda: HashSet("u8,u8", method="cops"), errors.SpecError, "methods of records: auto"),
        (lambda: MultiMap("u8,u8", "i8"), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashSet("longdouble"), errors.KeyTypeError, "at most 8 bytes"),
        (lambda: HashSet("no such dtype"), errors.KeyTypeError, "such as 'int64'"),
        (lambda: HashSet("i4,("), errors.KeyTypeError, "such as 'int64'"),
        (lambda: HashMap("i8", [("a", "i4")] * 2), errors.KeyTypeError, "such as 'int64'"),
        (lambda: HashSet(None), errors.KeyTypeError, "such as 'int64'"),
        (lambda: HashMap("i8", None), errors.SpecError, "filters have no values"),
        (lambda: HashSet("M8"), errors.KeyTypeError, r"\[ns\]"),
        (lambda: HashMap("i8", "object"), errors.KeyTypeError, "row number"),
        (lambda: HashMap("i8", "S0"), errors.KeyTypeError, "fixed-size"),
        (lambda: HashMap("i8", ("f4", (3,))), errors.KeyTypeError, "field"),
        (lambda: HashSet(TEXTS.dtype), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashMap("i8", TEXTS.dtype), errors.KeyTypeError, "fixed-size"),
        (lambda: HashSet.from_keys(TEXTS), errors.KeyTypeError, "FrameIndex"),
        (lambda: HashMap.from_arrays([1, 2, 3], TEXTS), errors.KeyTypeError, "fixed-size"),
        (lambda: HashMap("i8", OVERLAPPING), errors.KeyTypeError, "repack_fields"),
        (
            lambda: MultiMap.from_arrays([1, 2, 3], RECORDS[["b", "a"]]),
            errors.KeyTypeError,
            "repack_fields",
        ),
        (lambda: HashSet("i8", capacity=-1), errors.SpecError, "0 to"),
        (lambda: HashSet("i8", capacity=2**60), errors.SpecError, "0 to"),
        (lambda: HashSet("i8", capacity=1.5), errors.SpecError, "whole number"),
        (lambda: HashSet("i8", max_load=0), errors.SpecError, r"\[0.01, 1\)"),
        (lambda: HashSet("i8", max_load=1), errors.SpecError, r"\[0.01, 1\)"),
        (lambda: HashSet("i8", max_load=-0.5), errors.SpecError, r"\[0.01, 1\)"),
        (lambda: HashSet("i8", max_load=float("nan")), errors.SpecError, "finite"),
        (lambda: HashSet("i8", max_load="full"), errors.SpecError, "float"),
        (lambda: HashSet("i8", seed=-1), errors.SpecError, "integer from 0"),
        (lambda: HashSet("i8", seed="x"), errors.SpecError, "whole number"),
        (lambda: MultiMap("i8", "i8", initial_bucket=0), errors.SpecError, "1 to"),
        (lambda: MultiMap("i8", "i8", growth=0.9), errors.SpecError, "1.0 to"),
        (lambda: HashSet("i8", device="tpu"), errors.DeviceError, "'cuda'"),
    ],
)
def test_impossible_tables(make, kind, remedy):
    with pytest.raises(kind, match=remedy):
        make()


GOOD = np.arange(3)
MASKED = np.ma.masked_equal(GOOD, 1)

BAD_KEYS = [
    (np.array([1, "a", None], object), errors.KeyTypeError, "astype"),
    (np.array([1j, 2, 3]), errors.KeyTypeError, "astype"),
    (np.array(["a", "b", "c"]), errors.KeyTypeError, "astype"),
    (TEXTS, errors.KeyTypeError, "astype"),
    (np.array(["2020"] * 3, "M8[D]"), errors.KeyTypeError, "astype"),
    (np.ones((3, 1), int), errors.ShapeError, "ravel"),
    (np.ones((), int), errors.ShapeError, "ravel"),
    ([[1, 2], [3, 4], [5, 6]], errors.ShapeError, "ravel"),
    ([[1], [2, 3], [4]], errors.ShapeError, "one number a row"),
    ([1, "a", None], errors.KeyTypeError, "astype"),
    (7, errors.ShapeError, "a list"),
    ("abc", errors.ShapeError, "a list"),
    ({1, 2, 3}, errors.ShapeError, "a list"),
    (None, errors.ShapeError, "a list"),
    (MASKED, errors.ShapeError, "compressed"),
    (pd.Series([1, None, 3], dtype="Int64"), errors.ShapeError, "dropna"),
    (pd.Series([1, None, 3], dtype="int64[pyarrow]"), errors.ShapeError, "dropna"),
    (pd.array([1, None, 3], dtype="Int64"), errors.ShapeError, "dropna"),
    (pd.Series(["a", "b", "c"]), errors.KeyTypeError, "FrameIndex"),
    (pd.Series(["a", "b", "c"], dtype="category"), errors.KeyTypeError, "FrameIndex"),
    (pd.Series(pd.date_range("2020", periods=3, tz="UTC")), errors.KeyTypeError, "tz_convert"),
    (pd.DataFrame({"a": GOOD}), errors.ShapeError, "FrameIndex"),
    (pd.MultiIndex.from_arrays([GOOD, GOOD]), errors.KeyTypeError, "astype"),
    (pa.array([1, None, 3]), errors.ShapeError, "drop_null"),
    (pa.array(["a", "b", "c"]), errors.KeyTypeError, "FrameIndex"),
    (pa.array([[1], [2], [3]]), errors.KeyTypeError, "FrameIndex"),
    (pa.table({"a": GOOD}), errors.ShapeError, "FrameIndex"),
]


@pytest.mark.parametrize("keys", range(len(BAD_KEYS)))
@pytest.mark.parametrize("kind", KINDS)
def test_bad_keys_change_nothing(kind, keys):
    keys, error, remedy = BAD_KEYS[keys]
    table = table_of(kind, GOOD)
    for verb in verbs_with_keys(table, GOOD):
        with pytest.raises(error, match=remedy):
            verb(keys)
    assert stored_keys(table) == GOOD.tolist()


@pytest.mark.parametrize(
    "keys",
    [
        np.array([1.0, 2, 3]),
        np.array([1, 2, 3], np.uint64),
        [1.5, 2, 3],
        [2**70, 1, 2],
        [2**63, -1, 0],
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_may_be_asked_for_are_not_stored(kind, keys):
    table = table_of(kind, GOOD)
    for verb in stores(table, GOOD):
        with pytest.raises(errors.KeyTypeError, match="astype"):
            verb(keys)
    assert stored_keys(table) == GOOD.tolist()
    there = [one in GOOD.tolist() for one in (keys if isinstance(keys, list) else keys.tolist())]
    assert table.contains(keys).tolist() == there


@pytest.mark.parametrize(
    ("values", "error", "remedy"),
    [
        (GOOD[:2].astype("int32"), errors.ShapeError, "one value for each key"),
        (np.ones((3, 3), int), errors.ShapeError, "ravel"),
        (np.ones(3), errors.KeyTypeError, "astype"),
        (np.array([None] * 3), errors.KeyTypeError, "astype"),
        (MASKED, errors.ShapeError, "compressed"),
        (pd.Series([1, None, 3], dtype="Int64"), errors.ShapeError, "dropna"),
        ([2**40, 0, 0], errors.KeyTypeError, "astype"),
        (5, errors.ShapeError, "a list"),
    ],
)
def test_bad_values_change_nothing(values, error, remedy):
    keys = np.array([2, 3, 4])
    table = HashMap.from_arrays(GOOD, GOOD.astype("int32"))
    lists = MultiMap.from_arrays(GOOD, GOOD.astype("int32"))
    for verb in (table.insert, table.upsert, lists.insert):
        with pytest.raises(error, match=remedy):
            verb(keys, values)
    assert (len(table), len(lists)) == (3, 3)


def test_bad_settings_of_verbs():
    table = HashMap.from_arrays(GOOD, GOOD.astype("int32"))
    with pytest.raises(errors.SpecError, match="'any', 'first' or 'last'"):
        table.insert(GOOD, GOOD.astype("int32"), keep="all")
    for default, remedy in (
        (1.5, "astype"),
        ("x", "astype"),
        ([1], "one scalar"),
        (2**40, "astype"),
    ):
        with pytest.raises(errors.DgpuhashError, match=remedy):
            table.find(GOOD, default=default)
    with pytest.raises(errors.SpecError, match="whole number"):
        table.reserve("many")
    with pytest.raises(errors.SpecError, match="0 to"):
        table.reserve(-1)
    assert len(table) == 3


PAIRS = [("count", "i4"), ("name", "S3"), ("place", [("x", "f4"), ("y", "f8", (2,))])]


@pytest.mark.parametrize(
    ("default", "error"),
    [
        ((1.7, b"", (0, [0, 0])), errors.KeyTypeError),
        ((2**40, b"", (0, [0, 0])), errors.KeyTypeError),
        ((1, b"long", (0, [0, 0])), errors.KeyTypeError),
        ((1, 5, (0, [0, 0])), errors.KeyTypeError),
        ((1, b"", (1e300, [0, 0])), errors.KeyTypeError),
        ((1, b"", (0, [0, 0], 0)), errors.KeyTypeError),
        ((1, b"", (0, 0)), errors.ShapeError),
        ((1, b""), errors.KeyTypeError),
        (5, errors.KeyTypeError),
        (np.zeros((), [("a", "i4"), ("b", "S3"), ("c", PAIRS[2][1])])[()], errors.KeyTypeError),
        ([1, 2, 3], errors.ShapeError),
    ],
)
def test_defaults_that_are_no_records_of_the_table(default, error):
    table = HashMap("int64", PAIRS)
    with pytest.raises(error):
        table.find([1], default=default)


def test_defaults_that_are_records():
    table, record = HashMap("int64", PAIRS), (-1, b"abc", (0.1, [2, 0.3]))
    for default in (record, np.array(record, PAIRS), np.array(record, PAIRS)[()]):
        assert table.find([1], default=default)[0] == np.array([record], PAIRS)


def test_advice_is_about_dtypes_that_a_table_can_have():
    table = HashSet("int64")
    with pytest.raises(errors.KeyTypeError, match="table with dtype 'float64'"):
        table.insert(np.array([1.5]))
    for keys in (np.array(["a"]), np.array([None]), np.array([1j])):
        with pytest.raises(errors.KeyTypeError) as caught:
            table.contains(keys)
        assert "make the table" not in str(caught.value)


def test_failed_first_insert_leaves_the_device_open():
    table = HashMap("int64", "int64")
    with pytest.raises(errors.ShapeError):
        table.insert(GOOD, GOOD[:2])
    assert table.device is None
    assert len(table) == 0


def test_no_gpu_is_said_plainly(monkeypatch):
    import sys

    from dgpuhash import backend

    monkeypatch.setitem(sys.modules, "cupy", None)
    backend._open.cache_clear()
    with pytest.raises(errors.DeviceError, match="pip install"):
        HashSet("int64", device="cuda")
    backend._open.cache_clear()


def test_dates_beyond_the_range_are_refused():
    table = HashSet("M8[ns]")
    with pytest.raises(errors.KeyTypeError, match="range"):
        table.insert(np.array(["9999-01-01"], "M8[D]"))


def test_byte_order_is_no_difference_between_records():
    dtype = np.dtype([("a", ">i4"), ("b", "<f8")])
    rows = np.array([(1, 2.5)], dtype)
    table = HashMap(">i8", dtype)
    assert table.insert(np.array([7], ">i8"), rows).all()
    assert table.find([7, 8], default=rows[0])[0].tolist() == [(1, 2.5), (1, 2.5)]


def test_records_are_taken_once_they_are_repacked():
    values = repack_fields(RECORDS[["b", "a"]], recurse=True)
    assert HashMap.from_arrays([1, 2, 3], values).value_dtype == values.dtype


def test_structured_values_need_the_same_fields():
    table = HashMap("int64", "i4,f8")
    with pytest.raises(errors.KeyTypeError, match="astype"):
        table.insert(GOOD, np.zeros(3, "i4,f4"))


@pytest.mark.parametrize("keys", [[2**64 - 1, -1], [2**53 + 1, 0.5], [np.int64(2**53 + 1), 1e300]])
def test_lists_of_which_only_rounded_floats_could_be_made(keys):
    with pytest.raises(errors.KeyTypeError, match=r"hold \d+ beside.*array of one dtype"):
        HashSet("float64").insert(keys)
    with pytest.raises(errors.KeyTypeError, match=r"hold \d+ beside.*array of one dtype"):
        HashMap("int64", "complex128").insert([1, 2, 3], [*keys, 1j])
    assert HashSet("float64").insert([2**53, 0.5, np.int64(-3)]).all()


def test_unsigned_numbers_of_any_kind():
    table = HashSet("uint64")
    assert table.insert([np.uint64(2**64 - 1), 0]).all()
    assert table.contains(np.array([2**64 - 1, 1], "u8")).tolist() == [True, False]
