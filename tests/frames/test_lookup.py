"""lookup, contains and find: keys in every form, answers in that form."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from answers import answers_like_pandas, same_array
from frames.generated import column, frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal, assert_series_equal

from dgpuhash.errors import ColumnError, DeviceError, KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.frames import FrameIndex, KeyEncoder, make_frame

WEATHER = pd.DataFrame(
    {
        "origin": ["EWR", "JFK", "JFK", "LGA"],
        "hour": np.array([1, 1, 2, 1], "int8"),
        "wind": [3.5, np.nan, 9.0, 1.0],
    }
)
STORED = {
    "int64": np.array([7, 8, 9, 10]),
    "uint8": np.array([7, 8, 9, 10], "uint8"),
    "float32": np.array([0.5, np.nan, 2, 3], "float32"),
    "bool": np.array([True, False, True, True]),
    "str": pd.array(["a", None, "c", "d"], dtype="str"),
    "object": np.array(["a", None, 3, b"d"], dtype=object),
    "category": pd.Categorical(["p", None, "q", "p"]),
    "datetime": column(["1969-12-31", None, "2020-02-29", "2020-03-01"], "M8[ms]"),
    "zoned": column(["1969-12-31", None, "2020-02-29", None], pd.DatetimeTZDtype("us", "UTC")),
    "timedelta": column([1, None, 3, 4], "m8[us]"),
    "Int64": pd.array([2**53 - 1, None, 3, 4], dtype="Int64"),
    "arrow": pd.array([1, None, 3, 4], dtype=pd.ArrowDtype(pa.int64())),
}
KEYS = {
    "all stored": [30, 10, 20, 10],
    "some absent": [30, 99, 10, 99],
    "all absent": [98, 99],
    "one": [20],
    "none": [],
}


@pytest.fixture(scope="module")
def unique():
    return FrameIndex.build(pd.DataFrame({"k": [10, 20, 30], "v": ["a", "b", None]}), "k")


@pytest.fixture(scope="module")
def doubles():
    return FrameIndex.build(pd.DataFrame({"k": ["x", "y", "x"], "v": [1, 2, 3]}), "k")


@settings(max_examples=40)
@given(frame_pairs(), st.integers(0, 3), st.sampled_from([64, 3]))
def test_every_form_agrees_with_pandas(pair, most_stored, hash_bits):
    left, right, left_on, on = pair
    keys = left.rename(columns=dict(zip(left_on, on, strict=True)))[[*on, "x"]]
    keys.index = pd.Index(np.arange(len(keys)) % 3, name="label")
    rows = right[[*[label for label in right.columns if label not in on][:most_stored], *on]]
    if not most_stored:
        # What key columns alone answer has a test of its own.
        rows = rows.assign(v=1.5)
    encoder = KeyEncoder.for_frame(rows, on, hash_bits=hash_bits)
    index = FrameIndex.build(rows, on, encoder=encoder)
    for asked in (keys, keys[:0]):
        answers_like_pandas(index, asked, rows, on)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("stored", [*STORED, "all"])
@pytest.mark.parametrize("doubled", [False, True], ids=["unique", "doubled"])
def test_stored_columns_of_every_dtype(keys, stored, doubled):
    columns = STORED if stored == "all" else {stored: STORED[stored]}
    rows = pd.DataFrame({"k": [10, 20, 30, 20 if doubled else 40], **columns})
    asked = pd.DataFrame({"k": np.array(keys, "int32")}, index=pd.Index(keys, dtype=str))
    index = FrameIndex.build(rows, "k")
    answers_like_pandas(index, asked, rows, ["k"])
    if stored != "all" and not doubled and keys:
        mapped = asked["k"].map(rows.set_index("k")[stored])
        answer = index.lookup(asked["k"])
        assert_series_equal(answer, mapped, check_names=False, check_dtype=stored != "bool")
        assert answer.name == stored


@pytest.mark.parametrize(
    "labels", [None, [5, 5, 5], pd.MultiIndex.from_product([["p"], [1, 2, 3]])]
)
def test_labels_of_keys_are_kept(doubles, labels):
    keys = pd.Series(["x", "z", "y"], index=labels, name="who")
    wanted = keys.index.take([0, 0, 1, 2])
    assert doubles.lookup(keys).index.equals(wanted)
    assert doubles.lookup(keys[1:]).index.identical(keys.index[1:])
    assert doubles.contains(keys).index.identical(keys.index)
    assert doubles.contains(keys.to_frame("k")).index.identical(keys.index)


@pytest.mark.parametrize(
    "keys",
    [
        [30, 99, 10],
        (30, 99, 10),
        range(30, 5, -10),
        {30: None, 99: None, 10: None}.keys(),
        memoryview(bytes([30, 99, 10])),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_lists_and_the_like_give_frames(unique, keys):
    asked = pd.DataFrame({"k": list(keys)})
    wanted = asked.merge(unique.frame(), how="left")
    assert_frame_equal(unique.lookup(keys), wanted)
    same_array(unique.contains(keys), asked["k"].isin([10, 20, 30]).to_numpy())


@pytest.mark.parametrize(("key", "rows"), [("x", 2), ("y", 1), ("z", 1)])
def test_a_single_key(doubles, key, rows):
    for form in (key, np.array(key), np.str_(key)):
        assert len(doubles.lookup(form)) == rows
        same_array(doubles.contains(form), np.array([key != "z"]))


def test_all_rows_of_a_key_in_insertion_order(doubles):
    found = doubles.find(["z", "x", "y", "x"])
    assert found.query_rows.tolist() == [0, 1, 1, 2, 3, 3]
    assert found.found.tolist() == [False, True, True, True]
    same_array(doubles.lookup(np.array(["z", "x", "y", "x"])), np.array([np.nan, 1, 3, 2, 1, 3]))


def test_several_key_columns():
    index = FrameIndex.build(WEATHER, ["origin", "hour"])
    asked = pd.DataFrame({"hour": [2, 7, 1], "origin": ["JFK", "JFK", "LGA"]}, index=[3, 3, 4])
    answers_like_pandas(index, asked, WEATHER, ["origin", "hour"])
    tuples = list(asked[["origin", "hour"]].itertuples(index=False, name=None))
    assert_frame_equal(index.lookup(tuples), index.lookup(asked))
    same_array(index.contains(tuples), np.array([True, False, True]))
    assert index.lookup(("LGA", 1))["wind"].tolist() == [1.0]
    same_array(index.contains(("LGA", 2)), np.array([False]))
    assert index.lookup(pd.Series(tuples, index=list("abc"))).index.tolist() == ["a", "b", "c"]
    assert index.lookup(pd.MultiIndex.from_tuples(tuples)).equals(pd.Index([9.0, np.nan, 1.0]))
    for wrong in ("JFK", ["JFK"], [("JFK",)], np.array([1, 2])):
        for verb in (index.lookup, index.contains, index.find):
            with pytest.raises(ShapeError, match="one tuple of 2 values"):
                verb(wrong)
    with pytest.raises(ColumnError, match="'hour'"):
        index.lookup({"origin": ["JFK"]})
    with pytest.raises(ColumnError, match="'hour'"):
        index.contains(WEATHER[["origin"]])
    with pytest.raises(ShapeError, match="different lengths"):
        index.lookup({"hour": [1], "origin": ["JFK", "EWR"]})


def test_nulls_match_nulls():
    rows = pd.DataFrame({"k": [1.5, None], "v": [None, 2.0]})
    keys = pd.DataFrame({"k": [None, 1.5, 2.5]})
    index = FrameIndex.build(rows, "k")
    answers_like_pandas(index, keys, rows, ["k"])
    assert index.contains([None, 1.5, 2.5]).tolist() == [True, True, False]
    assert index.lookup([None, 1.5, 2.5])["v"].isna().tolist() == [False, True, True]


def test_an_index_of_keys_alone_answers_with_the_keys_it_has():
    index = FrameIndex.build(pd.DataFrame({"k": [10, 20, 20]}), "k")
    keys = pd.Series([20, 30, 10], index=list("abc"))
    wanted = pd.Series([20, 20, np.nan, 10], index=list("aabc"), name="k")
    assert_series_equal(index.lookup(keys), wanted)
    same_array(index.lookup(keys.to_numpy()), wanted.to_numpy())
    same_array(index.lookup(np.array([10], "int8")), np.array([10], "int8"))
    assert_frame_equal(index.lookup(keys.to_frame("k")), pd.DataFrame({"k": [20, 20, 30, 10]}))
    assert index.contains(keys).tolist() == [True, False, True]


class OverDlpack:
    """Array that only exports itself over DLPack."""

    def __init__(self, values):
        self._values = np.asarray(values)

    def __dlpack__(self, **settings):
        return self._values.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class OverArrow:
    """Array that only exports itself over Arrow's interface."""

    def __init__(self, values):
        self._values = pa.array(values)

    def __arrow_c_array__(self, requested_schema=None):
        return self._values.__arrow_c_array__(requested_schema)


