"""Keys of several columns packed by their ranges, against Python's own equality and pandas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames.test_gpu import assert_same_values, on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

import dgpuhash
from dgpuhash.frames.keys.encoding import KeyColumns, KeyEncoder
from dgpuhash.frames.merge.distinct import number_keys, occurs
from dgpuhash.frames.merge.rows import first_repeat, pairs_of

INTEGERS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
DAY = pd.ArrowDtype(pa.date32())
KINDS: dict[str, list[Any]] = {
    "integers": [*INTEGERS, "Int8", "UInt16", "Int64", "UInt64", pd.ArrowDtype(pa.int32())],
    "bools": ["bool", "boolean"],
    "stamps": ["M8[ns]", "M8[s]", "m8[us]"],
    "days": [DAY],
}
PAIRS_OF_UNITS = {"M8[ns]": ["M8[ns]", "M8[s]"], "M8[s]": ["M8[ns]", "M8[s]"], "m8[us]": ["m8[us]"]}


@pytest.fixture(autouse=True, scope="module")
def _pack_few_keys_too():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgpuhash.frames.keys.encoding._FEW_KEYS", 0)
        yield


def _bounds(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(str(dtype).removesuffix("[pyarrow]").lower())
    return int(info.min), int(info.max)


def _values(kind: str, dtype: Any) -> st.SearchStrategy[Any]:
    """Draw values that lie close together, and the ends of the dtype's range."""
    if kind == "bools":
        some: st.SearchStrategy[Any] = st.booleans()
    elif kind == "integers":
        low, high = _bounds(dtype)
        ends = st.sampled_from([low, low + 1, high - 1, high])
        some = st.integers(max(low, -3), 4) | ends
    elif kind == "days":
        some = st.sampled_from(list(pd.date_range("1969-12-30", periods=5).date))
    else:
        some = st.integers(-3, 4).map(lambda seconds: seconds * 10**9)
    nulls = dtype not in (*INTEGERS, "bool")
    return some | st.none() if nulls else some


def _column(kind: str, dtype: Any, values: list[Any]) -> pd.Series:
    if kind == "stamps":
        ticks = [np.iinfo("int64").min if each is None else each for each in values]
        return pd.Series(np.array(ticks, "int64").view(f"{dtype[:2]}[ns]")).astype(dtype)
    return pd.Series(values, dtype=dtype)


