"""Convert arrays between NumPy and Arrow without pandas.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` import pandas, some of them from C++, where
Ctrl-C is lost; and that takes longer than a small build.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def spans_of(items: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Any:
    """Return the spans ``items[starts[i]:ends[i]]`` as an Arrow array of bytes."""
    import pyarrow as pa

    sizes = ends - starts
    offsets = np.append(0, np.cumsum(sizes))
    if len(sizes) and np.array_equal(starts[1:], ends[:-1]):
        packed = items[starts[0] : ends[-1]]
    else:
        packed = items[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    buffers = [pa.py_buffer(np.ascontiguousarray(array)) for array in (offsets, packed)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), [None, *buffers])


def numbers_of(array: np.ndarray, absent: np.ndarray | None = None) -> Any:
    """Return numbers or bools as an Arrow array, with nulls where `absent`.

    Examples
    --------
    >>> numbers_of(np.array([True, False])).to_pylist(), numbers_of(np.arange(2)).to_pylist()
    ([True, False], [0, 1])
    """
    import pyarrow as pa

    kind = pa.from_numpy_dtype(array.dtype)
    words = np.packbits(array, bitorder="little") if array.dtype == bool else array
    valid = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    buffer = pa.py_buffer(np.ascontiguousarray(words))
    return pa.Array.from_buffers(kind, len(array), [valid, buffer])


def numpy_of(values: Any) -> np.ndarray:
    """Return a null-free Arrow array of numbers or bools as a NumPy array.

    Examples
    --------
    >>> numpy_of(numbers_of(np.arange(5))[2:4]), numpy_of(numbers_of(np.array([True, False])))
    (array([2, 3]), array([ True, False]))
    """
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return numpy_of(values.combine_chunks())
    assert values.null_count == 0
    span = slice(values.offset, values.offset + len(values))
    data = values.buffers()[1] or b""
    if pa.types.is_boolean(values.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[span] == 1
    return np.frombuffer(data, str(values.type))[span]


def bytes_array(texts: Sequence[str | bytes]) -> Any:
    """Return texts as an Arrow array of bytes.

    Examples
    --------
    >>> bytes_array(["a", b"bc"]).to_pylist()
    [b'a', b'bc']
    """
    import pyarrow as pa

    coded = [text.encode() if isinstance(text, str) else text for text in texts]
    ends = np.zeros(len(coded) + 1, np.int64)
    np.cumsum([len(text) for text in coded], out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(coded))]
    return pa.Array.from_buffers(pa.large_binary(), len(coded), buffers)


def strings_of(texts: Sequence[str]) -> Any:
    """Return texts as an Arrow array of strings.

    Examples
    --------
    >>> strings_of(["a", "bc"]).to_pylist()
    ['a', 'bc']
    """
    import pyarrow as pa

    return bytes_array(texts).cast(pa.large_string()).cast(pa.string())