def test_arrays_of_other_libraries():
    rows = pd.DataFrame({"k": [2**60, 2**60 + 1, 7], "v": [1, 2, 3], "s": ["a", None, "c"]})
    index = FrameIndex.build(rows, "k")
    asked = [2**60 + 1, 9, 7]
    answer = index.lookup(OverDlpack(asked))
    same_array(answer["v"], np.array([2, np.nan, 3]))
    same_array(index.contains(OverDlpack(asked)), np.array([True, False, True]))
    for arrow in (pa.array(asked), pa.chunked_array([asked[:1], asked[1:]]), OverArrow(asked)):
        answer = index.lookup(arrow)
        assert answer["v"].to_pylist() == [2, None, 3]
        assert answer["s"].to_pylist() == [None, None, "c"]
        assert isinstance(answer["s"], pa.Array)
        assert index.contains(arrow).equals(pa.array([True, False, True]))
    assert index.contains(pa.array([2**60 + 1, None])).to_pylist() == [True, False]
    assert index.lookup({"k": pa.array([7])})["v"].equals(pa.array([3]))
    with pytest.raises(ShapeError, match=r"to_pandas\(\)"):
        index.lookup(pa.table({"k": asked}))


@pytest.mark.parametrize(
    "values",
    [["a", None], [1, None], [1.5, None], [True, False], [True, None]],
    ids=["str", "int", "float", "bool", "bool and null"],
)
def test_arrow_keys_of_every_type_are_read_with_their_nulls(values):
    rows = pd.DataFrame({"k": pd.array(values, dtype=pd.ArrowDtype(pa.array(values).type)), "v": 1})
    index = FrameIndex.build(rows, "k")
    for arrow in (pa.array(values), pa.array(values).dictionary_encode()):
        assert index.contains(arrow).to_pylist() == [True, True]


