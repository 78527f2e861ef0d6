"""Ids of records: their headers up to the first blank."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.kmer.sequences.arrow_arrays import spans_of
from dgpuhash.kmer.sequences.batches import SequenceBatch

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
