"""Columns of text put together in Arrow's kernels, many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.kmer.sequences.arrow_arrays import bytes_array, numbers_of


def texts_of(numbers: np.ndarray) -> Any:
    """Return integers as an Arrow array of bytes; of many equal ones each is written once.

    Examples
    --------
    >>> texts_of(np.array([562, -3, 562])).to_pylist()
    [b'562', b'-3', b'562']
    """
    import pyarrow as pa

    encoded = numbers_of(numbers).dictionary_encode()
    distinct = encoded.dictionary.cast(pa.large_string()).cast(pa.large_binary())
    return distinct.take(encoded.indices)


def taken(texts: Sequence[str | bytes], places: np.ndarray) -> Any:
    """Return the text at each place as an Arrow array of bytes.

    Examples
    --------
    >>> taken(["U", "C"], np.array([1, 0])).to_pylist()
    [b'C', b'U']
    """
    return at_places(bytes_array(texts), places)


def at_places(texts: Any, places: np.ndarray) -> Any:
    """Return the text of an Arrow array at each place."""
    return texts.take(numbers_of(places))


def joined(columns: Sequence[Any], separator: bytes = b"\t") -> Any:
    """Return the texts of each row with a separator between them.

    Examples
    --------
    >>> columns = [taken(["a", "b"], np.arange(2)), texts_of(np.array([7, 8]))]
    >>> joined(columns, b":").to_pylist()
    [b'a:7', b'b:8']
    """
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, text_scalar(separator))


def in_lists(texts: Any, offsets: np.ndarray, separator: bytes) -> Any:
    """Return the texts from each offset to the next, with a separator between them.

    Examples
    --------
    >>> in_lists(taken(["a", "b"], np.array([0, 1, 1])), np.array([0, 2, 2, 3]), b" ").to_pylist()
    [b'a b', b'', b'b']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pa.LargeListArray.from_arrays(numbers_of(offsets), texts)
    return pc.binary_join(lists, text_scalar(separator))


def bytes_of(lines: Any) -> memoryview:
    """Return all texts of an Arrow array, one after another.

    Examples
    --------
    >>> bytes(bytes_of(taken(["a", "b"], np.array([0, 1, 1]))))
    b'abb'
    """
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(text)[ends[0] : ends[-1]] if text is not None else memoryview(b"")


def text_scalar(text: bytes) -> Any:
    """Return a text as an Arrow scalar of bytes; as `numbers_of` without pandas."""
    return bytes_array([text])[0]
