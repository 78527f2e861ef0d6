"""Tagged text of key values: domains, numbers of all types, and types that come back."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.tagged import (
    order_of,
    tag_values,
    text_of,
    text_of_typed,
    value_of_typed,
)

DAY = pd.Timestamp("2020-01-01")
# Values of one line are equal, those of different lines never.
EQUAL = [
    [1, True, 1.0, Decimal("1.0"), np.int8(1), np.uint64(1), np.float32(1), np.bool_(True),
     Fraction(1), 1 + 0j],
    [0, False, -0.0, Decimal("-0")],
    [2**53, 2.0**53, Decimal(2**53)], [2**53 + 1], [2**70, 2.0**70],
    [0.5, Decimal("0.50"), np.float16(0.5)], [0.1], [Decimal("0.1")],
    [float("inf"), Decimal("Infinity")], [float("-inf")], [1 + 2j],
    ["1"], ["\0n1/1"], [""], ["2020-01-01"], [b"1"], [b""], [b"\xff"], ["ÿ"],
    [DAY, dt.datetime(2020, 1, 1), np.datetime64("2020-01-01"), DAY.as_unit("s")],
    [DAY.tz_localize("UTC"), pd.Timestamp("2020-01-01 01:00", tz="Europe/Berlin")],
    [dt.datetime(1, 1, 1), pd.Timestamp(1, 1, 1)], [dt.date(2020, 1, 1)], [dt.time(1)],
    [pd.Timedelta(days=1), dt.timedelta(days=1), np.timedelta64(1, "D")],
    [pd.Period("2020", "D")], [pd.Period("2020", "M")],
    [pd.Interval(1, 2), pd.Interval(1.0, 2.0)], [pd.Interval(1, 2, "left")],
    [(1, "a"), (1.0, "a")], [("1", "a")], [("1a",)], [uuid.UUID(int=5)],
]  # fmt: skip


def test_values_have_one_text_where_they_are_equal():
    texts = [{text_of(value) for value in line} for line in EQUAL]
    assert all(len(each) == 1 for each in texts)
    assert len(set.union(*texts)) == len(EQUAL)


def test_values_come_back_with_their_types():
    values = [each for line in EQUAL for each in line]
    back = [value_of_typed(text_of_typed(each)) for each in values]
    assert [(type(each), repr(each)) for each in back] == [(type(v), repr(v)) for v in values]


def test_columns_of_any_dtype_have_the_texts_of_their_values():
    for column in (
        pd.Series([1, None], dtype="Int64"), pd.Series([True, False]), pd.Series([0.5, np.nan]),
        pd.Series([2**53 + 1, None], dtype="int64[pyarrow]"), pd.Series([DAY, pd.NaT]),
        pd.Series([Decimal("1.50")], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        pd.Series([b"a", None], dtype=pd.ArrowDtype(pa.binary())),
        pd.Series([dt.date(2020, 1, 1), None], dtype="date32[pyarrow]"),
        pd.Series(["a", None, "\0s"], dtype="str"), pd.Series(["a", "b"], dtype="category"),
        pd.Series(["a", None, pd.NaT, "\0b"], dtype=object), pd.Series([None], dtype=object),
    ):  # fmt: skip
        wanted = [None if pd.isna(each) else text_of(each) for each in column.astype(object)]
        found = tag_values(column, "k")
        assert found.dtype == "str"
        assert found.astype(object).where(found.notna(), None).tolist() == wanted
    with pytest.raises(KeyTypeError, match="holds a list"):
        tag_values(pd.Series([[1]]), "k")
    with pytest.raises(KeyTypeError, match="UTF-8"):
        tag_values(pd.Series(["\udc80", 1], dtype=object), "k")


def test_order_is_by_domain_and_size():
    values = ["10", 9, b"b", 10.5, Decimal(10), "1", dt.date(2020, 1, 1), b"a", DAY, (2, "a"), (1,)]
    assert [values[place] for place in order_of(values)] == [
        9, Decimal(10), 10.5, DAY, dt.date(2020, 1, 1), b"a", b"b", (1,), (2, "a"), "1", "10",
    ]  # fmt: skip
