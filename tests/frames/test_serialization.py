"""Saved frame indexes: dtypes, detected damage, atomic writes."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames.generated import FAMILIES, column
from pandas.testing import assert_frame_equal

from dgpuhash.errors import FormatError, UnsupportedError
from dgpuhash.frames import FrameIndex, frame_from_bytes, frame_to_bytes, frames_of
from dgpuhash.tables.serialization import read_file, write_file

EVERY_DTYPE = pd.DataFrame(
    {
        f"{family} {dtype!r}": column([v for v in pool if v is not None][:2] * 2, dtype)
        for family, (pool, dtypes) in FAMILIES.items()
        for dtype in dtypes
        if not (str(dtype).startswith("uint") and family == "integers")
    }
).assign(
    ordered=pd.Categorical([5, None, 7, 5], categories=[7, 5], ordered=True),
    **{
        f"arrow {kind}": pd.array(values, dtype=pd.ArrowDtype(kind))
        for kind, values in {
            pa.timestamp("s", "UTC"): [0, None, 1, 2],
            pa.decimal128(9, 2): [Decimal("1.5"), None, Decimal(-2), Decimal(0)],
            pa.list_(pa.int8()): [[1, 2], None, [], [3]],
            pa.struct({"a": pa.int8()}): [{"a": 1}, None, {"a": None}, {"a": 3}],
            pa.time64("us"): [1, None, 2, 3],
            pa.binary(): [b"a", None, b"", b"\0"],
        }.items()
    },
    arrow_words=pd.arrays.ArrowExtensionArray(pa.array(["a", None, "b", "a"]).dictionary_encode()),
    months=pd.period_range("2020", periods=4, freq="M"),
    half=np.arange(4, dtype="float16"),
)


@pytest.mark.parametrize("rows", [4, 0])
def test_every_dtype_survives(tmp_path, rows):
    frame = EVERY_DTYPE[:rows]
    on = list(frame.columns[:3])
    index = FrameIndex.build(frame, on)
    index.save(tmp_path / "index.dgph")
    again = FrameIndex.load(tmp_path / "index.dgph")
    assert again.encoder == index.encoder
    assert_frame_equal(again.frame(), frame.reset_index(drop=True))
    assert_frame_equal(again.merge(frame[on]), index.merge(frame[on]))


def test_labels_of_numpy(tmp_path):
    frame = pd.DataFrame([[1, 5], [2, 6]], columns=np.arange(2))
    assert isinstance(frame.columns[0], np.integer)
    index = FrameIndex.build(frame, on=frame.columns[0], columns=[frame.columns[1]])
    index.save(tmp_path / "index")
    assert_frame_equal(FrameIndex.load(tmp_path / "index").merge(frame[[0]]), frame)


def test_what_was_erased_is_not_saved_and_unique_stays(tmp_path):
    frame = pd.DataFrame({"k": ["a", "b"], 7: [1, 2]})
    index = FrameIndex.build(frame, "k", unique=True)
    index.erase(frame[:1])
    index.save(f"file://{tmp_path}/index.dgph")
    again = FrameIndex.load(f"file://{tmp_path}/index.dgph")
    assert_frame_equal(again.frame(), frame[1:].reset_index(drop=True))
    with pytest.raises(ValueError, match="unique"):
        again.insert(frame[1:])


def test_arrow_is_the_wire_form():
    for frame in (EVERY_DTYPE, EVERY_DTYPE[:0]):
        assert_frame_equal(frame_from_bytes(frame_to_bytes(frame)), frame)
    assert frames_of(EVERY_DTYPE).from_arrow(pa.table({"a": [1]}))["a"].tolist() == [1]
    with pytest.raises(FormatError, match="Arrow stream"):
        frame_from_bytes(b"foreign")


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "index.dgph"
    FrameIndex.build(EVERY_DTYPE, EVERY_DTYPE.columns[0]).save(path)
    return path


@pytest.mark.parametrize("keep", [0, 10, 100, -1])
def test_truncated_files_are_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FormatError):
        FrameIndex.load(saved)


def test_a_flipped_bit_is_noticed(saved):
    raw = bytearray(saved.read_bytes())
    raw[-100] ^= 1
    saved.write_bytes(raw)
    with pytest.raises(FormatError, match="checksum"):
        FrameIndex.load(saved)


def test_hostile_files_are_refused(saved):
    header, buffers = read_file(saved)
    cases = [
        (header | {"kind": "map"}, buffers),
        (header, {}),
        (header | {"rows": 5}, buffers),
        (header | {"encoder": {}}, buffers),
        (header | {"encoder": header["encoder"] | {"names": ["absent"]}}, buffers),
        (header | {"encoder": header["encoder"] | {"names": [["list"]]}}, buffers),
        (header, {"rows": buffers["rows"][:-200]}),
        (header, {"rows": np.zeros(64, np.uint8)}),
        (header, {"rows": np.frombuffer(b"\x80\x04cos\nsystem\n", np.uint8)}),
    ]
    for changed, parts in cases:
        write_file(saved, changed, parts, overwrite=True)
        with pytest.raises(FormatError):
            FrameIndex.load(saved)


def test_a_column_that_arrow_cannot_hold(tmp_path):
    frame = pd.DataFrame({"k": [1, 2], "odd": [1, "a"]})
    with pytest.raises(UnsupportedError, match="astype"):
        FrameIndex.build(frame, "k").save(tmp_path / "index.dgph")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "values",
    [
        [2**60 + 1, None, 5],
        [1.5, None, 2],
        [True, None],
        [[1], [2]],
        [[1, 2], None, []],
        [b"x", None],
        [datetime.date(2020, 1, 31), None],
        [pd.Timestamp("2020-01-31 10:00"), None],
        [{"a": 1}, {"a": None}],
        [None, None],
        [],
    ],
)
def test_objects_come_back_as_they_were(values):
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    back = frame_from_bytes(frame_to_bytes(frame))
    assert back["v"].dtype == object
    assert back["v"].tolist() == values
    assert list(map(type, back["v"])) == list(map(type, values)) or values == [1.5, None, 2]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([(1, 2), None], r"\(1, 2\)"),
        ([{"a": 1}, {"b": 2}], "'b': None"),
        ([np.array([1, 2])], "array"),
    ],
)
def test_objects_that_arrow_would_change_are_refused(values, named):
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    with pytest.raises(UnsupportedError, match=named):
        frame_to_bytes(frame)


def test_categories_that_arrow_does_not_give_back_are_refused():
    frame = pd.DataFrame({"v": pd.cut([1, 2, 3, 4], 2)})
    with pytest.raises(UnsupportedError, match="astype"):
        frame_to_bytes(frame)
    texts = frame.astype("str").astype("category")
    pd.testing.assert_frame_equal(frame_from_bytes(frame_to_bytes(texts)), texts)


@pytest.mark.parametrize(
    "categories",
    [
        pd.array(["a", "b"], "string"),
        pd.array(["a", "b"], pd.StringDtype("python", na_value=np.nan)),
        pd.array([1, 2], "Int16"),
        pd.array([True, False], "boolean"),
        pd.array([0.5, 1], "Float32"),
        pd.Index(["a", "b"], dtype=object),
        pd.array([1, 2], "int32[pyarrow]"),
        pd.array(["a", "b"], pd.ArrowDtype(pa.string())),
    ],
    ids=lambda categories: str(categories.dtype),
)
def test_categories_of_any_dtype_come_back(tmp_path, categories):
    values = pd.Categorical.from_codes([1, -1, 0], categories, ordered=True)
    frame = pd.DataFrame({"k": [1, 2, 3], "v": values})
    FrameIndex.build(frame, "k").save(tmp_path / "saved")
    back = FrameIndex.load(tmp_path / "saved").frame()
    assert_frame_equal(back, frame)
    assert back["v"].cat.categories.dtype == categories.dtype


def test_files_that_do_not_tell_the_dtype_of_categories():
    """As they were written before."""
    table = frames_of(EVERY_DTYPE).to_arrow(EVERY_DTYPE[["ordered"]])
    about = json.loads(table.schema.metadata[b"dgpuhash"])
    del about["categories"]
    old = {**table.schema.metadata, b"dgpuhash": json.dumps(about).encode()}
    back = frames_of(EVERY_DTYPE).from_arrow(table.replace_schema_metadata(old))
    assert_frame_equal(back, EVERY_DTYPE[["ordered"]])


def test_categories_that_come_back_as_others_are_refused():
    days = pd.Index([datetime.date(2020, 1, 1), "a"], dtype=object)
    frame = pd.DataFrame({"v": pd.Categorical.from_codes([0, 1], days)})
    with pytest.raises(UnsupportedError, match="astype"):
        frame_to_bytes(frame)


def test_integers_that_arrow_has_not():
    frame = pd.DataFrame({"v": pd.Series([2**70], dtype=object)})
    with pytest.raises(UnsupportedError, match="cannot be written to Arrow"):
        frame_to_bytes(frame)


def test_frames_of_an_unknown_library():
    with pytest.raises(UnsupportedError, match="'polars'"):
        frame_from_bytes(frame_to_bytes(pd.DataFrame({"v": [1]})), "polars")


@pytest.mark.parametrize(
    "changed",
    [
        {"categories": ["string", None]},
        {"categories": [None, "no such dtype"]},
        {"categories": [None]},
        {"categories": 5},
        {"strings": ["no such dtype", None]},
        {"labels": ["one"]},
    ],
    ids=str,
)
def test_hostile_descriptions_of_columns_are_refused(changed):
    frame = pd.DataFrame({"k": [1, 2], "v": pd.Categorical(["a", "b"])})
    table = frames_of(frame).to_arrow(frame)
    about = json.loads(table.schema.metadata[b"dgpuhash"]) | changed
    metadata = {**table.schema.metadata, b"dgpuhash": json.dumps(about).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table.replace_schema_metadata(metadata))
    with pytest.raises(FormatError):
        frame_from_bytes(sink.getvalue())
