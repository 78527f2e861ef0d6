"""Ids of records: their headers up to the first blank."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.kmer.sequences.batches import SequenceBatch

__all__ = ["ids_of", "numbers_of", "spans_of"]

_BLANK = ord(" ")
_SLASH, _ONE, _TWO = b"/12"


def ids_of(batch: SequenceBatch, *, paired: bool = False) -> Any:
    """Return the id of each record as an Arrow array of bytes.

    Parameters
    ----------
    batch : SequenceBatch
    paired : bool
        Whether ``/1`` and ``/2`` at the end are left out.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dgpuhash.kmer import read_sequences
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "two.fa")
    >>> _ = fasta.write_text(">first/1 of two\\nACGT\\n>second\\nGG\\n")
    >>> (batch,) = read_sequences(fasta)
    >>> ids_of(batch, paired=True).to_pylist()
    [b'first', b'second']
    """
    names, starts, ends = batch.names, batch.name_offsets[:-1], batch.name_offsets[1:]
    is_blank = names <= _BLANK
    if len(names) and is_blank[np.minimum(starts, len(names) - 1)].any():
        # Blanks before an id are no part of it.
        starts = np.minimum(_first(~is_blank, starts), ends)
    ends = np.minimum(_first(is_blank, starts), ends)
    if paired and len(names):
        last = names[np.maximum(ends - 1, 0)]
        is_marked = (ends - starts > 2) & (names[np.maximum(ends - 2, 0)] == _SLASH)
        ends = ends - 2 * (is_marked & ((last == _ONE) | (last == _TWO)))
    return spans_of(names, starts, ends)


def _first(is_one: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the first place at or behind each start that is one; behind all where none is."""
    places = np.append(np.flatnonzero(is_one), len(is_one))
    return places[np.searchsorted(places[:-1], starts)]


def spans_of(items: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Any:
    """Return ``items[starts[i]:ends[i]]`` of each i as an Arrow array of bytes."""
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
    """Return numbers, or bools, as an Arrow array, with nulls where they are `absent`.

    Unlike ``pyarrow.array`` it does not import pandas, which takes as long as a few batches.

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