def test_arrow_dates():
    stamps = pa.array(["2020-02-29", "2020-03-01"]).cast(pa.timestamp("us"))
    zoned = stamps.cast(pa.timestamp("us", "UTC"))
    for times in (stamps, zoned, stamps.cast(pa.date32())):
        index = FrameIndex.build(pd.DataFrame({"k": times.to_pandas(date_as_object=False)}), "k")
        assert index.contains(times).to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (pa.date32(), date(2020, 1, 1), date(2020, 1, 2)),
        (pa.timestamp("s"), datetime(2020, 1, 1), pd.Timestamp("2020-01-01 00:00:00.5")),
        (pa.duration("ms"), pd.Timedelta("1D"), pd.Timedelta("1us")),
    ],
)
def test_lists_of_dates_and_times_for_keys_of_arrow(kind, value, other):
    rows = pd.DataFrame({"k": pd.array([value, None], pd.ArrowDtype(kind)), "v": [1, 2]})
    index = FrameIndex.build(rows, "k")
    assert index.lookup([value, None])["v"].tolist() == [1, 2]
    assert index.lookup(value)["v"].tolist() == [1]
    assert index.contains([other, value]).tolist() == [False, True]
    assert index.find([other]).found.tolist() == [False]
    pairs = FrameIndex.build(rows, ["v", "k"])
    assert pairs.contains([(1, value), (2, value)]).tolist() == [True, False]


def test_keys_without_a_dtype_of_their_own(unique):
    """Objects are what they hold, and not the strings that an empty column of them stands for."""
    for keys in ([None], np.array([None, None], object), pd.Series([None], dtype=object)):
        assert not unique.contains(keys).any()
        assert not unique.find(keys).found.any()
        assert len(unique.lookup(keys)) == len(keys)
    assert unique.lookup(None)[["k", "v"]].isna().all(axis=None)
    for verb in (unique.lookup, unique.contains, unique.find):
        with pytest.raises(KeyTypeError, match=r"'k' is object \(integer\).*Int64"):
            verb(np.array([10, None], object))


def test_refusals(unique, doubles):
    import dask.array
    import dask.dataframe as dd

    assert unique.contains([None, 10]).tolist() == [False, True]
    assert doubles.contains([None]).tolist() == [False]
    frame = pd.DataFrame({"k": [10]})
    lazy = dd.from_pandas(frame)
    for verb in (unique.lookup, unique.contains, unique.find):
        with pytest.raises(ShapeError, match="2 dimensions"):
            verb(np.ones((2, 2)))
        with pytest.raises(KeyTypeError, match="'k' holds string"):
            verb(np.array(["a"]))
        for keys in (lazy, lazy["k"], dask.array.ones(3)):
            with pytest.raises(UnsupportedError, match=r"compute\(\)"):
                verb(keys)
        for broken in (pd.Series(["\ud800"], dtype=object), np.array(["\ud800"], dtype=object)):
            with pytest.raises(KeyTypeError, match=r"not valid UTF-8.*str\.encode"):
                verb(broken)
    pairs = FrameIndex.build(pd.DataFrame({"a": [1], "b": [2]}), ["a", "b"])
    assert len(pairs.lookup([])) == 0
    with pytest.raises(ShapeError, match="one tuple of 2 values"):
        pairs.lookup(np.array([]))


def test_keys_on_a_gpu_are_refused_for_rows_on_the_host(unique):
    class OnGpu:
        __cuda_array_interface__ = {}  # noqa: RUF012
        ndim = 1

        def __len__(self):
            return 1

    for verb in (unique.lookup, unique.contains, unique.find):
        with pytest.raises((DeviceError, UnsupportedError)):
            verb(OnGpu())


