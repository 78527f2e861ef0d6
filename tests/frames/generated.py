"""Pairs of frames for hypothesis, with comparable key columns.

The columns have every dtype that can hold their keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

INTEGERS = [-2, -1, 0, 1, 2, 3, None]
STRINGS = ["", "a", "b", "ab", "ä€", None]
DAYS = ["1969-12-31", "2020-02-29", "2020-03-01", None]
BOOLS = [False, True, None]

INTEGER_DTYPES = ["int8", "int64", "Int32", "Int64", "float32", "float64", "Float64"]
FAMILIES: dict[str, tuple[list[Any], list[Any]]] = {
    "integers": (INTEGERS, [*INTEGER_DTYPES, pd.ArrowDtype(pa.int64())]),
    "strings": (
        STRINGS,
        [
            "str",
            "object",
            "category",
            "string",
            pd.StringDtype("python", na_value=np.nan),
            pd.ArrowDtype(pa.string()),
        ],
    ),
    "days": (DAYS, ["M8[s]", "M8[us]", "M8[ns]"]),
    "zoned": (
        DAYS,
        [pd.DatetimeTZDtype("us", "UTC"), pd.DatetimeTZDtype("ns", "Europe/Berlin")],
    ),
    "spans": ([1, 2, 86_400, None], ["m8[us]"]),
    "bools": (BOOLS, ["bool", "boolean"]),
}
WITHOUT_NULL = {"int8", "int64", "bool"}


def column(values: list[Any], dtype: Any) -> pd.Series:
    """Return `values` as a Series, with None as the null of the dtype."""
    if str(dtype) == "category":
        return pd.Series(values, dtype="str").astype("category")
    if isinstance(dtype, pd.DatetimeTZDtype):
        stamps = pd.to_datetime(pd.Series(values, dtype="str")).astype(f"M8[{dtype.unit}]")
        return stamps.dt.tz_localize("UTC").astype(dtype)
    if str(dtype).startswith("M8"):
        return pd.to_datetime(pd.Series(values, dtype="str")).astype(dtype)
    if str(dtype).startswith("m8"):
        return pd.Series(pd.array(values, dtype="Int64")).astype("m8[s]").astype(dtype)
    if str(dtype) in {"float32", "float64"}:
        return pd.Series([np.nan if v is None else v for v in values], dtype=dtype)
    return pd.Series(values, dtype=dtype)


@st.composite
def keys(draw: st.DrawFn, family: str, rows: int) -> pd.Series:
    """Draw a key column of a family."""
    pool, dtypes = FAMILIES[family]
    dtype = draw(st.sampled_from(dtypes))
    if isinstance(dtype, str) and dtype in WITHOUT_NULL:
        pool = [value for value in pool if value is not None]
    values = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    return column(values, dtype)


@st.composite
def frame_pairs(draw: st.DrawFn, most_keys: int = 3) -> tuple[Any, Any, list[str], list[str]]:
    """Draw a left and a right frame, and the names of their key columns."""
    families = draw(st.lists(st.sampled_from(sorted(FAMILIES)), min_size=1, max_size=most_keys))
    left_rows, right_rows = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    left: dict[str, Any] = {"x": np.arange(left_rows)}
    right: dict[str, Any] = {}
    left_on, right_on = [], []
    for number, family in enumerate(families):
        name = f"k{number}"
        other = name if draw(st.booleans()) else f"r{number}"
        left[name] = draw(keys(family, left_rows))
        right[other] = draw(keys(family, right_rows))
        left_on.append(name)
        right_on.append(other)
    left["v"] = np.arange(left_rows) / 4
    right |= {
        "v": np.arange(right_rows, dtype="int16"),
        "flag": np.arange(right_rows) % 2 == 0,
        "text": column(["t", None, "u"] * 4, "str")[:right_rows],
        "kind": pd.Categorical(["p", "q", None] * 4)[:right_rows],
        "when": column([*DAYS] * 3, "M8[ms]")[:right_rows],
        "nullable": pd.array([7, None, 9] * 4, dtype="Int64")[:right_rows],
        "single": np.arange(right_rows, dtype="float32"),
    }
    return pd.DataFrame(left), pd.DataFrame(right), left_on, right_on
