"""Rows taken of pandas columns, with nulls for -1, beside pandas' own."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash.frames.dataframes import frames_of, pandas_take

N = 7
NUMBERS = [
    "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "c8", "c16", "M8[ns]",
    "M8[s]", "m8[ns]", "m8[ms]",
]  # fmt: skip
OTHERS = [
    "Int8", "Int64", "UInt32", "Float32", "Float64", "string", "str", "category",
    "int64[pyarrow]", "string[pyarrow]", "datetime64[ns, UTC]", "Sparse[int]", "Sparse[float]",
]  # fmt: skip


def columns() -> dict[str, pd.Series]:
    numbers = pd.Series(range(N))
    made = {name: pd.Series(np.arange(N).astype(name)) for name in NUMBERS}
    made |= {name: numbers.astype(name) for name in OTHERS}
    days = [datetime.date(2020, 1, 1 + day) for day in range(N)]
    decimals = [decimal.Decimal(number) for number in range(N)]
    chunks = [pa.array([1.0, float("nan"), None]), pa.array([1.0, 2.0, 3.0, 4.0])]
    return made | {
        "boolean": (numbers > 2).astype("boolean"),
        "python texts": numbers.astype(str).astype(pd.StringDtype("python")),
        "texts and nulls": pd.Series(["a", None, "bb", "", "ccc", "d", "e"], dtype="str"),
        "objects": pd.Series(["a", 1, None, 2.5, np.nan, (1,), b"x"], dtype=object),
        "texts as objects": pd.Series(list("abcdefg"), dtype=object),
        "period": pd.Series(pd.period_range("2020", periods=N)),
        "interval": pd.Series(pd.interval_range(0, N)),
        "decimal": pd.Series(decimals, dtype=pd.ArrowDtype(pa.decimal128(10, 2))),
        "date": pd.Series(days, dtype=pd.ArrowDtype(pa.date32())),
        "lists": pd.Series([[day] for day in range(N)], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
        "chunks": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array(chunks))),
    }


FRAME = pd.DataFrame(columns())


@pytest.mark.parametrize("rows", [[3, 1, 1, -1, 6], [0, 1, 5], [-1, -1], [], [-1]])
@pytest.mark.parametrize("source", [FRAME, FRAME.iloc[:0], FRAME.iloc[::-1]])
@pytest.mark.parametrize("few_rows", [1000, -1], ids=["by blocks", "by columns"])
def test_rows_or_nulls(rows, source, few_rows, monkeypatch):
    monkeypatch.setattr(pandas_take, "_FEW_ROWS", few_rows)
    if len(source) <= max(rows, default=0):
        rows = [-1] * len(rows)
    rows = np.array(rows, np.int64)
    numbered = source.set_axis(pd.RangeIndex(len(source)), axis=0)
    wanted = numbered.reindex(rows) if (rows < 0).any() else numbered.take(rows)
    wanted.index = pd.RangeIndex(len(rows))
    frames = frames_of(source)
    pd.testing.assert_frame_equal(frames.take_or_null(source, rows), wanted)
    if len(rows) and rows.min() >= 0:
        pd.testing.assert_frame_equal(frames.take(source, rows), wanted)


def test_class_labels_and_attributes_stay():
    class Own(pd.DataFrame):
        @property
        def _constructor(self):
            return Own

    given = Own({"a": [1, 2], "b": ["x", "y"]})
    given = given.set_axis(pd.Index(["b", "b"], name="labels"), axis=1)
    given.attrs = {"source": "here"}
    made = frames_of(given).take(given, np.array([1, 0, 1]))
    assert type(made) is Own and made.attrs == given.attrs
    assert made.columns.equals(given.columns) and made.columns.name == "labels"
    assert made.to_numpy().tolist() == [[2, "y"], [1, "x"], [2, "y"]]
