"""Rows of a frame by the parts that own their keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.frames import EncodedKeys, KeyEncoder, frames_of

__all__ = ["PARCEL_NBYTES", "pieces", "split"]

# A message of this size is 20 times the comm's latency on a GPU, and passes in 50 ms over TCP.
PARCEL_NBYTES = 64 << 20


def split(encoded: EncodedKeys, encoder: KeyEncoder, parts: int) -> list[Any]:
    """For each part the rows that it owns, ascending, as int64 arrays on the rows' device."""
    device = backend.get(None, encoded.codes)
    if parts == 1:
        return [device.xp.arange(len(encoded), dtype=np.int64)]
    owners = encoder.owners(encoded.codes, parts)
    order, counts = device.multisplit(owners, parts)
    ends = np.cumsum(counts)
    return [order[end - count : end] for end, count in zip(ends, counts, strict=True)]


def pieces(
    frame: Any,
    owned: Sequence[Any],
    columns: Sequence[Hashable],
    nbytes: int | None = None,
    *,
    least_nbytes: int = 1,
) -> list[list[tuple[Any, Any]]]:
    """For each part the rows that it owns, in pieces: row numbers, and a frame.

    Parameters
    ----------
    frame : DataFrame
    owned : sequence of int64 arrays
        The rows of each part.
    columns : sequence of labels
    nbytes : int, optional
        What a piece may have, `PARCEL_NBYTES` if not given; a single row may have more.
    least_nbytes : int
        What a row counts at least.

    Returns
    -------
    list of list of (int64 array, DataFrame)
        The frames are copies of just these rows: a slice of Arrow strings would travel whole.
    """
    frames = frames_of(frame)
    moved = frame[list(columns)]
    nbytes = nbytes or PARCEL_NBYTES
    whole = frames.rows_nbytes(moved)
    row_nbytes = max(least_nbytes, whole // max(1, len(moved)))
    step = max(1, nbytes // row_nbytes)
    found = []
    for rows in owned:
        ahead = [rows[start : start + step] for start in range(0, len(rows), step)][::-1]
        part = []
        while ahead:
            some = ahead.pop()
            piece = frames.take(moved, some)
            if whole > nbytes and len(some) > 1 and frames.rows_nbytes(piece) > nbytes:
                # These rows are wider than others.
                middle = len(some) // 2
                ahead += [some[middle:], some[:middle]]
            else:
                part.append((some, piece))
        found.append(part)
    return found
