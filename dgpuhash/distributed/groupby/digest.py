"""Digest the rows of partitions, to detect changes of a source between two reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

_BATCH = 2**14
_PLACES = np.arange(1, 2 * _BATCH, 2, dtype=np.uint64)


def digest_of(frame: Any) -> str:
    """Return a digest of the rows of a frame or Series, the same wherever it is computed.

    It covers numbers, datetimes, categories' codes and strings bit by bit. Of other objects it
    covers only the number of nulls.

    Examples
    --------
    >>> digest_of(pd.DataFrame({"a": [1.5, 2.5]})) == digest_of(pd.DataFrame({"a": [1.5, 2.5]}))
    True
    >>> digest_of(pd.DataFrame({"a": [1.5, 2.5]})) == digest_of(pd.DataFrame({"a": [2.5, 1.5]}))
    False
    """
    made = hashlib.blake2b(digest_size=16)
    made.update(f"{len(frame)}".encode())
    if hasattr(frame, "hash_values"):
        # Frames of cuDF.
        words = [int(frame.hash_values("xxhash64").values.sum())]
    else:
        columns = [frame] if frame.ndim == 1 else [frame.iloc[:, n] for n in range(frame.shape[1])]
        if not isinstance(frame.index, pd.RangeIndex):
            columns += [frame.index.get_level_values(n) for n in range(frame.index.nlevels)]
        words = [_sum(words) for column in columns for words in _words(column)]
    made.update(repr(words).encode())
    return made.hexdigest()


def _words(column: Any) -> Iterator[Any]:
    """Yield the values of a column as unsigned integers."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        column = column.cat if isinstance(column, pd.Series) else column
        yield _bits(np.asarray(column.codes))
    elif isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        yield _bits(column.to_numpy())
    elif isinstance(dtype, pd.DatetimeTZDtype):
        yield _bits(np.asarray(column.array.asi8))
    elif isinstance(dtype, pd.StringDtype | pd.ArrowDtype):
        found = pa.array(column, from_pandas=True)
        whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        yield from _buffers(whole)
    elif hasattr(column.array, "_data") and isinstance(column.array._data, np.ndarray):
        nulls = column.isna()
        yield _bits(np.asarray(nulls))
        yield _bits(np.where(nulls, column.array._data.dtype.type(0), column.array._data))
    else:
        yield _bits(np.asarray(column.isna()))


def _buffers(chunk: pa.Array) -> Iterator[Any]:
    if pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type):
        wide = chunk.cast(pa.large_string())
        offsets = np.frombuffer(wide.buffers()[1], np.int64)[chunk.offset :][: len(chunk) + 1]
        yield _bits(np.diff(offsets))
        data = wide.buffers()[2]
        if data is not None and len(offsets):
            letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
            whole = len(letters) // 8 * 8
            # Wherever they begin in memory.
            yield np.frombuffer(letters[:whole], np.uint64)
            yield letters[whole:]
    nulls = np.asarray(chunk.is_null())
    width = chunk.type.bit_width if pa.types.is_primitive(chunk.type) else 0
    if width in (8, 16, 32, 64):
        values = np.frombuffer(chunk.buffers()[1], f"u{width // 8}")[chunk.offset :][: len(chunk)]
        yield np.where(nulls, values.dtype.type(0), values)
    elif width == 1:
        yield _bits(np.asarray(chunk.fill_null(False)))
    yield _bits(nulls)


def _bits(values: Any) -> Any:
    """Return an array of numbers as unsigned integers of at most 8 bytes."""
    size = min(8, values.dtype.itemsize)
    return np.ascontiguousarray(values).view(f"u{size}")


def _sum(words: Any) -> int:
    """Return a sum of integers weighted by position."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for start in range(0, len(words), _BATCH):
            # What is computed of some words stays in the cache.
            some = words[start : start + _BATCH].astype(np.uint64, copy=False)
            sums = np.dot(some, _PLACES[: len(some)]), some.sum(dtype=np.uint64)
            total += sums[0] + sums[1] * np.uint64(2 * start)
    return int(total)
