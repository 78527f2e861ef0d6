"""Key columns read from frames: their nulls, and rows of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dgpuhash.frames.keys.encoding import KeyColumns, KeyEncoder

COLUMNS = {
    "int64": pd.Series([3, 1, 2]),
    "float64": pd.Series([0.5, None, -0.0]),
    "Int64": pd.Series([2**53 + 1, None, 1], dtype="Int64"),
    "str": pd.Series(["a", None, "ccc"], dtype="str"),
    "category": pd.Series(["b", None, "b"], dtype="category"),
    "datetime": pd.Series(pd.to_datetime(["2001-01-01", None, "1999-12-31"])),
    "null": pd.Series([None, None, None], dtype=object),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_keys_are_the_keys_of_rows(kind):
    frame = COLUMNS[kind].to_frame("k")
    keys, rows = KeyColumns.of(frame), np.array([2, 0, 0, 1])
    assert keys.complete.tolist() == frame["k"].notna().tolist()
    encoder = KeyEncoder.for_columns(keys)
    assert encoder == KeyEncoder(("k",), encoder.types, 64, encoder.seeds)
    taken = frame.take(rows).reset_index(drop=True)
    wanted, found = encoder.encode(taken), encoder.encode_columns(keys.take(rows))
    assert found.codes.tolist() == wanted.codes.tolist()
    assert KeyColumns.of(taken).complete.tolist() == keys.take(rows).complete.tolist()


def test_several_columns_are_complete_where_all_are():
    frame = pd.DataFrame({"a": COLUMNS["float64"], "b": pd.Series([1, 2, None], dtype="Int8")})
    assert KeyColumns.of(frame).complete.tolist() == [True, False, False]
    assert KeyColumns.of(frame, ["a"]).complete.tolist() == [True, False, True]
