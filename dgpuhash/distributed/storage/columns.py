"""Keys and values as columns of an Arrow file, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.tables.arguments.interop import has_common_unit

__all__ = ["to_arrow", "to_numpy"]

NAMES = ("key", "value")


def to_arrow(columns: Sequence[np.ndarray], dtypes: Sequence[np.dtype[Any]]) -> pa.Table:
    """A table of the columns ``"key"`` and ``"value"``, with these dtypes.

    Numbers and times are Arrow's own, times of other units, or multiples of one, int64, all other
    values fixed bytes.

    Examples
    --------
    >>> keys, values = np.array([7, 8]), np.array([b"a", b"b"])
    >>> to_arrow([keys, values], [keys.dtype, values.dtype]).schema
    key: int64
    value: fixed_size_binary[1]
    """
    arrays = []
    for column, dtype in zip(columns, dtypes, strict=True):
        if dtype.kind == "b":
            arrays.append(pa.array(column.view(bool)))
            continue
        data = pa.py_buffer(np.ascontiguousarray(column).reshape(-1).view(np.uint8))
        arrays.append(pa.Array.from_buffers(type_of(dtype), len(column), [None, data]))
    return pa.table(arrays, names=NAMES[: len(arrays)])


def to_numpy(table: pa.Table, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray]:
    """The columns that `to_arrow` was given; ValueError for a table that it has not made."""
    if not any(
        table.schema == pa.schema(zip(NAMES, map(of, dtypes), strict=False))
        for of in (type_of, _type_once)
    ):
        raise ValueError(f"its columns are {table.schema}")
    found = []
    for column, dtype in zip(table.combine_chunks().columns, dtypes, strict=True):
        if column.null_count:
            raise ValueError("it has nulls")
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if dtype.kind == "b":
            found.append(array.to_numpy(zero_copy_only=False))
            continue
        data = np.frombuffer(array.buffers()[1], np.uint8)
        first = array.offset * dtype.itemsize
        found.append(data[first : first + len(array) * dtype.itemsize].view(dtype))
    return found


def type_of(dtype: np.dtype[Any]) -> pa.DataType:
    """The type of a column of this dtype."""
    if dtype.kind in "mM":
        return pa.from_numpy_dtype(dtype) if has_common_unit(dtype) else pa.int64()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(dtype)
    return pa.binary(dtype.itemsize)


def _type_once(dtype: np.dtype[Any]) -> pa.DataType:
    """As `type_of`, in older files: multiples of a unit have the type of the unit."""
    if dtype.kind in "mM":
        dtype = np.dtype(f"{dtype.kind}8[{np.datetime_data(dtype)[0]}]")
    return type_of(dtype)