def test_answers_are_the_askers_own():
    index = FrameIndex.build(pd.DataFrame({"k": [1, 2], "v": pd.array([10, None], "Int64")}), "k")
    keys = pd.array([1, 2], "Int64")
    answer = index.lookup(keys)
    answer[0] = 99
    assert index.lookup(keys).tolist() == [10, pd.NA]


@pytest.mark.parametrize(
    "keys",
    [[2**53 + 1, None, 2**53], {"k": [2**53 + 1, None, 2**53]}, [2**53 + 1, np.nan, 2**53],
     np.ma.array([2**53 + 1, 0, 2**53], mask=[0, 1, 0])],
)  # fmt: skip
def test_large_integers_beside_nulls_are_not_rounded(keys):
    stored = pd.DataFrame({"k": pd.array([2**53 + 1, None], "Int64"), "v": [1, 2]})
    index = FrameIndex.build(stored, "k")
    assert np.asarray(index.contains(keys)).tolist() == [True, True, False]
    large = FrameIndex.build(pd.DataFrame({"k": pd.array([2**64 - 1], "UInt64")}), "k")
    assert large.contains([2**64 - 1, None]).tolist() == [True, False]
    lowest = FrameIndex.build(pd.DataFrame({"k": [-(2**63)]}), "k")
    assert lowest.contains([np.int64(-(2**63)), None]).tolist() == [True, False]
    for beyond in ([2**64, None], [-(2**63) - 1, None], [-1, 2**63, None]):
        assert not large.contains(beyond).any()


def test_large_integers_beside_floats_are_not_rounded():
    index = FrameIndex.build(pd.DataFrame({"k": [2**60, 7]}), "k")
    assert index.contains([2**60 + 1, 0.5, 2**60]).tolist() == [False, False, True]
    assert index.lookup([2**60 + 1, 0.5])["k"].tolist() == [2**60 + 1, 0.5]
    assert index.contains([7, 0.5, 2**60 + 1, 2**60][:2]).tolist() == [True, False]


def test_keys_in_another_byte_order():
    index = FrameIndex.build(pd.DataFrame({"k": [7, 9], "v": [1.5, 2.5]}), "k")
    turned = np.array([9, 8, 7], ">i8")
    assert index.contains(turned).tolist() == [True, False, True]
    assert index.contains(pd.Series(turned)).tolist() == [True, False, True]
    np.testing.assert_array_equal(index.lookup(turned), [2.5, np.nan, 1.5])
    frame = pd.DataFrame({"k": [7, 8], "x": turned[:2]})
    for how in ("inner", "left", "semi", "anti"):
        with pytest.raises(ColumnError, match=r"\['x'\] are in another byte order.*newbyteorder"):
            index.merge(frame, how=how)
    with pytest.raises(ColumnError, match="byte order"):
        index.contains(pd.DataFrame({"k": turned}))
    assert index.erase(make_frame({"k": turned})) == 2


def test_answers_can_be_written_to():
    index = FrameIndex.build(pd.DataFrame({"k": [7, 9], "v": [1.5, 2.5]}), "k")
    values, mask = index.lookup(np.array([7, 8])), index.contains(np.array([7, 8]))
    values[np.isnan(values)] = 0
    mask &= False
    assert values.tolist() == [1.5, 0] and not mask.any()


def test_an_index_is_no_column(unique):
    with pytest.raises(ShapeError, match="'k' is a FrameIndex; give an array or a list"):
        make_frame({"k": unique})


@pytest.mark.skipif(pd.__version__ < "3.1", reason="pandas 3.0 keeps the coarser unit")
def test_labels_of_several_levels():
    stored = pd.DataFrame({("a", "k"): [1, 2], ("b", "v"): [3, 4]})
    index = FrameIndex.build(stored, [("a", "k")])
    assert index.lookup([2, 9])[("b", "v")].fillna(-1).tolist() == [4, -1]
    assert index.contains({("a", "k"): np.array([2, 9])}).tolist() == [True, False]
    assert_frame_equal(index.merge(stored[[("a", "k")]]), stored)
    coarse = stored.astype({("a", "k"): "M8[s]"})
    fine = coarse.astype({("a", "k"): "M8[ns]"})
    merged = FrameIndex.build(fine, [("a", "k")]).merge(coarse[[("a", "k")]])
    assert_frame_equal(merged, fine)


def test_texts_of_python_that_are_no_utf8():
    index = FrameIndex.build(pd.DataFrame({"k": ["a"]}), "k")
    keys = pd.array(["\ud800"], pd.StringDtype("python"))
    with pytest.raises(KeyTypeError, match=r"'k' holds strings that are not valid UTF-8"):
        index.contains(keys)