@st.composite
def sides(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw two frames of two or three key columns that are comparable."""
    rows = draw(st.integers(0, 14)), draw(st.integers(0, 14))
    frames: tuple[dict[str, pd.Series], ...] = ({}, {})
    for number in range(draw(st.integers(2, 3))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        dtype = draw(st.sampled_from(KINDS[kind]))
        others = PAIRS_OF_UNITS[dtype] if kind == "stamps" else KINDS[kind]
        for side, count, own in zip(
            frames, rows, (dtype, draw(st.sampled_from(others))), strict=True
        ):
            drawn = st.lists(_values(kind, own), min_size=count, max_size=count)
            side[f"k{number}"] = _column(kind, own, draw(drawn))
    return pd.DataFrame(frames[0]), pd.DataFrame(frames[1])


def _keys(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return keys as Python compares them; every null is None."""
    columns = [
        [None if pd.isna(each) else each for each in frame[name].astype(object)] for name in frame
    ]
    return list(zip(*columns, strict=True))


@settings(max_examples=150)
@given(sides())
def test_pairs_are_those_of_equal_keys(frames):
    left, right = map(_keys, frames)
    columns = [KeyColumns.of(frame) for frame in frames]
    for how in ("inner", "left"):
        wanted = []
        for row, key in enumerate(left):
            found = [place for place, other in enumerate(right) if other == key]
            wanted += [(row, place) for place in found or ([-1] if how == "left" else [])]
        made = pairs_of(*columns, how)
        rows = made.rows("left", len(left)), made.rows("right", len(right))
        assert list(zip(*map(list, rows), strict=True)) == wanted
    there = [key for key in right if None not in key]
    assert occurs(*columns).tolist() == [key in right for key in left]
    assert occurs(*columns, nulls_equal=False).tolist() == [key in there for key in left]
    made = pairs_of(*columns, "inner", nulls_equal=False)
    found = len(made.rows("left", len(left)))
    assert found == sum(there.count(key) for key in left)


@settings(max_examples=100)
@given(sides())
def test_keys_are_numbered_by_their_first_rows(frames):
    frame = frames[0]
    keys = _keys(frame)
    firsts = list(dict.fromkeys(keys))
    repeats = [row for row, key in enumerate(keys) if keys.index(key) < row]
    assert first_repeat(KeyColumns.of(frame)) == (repeats[0] if repeats else -1)
    if len(frame):
        numbers, first = number_keys(KeyColumns.of(frame))
        assert numbers.tolist() == [firsts.index(key) for key in keys]
        assert first.tolist() == [keys.index(key) for key in firsts]


@settings(max_examples=100)
@given(sides())
def test_codes_are_equal_where_keys_are(frames):
    stored, asked = map(KeyColumns.of, frames)
    whole = KeyEncoder.for_columns(stored)
    encoder, known = whole.for_call(stored)
    wanted = encoder.encode_columns(asked)
    same = np.equal.outer(wanted.codes, known.codes)
    if wanted.valid is not None:
        same &= wanted.valid[:, None]
    expected = [[one == other for other in _keys(frames[0])] for one in _keys(frames[1])]
    assert same.tolist() == np.array(expected, bool).reshape(same.shape).tolist() or (
        encoder.ranges is None and not known.proves
    )
    sizes = []
    for column in whole.normalise_columns(stored):
        signed = column.type.kind not in {"uint", "bool"}
        bits = column.bits.view(f"i{column.bits.itemsize}") if signed else column.bits
        there = bits if column.nulls is None else bits[~column.nulls]
        size = int(there.max()) - int(there.min()) + 1 if len(there) else 0
        sizes.append(size + (column.nulls is not None))
    assert (encoder.ranges is not None) == (math.prod(sizes) < 2**64)


def test_ranges_of_full_width():
    low, high = np.iinfo("int64").min, np.iinfo("int64").max
    frame = pd.DataFrame({"a": [low, high], "b": [7, 7]})
    keys = KeyColumns.of(frame)
    # Every word would be a code, and none is left for values outside of the range.
    assert KeyEncoder.for_columns(keys).for_call(keys)[0].ranges is None
    assert KeyEncoder.for_columns(keys).for_call(keys.take([0]))[0].ranges is not None
    frame["a"] = [low, high - 1]
    keys = KeyColumns.of(frame)
    encoder, known = KeyEncoder.for_columns(keys).for_call(keys)
    assert known.codes.tolist() == [0, 2**64 - 2]
    outside = KeyColumns.of(pd.DataFrame({"a": [high, low, low], "b": [7, 6, 8]}))
    assert encoder.encode_columns(outside).codes.tolist() == [2**64 - 1] * 3


@pytest.mark.parametrize(
    ("columns", "packed"),
    [
        ({"a": [1], "b": [2]}, True),
        ({"a": [1]}, False),
        ({"a": [1], "b": [2.0]}, False),
        ({"a": [1], "b": ["x"]}, False),
        ({f"k{number}": [number] for number in range(8)}, True),
        ({f"k{number}": [number] for number in range(9)}, False),
    ],
)
def test_which_keys_are_packed(columns, packed):
    keys = KeyColumns.of(pd.DataFrame(columns))
    encoder, encoded = KeyEncoder.for_columns(keys).for_call(keys)
    assert (encoder.ranges is not None) is packed
    assert not packed or encoded.codes.dtype == np.uint32


def test_codes_of_a_call_are_not_saved():
    keys = KeyColumns.of(pd.DataFrame({"a": [1], "b": [2]}))
    encoder = KeyEncoder.for_columns(keys).for_call(keys)[0]
    with pytest.raises(AssertionError, match="of one call"):
        encoder.to_json()


@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("int32", "Int32"), ("M8[s]", "uint8")])
@pytest.mark.parametrize("rows", [300, 40_000])
def test_as_pandas(dtypes, rows):
    random = np.random.default_rng(rows)
    spread = {"a": 10**9 if dtypes[0][0] != "M" else 1, "b": 1}
    frames = []
    for count, name in ((rows, "v"), (rows // 3, "w")):
        columns = {
            label: pd.Series(random.integers(0, 120, count) * spread[label] % 2**31).astype(dtype)
            for label, dtype in zip("ab", dtypes, strict=True)
        }
        frames.append(pd.DataFrame({**columns, name: np.arange(count)}))
    left, right = frames
    # Strides of columns that are not contiguous, and one value outside of the stored ranges.
    left = pd.concat([left, left.iloc[:1].assign(b=left["b"].dtype.type(125))])[::-1]
    for how in ("inner", "left", "outer"):
        pd.testing.assert_frame_equal(
            dgpuhash.merge(left, right, how=how, on=["a", "b"]),
            left.merge(right, how=how, on=["a", "b"]),
        )
    pd.testing.assert_frame_equal(
        dgpuhash.groupby(left, ["a", "b"]).sum(), left.groupby(["a", "b"]).sum()
    )


@pytest.mark.gpu
@pytest.mark.cudf
@settings(max_examples=60)
@given(sides())
def test_cudf_frames_have_the_same_codes(frames):
    kept = [
        name
        for name in frames[0]
        if not any("[pyarrow]" in str(side[name].dtype) for side in frames)
    ]
    if len(kept) < 2:
        return
    made = []
    for of in (lambda frame: frame, on_gpu):
        stored, asked = (KeyColumns.of(of(frame[kept])) for frame in frames)
        encoder, known = KeyEncoder.for_columns(stored).for_call(stored)
        codes = [
            np.asarray(each.tolist()) for each in (known.codes, encoder.encode_columns(asked).codes)
        ]
        made.append((encoder.ranges, *(codes if encoder.ranges else ())))
    np.testing.assert_equal(*made)


@pytest.mark.gpu
@pytest.mark.cudf
@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("int32", "int32"), ("Int32", "uint8")])
def test_cudf_frames_as_pandas_frames(dtypes):
    random = np.random.default_rng(5)
    frames = []
    for count, name in ((90_000, "v"), (30_000, "w")):
        keys = {label: random.integers(0, 200, count) for label in "ab"}
        columns = {
            label: pd.Series(keys[label]).astype(dtype)
            for label, dtype in zip("ab", dtypes, strict=True)
        }
        if dtypes[0] == "Int32":
            columns["a"] = columns["a"].mask(random.random(count) < 0.01)
        frames.append(pd.DataFrame({**columns, name: np.arange(count)}))
    left, right = frames
    left.loc[7, "b"] = 250
    on = ["a", "b"]
    for how in ("inner", "left", "semi", "anti"):
        found = dgpuhash.merge(on_gpu(left), on_gpu(right), how, on=on)
        assert_same_values(found, dgpuhash.merge(left, right, how, on=on))
    sums = dgpuhash.groupby(on_gpu(left), on, dropna=False).sum().reset_index()
    wanted = dgpuhash.groupby(left, on, dropna=False).sum().reset_index()
    assert_same_values(sums, wanted)
