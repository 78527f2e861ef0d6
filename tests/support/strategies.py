"""Hypothesis strategies for keys, values and sequences of verbs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

__all__ = [
    "KEY_COLUMNS",
    "KEY_DTYPES",
    "RECORD",
    "VALUE_DTYPES",
    "key_pool",
    "keys_from",
    "random_keys",
    "random_values",
]

KEY_DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "datetime64[ns]",
    "datetime64[D]",
    "timedelta64[s]",
]

# Keys of 16 bytes, which `auto` has.
RECORD = np.dtype([("high", "<u8"), ("low", "<u8")])

VALUE_DTYPES = [
    "bool",
    "int8",
    "uint16",
    "float16",
    "int32",
    "float32",
    "int64",
    "float64",
    "datetime64[s]",
    "complex64",
    "complex128",
    "S3",
    "S8",
    "U5",
    "V17",
    "i4,f8,S4",
]


def key_pool(dtype: Any) -> np.ndarray:
    """Return keys at the edges: internal patterns, extremes, NaN, NaT, -0.0."""
    made = np.dtype(dtype)
    if made.names is not None:
        # Halves of marks beside others: what a half that is read too early would look like.
        halves = np.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)
        pairs = np.stack(np.meshgrid(halves, halves), -1).reshape(-1, 2)
        return np.ascontiguousarray(pairs).view(made).reshape(-1)
    unsigned = np.dtype(f"u{made.itemsize}")
    top = np.iinfo(unsigned).max
    if made.kind == "b":
        return np.array([False, True])
    patterns = [0, 1, 2, 3, top, top - 1, top - 2, top // 2, top // 2 + 1, top // 2 + 2]
    raw = np.array(patterns, unsigned).view(made)
    if made.kind == "f":
        special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, 1.5, np.finfo(made).tiny]
        raw = np.concatenate([raw, np.array(special, made)])
    return np.concatenate([raw, np.arange(4, 24).astype(unsigned).view(made)])


def keys_from(dtype: Any, *, most: int = 60) -> st.SearchStrategy[np.ndarray]:
    """Draw batches of keys from the pool, with many duplicates."""
    pool = key_pool(dtype)
    rows = st.lists(st.integers(0, len(pool) - 1), max_size=most)
    return rows.map(lambda chosen: pool[np.array(chosen, np.intp)])


def random_keys(dtype: Any, n: int, seed: int, *, distinct: int | None = None) -> np.ndarray:
    """Return `n` keys with random bits, out of `distinct` different keys.

    The keys of the pool are among them.
    """
    made = np.dtype(dtype)
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, (distinct or n, made.itemsize), np.uint8)
    if made.kind == "b":
        raw &= 1
    keys = raw.view(made).reshape(-1)
    keys = np.concatenate([keys, key_pool(made)])
    return random.choice(keys, n)


def random_values(dtype: Any, n: int, seed: int) -> np.ndarray:
    """Return `n` values with random bits."""
    made = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if made.kind == "b":
        return random.integers(0, 2, n).astype(bool)
    if made.kind in "SU":
        return random.integers(0, 1000, n).astype(made)
    return random.integers(0, 256, (n, made.itemsize), np.uint8).view(made).reshape(-1)


# Columns of keys of each kind, from numbers and None.
KEY_COLUMNS: dict[str, Any] = {
    "ints": lambda keys: pd.Series([0 if k is None else k for k in keys], dtype="int64"),
    "floats": lambda keys: pd.Series([np.nan if k is None else k / 2 for k in keys], dtype=float),
    "nullable": lambda keys: pd.Series(keys, dtype="Int64"),
    "texts": lambda keys: pd.Series([None if k is None else f"k{k}" for k in keys], dtype="str"),
    # Of None pandas makes NaN in some joins.
    "objects": lambda keys: pd.Series(
        [np.nan if k is None else f"k{k}" for k in keys], dtype=object
    ),
    "categories": lambda keys: pd.Series(
        pd.Categorical([None if k is None else f"k{k}" for k in keys], [f"k{k}" for k in range(6)])
    ),
    "moments": lambda keys: pd.Series(
        [pd.NaT if k is None else pd.Timestamp(2026, 1, 1 + k) for k in keys], dtype="M8[us]"
    ),
    "zoned": lambda keys: pd.Series(
        pd.to_datetime(
            [pd.NaT if k is None else pd.Timestamp(2026, 1, 1 + k) for k in keys], utc=True
        )
    ),
    "periods": lambda keys: pd.Series(
        [pd.NaT if k is None else pd.Period(ordinal=k, freq="M") for k in keys],
        dtype="period[M]",
    ),
}
