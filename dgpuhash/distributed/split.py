"""Rows of a frame by the parts that own their keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
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
    frame: Any, rows: Any, columns: Sequence[Hashable], nbytes: int = PARCEL_NBYTES
) -> Iterator[tuple[Any, Any]]:
    """Those `rows` of `frame`, in pieces of about `nbytes` bytes: the rows, and a frame of them."""
    frames = frames_of(frame)
    moved = frame[list(columns)]
    row_nbytes = max(1, frames.nbytes(moved) // max(1, len(moved)))
    step = max(1, nbytes // row_nbytes)
    for start in range(0, len(rows), step):
        piece = rows[start : start + step]
        yield piece, frames.take(moved, piece)
