"""Rows of a frame by the parts that own their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.distributed.cluster.serialization import Payload, is_plain, plain_arrays
from dgpuhash.distributed.partition.skew import NO_HEAVY, Heavy
from dgpuhash.frames import EncodedKeys, KeyEncoder, frames_of
from dgpuhash.tables.select import all_rows

__all__ = [
    "PARCEL_NBYTES",
    "Parted",
    "parcel_nbytes",
    "parted",
    "pieces",
    "pieces_of_arrays",
    "split",
    "split_to_all",
]


@dataclass(frozen=True, slots=True)
class Parted:
    """Columns in the order of the parts that their rows go to.

    Attributes
    ----------
    columns : list of array
    numbers : int64 array or None
        Where the rows stood, ascending for each part; None where that was not asked for.
    counts : numpy.ndarray of int64
        Rows of each part.
    """

    columns: list[Any]
    numbers: Any
    counts: np.ndarray


def parted(
    columns: Sequence[Any],
    key: int | None,
    encoded: EncodedKeys,
    owned: Sequence[Any] | int,
    *,
    owner_seed: int,
    numbered: bool,
) -> Parted:
    """Rows without nulls in the order of their parts, by one pass over them where that can be.

    Parameters
    ----------
    columns : list of array
    key : int or None
        Which of `columns` the codes are the bits of.
    encoded : EncodedKeys
        The keys of the rows.
    owned : list of int64 arrays, or int
        The rows of each part; or how many parts own the keys, all rows going to owners.
    owner_seed : int
        Of the hash of codes that chooses their owners.
    numbered : bool
        Whether to tell where rows stood.
    """
    device = backend.get(None, encoded.codes)
    if not isinstance(owned, int):
        rows = device.xp.concatenate(list(owned))
        counts = np.array([len(each) for each in owned], np.int64)
        return Parted([column[rows] for column in columns], rows, counts)
    if owned == 1:
        rows = all_rows(device, len(encoded)) if numbered else None
        return Parted(list(columns), rows, np.array([len(encoded)]))
    others = [number for number in range(len(columns)) if number != key]
    # One column moves with the codes; more follow by row numbers.
    beside = others[0] if key is not None and len(others) == 1 else None
    if beside is not None and columns[beside].dtype.itemsize not in (4, 8):
        beside = None
    words = None if beside is None else _words(columns[beside])
    follow = [number for number in others if number != beside]
    moved, starts = device.split(
        encoded.codes, words,
        parts=owned, seed=owner_seed, numbered=numbered or bool(follow),
    )  # fmt: skip
    found = {number: columns[number][moved.numbers] for number in follow}
    if key is not None:
        found[key] = moved.keys.view(columns[key].dtype)
    if beside is not None:
        found[beside] = moved.values.view(columns[beside].dtype)
    ends = device.to_host(starts).astype(np.int64)
    return Parted([found[number] for number in range(len(columns))], moved.numbers, np.diff(ends))


def _words(column: Any) -> Any:
    return column.view(f"u{column.dtype.itemsize}")


# A message of this size passes in 50 ms over TCP. Between GPUs a message takes the event loops of
# both ends some 0.6 ms, in which 200 MB would pass.
PARCEL_NBYTES = 64 << 20
_GPU_PARCELS = 4


def parcel_nbytes(device: str) -> int:
    """What a message between workers whose rows are on this device may have."""
    return PARCEL_NBYTES * (_GPU_PARCELS if device == "cuda" else 1)


def split(
    encoded: EncodedKeys, encoder: KeyEncoder, parts: int, heavy: Heavy = NO_HEAVY
) -> list[Any]:
    """For each part the rows that it owns, ascending, as int64 arrays on the rows' device.

    Rows of `heavy` keys are spread over all parts.
    """
    device = backend.get(None, encoded.codes)
    if parts == 1:
        return [device.xp.arange(len(encoded), dtype=np.int64)]
    if not heavy:
        # In the order of the codes' owners, rows of one owner in input order.
        moved, starts = device.split(
            encoded.codes, parts=parts, seed=encoder.seeds.owners, numbered=True
        )
        edges = device.to_host(starts).tolist()
        return [moved.numbers[start:end] for start, end in pairwise(edges)]
    owners = heavy.spread(encoder.owners(encoded.codes, parts), encoded.codes, parts)
    order, counts = device.multisplit(owners, parts)
    ends = np.cumsum(counts)
    return [order[end - count : end] for end, count in zip(ends, counts, strict=True)]


def split_to_all(encoded: EncodedKeys, encoder: KeyEncoder, parts: int, heavy: Heavy) -> list[Any]:
    """As `split`, with all rows of `heavy` keys for every part, after its own."""
    owned = split(encoded, encoder, parts)
    if parts == 1 or not heavy:
        return owned
    xp = backend.get(None, encoded.codes).xp
    among = heavy.among(encoded.codes)
    shared = xp.flatnonzero(among)
    if len(shared) == 0:
        return owned
    return [xp.concatenate([rows[~among[rows]], shared]) for rows in owned]


def pieces(
    frame: Any,
    owned: Sequence[Any],
    like: Any,
    nbytes: int | None = None,
    *,
    least_nbytes: int = 1,
) -> list[list[tuple[Any, Payload]]]:
    """For each part the rows that it owns, in pieces: row numbers, and what a message carries.

    Parameters
    ----------
    frame : DataFrame
    owned : sequence of int64 arrays
        The rows of each part.
    like : DataFrame
        An empty frame with the columns that are wanted, which the receiver has too.
    nbytes : int, optional
        What a piece may have, `parcel_nbytes` if not given; a single row may have more.
    least_nbytes : int
        What a row counts at least.

    Returns
    -------
    list of list of (int64 array, payload)
        Copies of just these rows: a slice of Arrow strings would travel whole.
    """
    moved = frame[list(like)]
    nbytes = nbytes or parcel_nbytes(frames_of(frame).device)
    # The only part may get the rows themselves, and a frame's copy knows that it shares them.
    arrays = None if len(owned) == 1 else plain_arrays(moved, like)
    if arrays is not None:
        return pieces_of_arrays(arrays, owned, nbytes, least_nbytes=least_nbytes)
    return _shared(owned, lambda rows: _pieces(moved, rows, nbytes, least_nbytes))


def pieces_of_arrays(
    arrays: Sequence[Any],
    owned: Sequence[Any],
    nbytes: int,
    *,
    least_nbytes: int = 1,
) -> list[list[tuple[Any, Payload]]]:
    """As `pieces`, for columns without nulls."""
    row_nbytes = max(least_nbytes, sum(array.dtype.itemsize for array in arrays))
    step = max(1, nbytes // row_nbytes)

    def cut(rows: Any) -> list[tuple[Any, Payload]]:
        own = [array[rows] for array in arrays]
        spans = [slice(start, start + step) for start in range(0, len(rows), step)]
        return [(rows[span], tuple(column[span] for column in own)) for span in spans]

    return _shared(owned, cut)


def _shared(
    owned: Sequence[Any], cut: Callable[[Any], list[tuple[Any, Payload]]]
) -> list[list[tuple[Any, Payload]]]:
    """The pieces of each part; parts that get the same rows share their memory.

    Not their frames: one goes to this worker's shard while another is sent, and no two threads may
    read one cuDF frame, which notes in itself how it is read.
    """
    found: dict[int, list[tuple[Any, Payload]]] = {}
    dealt = []
    for rows in owned:
        if id(rows) in found:
            own = [(some, _apart(piece)) for some, piece in found[id(rows)]]
        else:
            own = found[id(rows)] = cut(rows)
        dealt.append(own)
    return dealt


def _apart(piece: Payload) -> Payload:
    return piece if is_plain(piece) else piece.copy(deep=False)


def _pieces(moved: Any, rows: Any, nbytes: int, least_nbytes: int) -> list[tuple[Any, Any]]:
    frames = frames_of(moved)
    whole = frames.rows_nbytes(moved)
    row_nbytes = max(least_nbytes, whole // max(1, len(moved)))
    step = max(1, nbytes // row_nbytes)
    found = []
    ahead = [rows[start : start + step] for start in range(0, len(rows), step)][::-1]
    while ahead:
        some = ahead.pop()
        piece = frames.take(moved, some)
        if whole > nbytes and len(some) > 1 and frames.rows_nbytes(piece) > nbytes:
            # These rows are wider than others.
            middle = len(some) // 2
            ahead += [some[middle:], some[:middle]]
        else:
            found.append((some, piece))
    return found
