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
) -> list[list[tuple[Any, Any]]]:
    """For each part the rows that it owns, in pieces of about `nbytes`: row numbers, and a frame.

    The frames are copies of just these rows: a slice of Arrow strings would travel whole.
    """
    frames = frames_of(frame)
    moved = frame[list(columns)]
    row_nbytes = max(1, frames.nbytes(moved) // max(1, len(moved)))
    step = max(1, (nbytes or PARCEL_NBYTES) // row_nbytes)
    return [
        [
            (rows[start : start + step], frames.take(moved, rows[start : start + step]))
            for start in range(0, len(rows), step)
        ]
        for rows in owned
    ]
