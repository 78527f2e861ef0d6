"""Partition rows by owning shard, and cut them into message chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.distributed.cluster.serialization import Payload, chunk_nbytes, is_plain, plain_arrays
from dgpuhash.distributed.partition.skew import NO_HEAVY, HeavyKeys
from dgpuhash.frames import EncodedKeys, KeyEncoder, frames_of
from dgpuhash.tables.select import row_numbers


@dataclass(frozen=True, slots=True)
class PartitionedColumns:
    """Rows ordered by destination shard, as columns.

    Attributes
    ----------
    columns : list of array
    numbers : int64 array or None
        Input positions of the rows, ascending for each shard; None where they were not requested.
    counts : numpy.ndarray of int64
        Rows of each shard.
    """

    columns: list[Any]
    numbers: Any
    counts: np.ndarray


def partition_columns(
    columns: Sequence[Any],
    key: int | None,
    encoded: EncodedKeys,
    owned: Sequence[Any] | int,
    *,
    owner_seed: int,
    numbered: bool,
) -> PartitionedColumns:
    """Partition null-free columns by shard, in one pass where possible.

    Parameters
    ----------
    columns : list of array
    key : int or None
        The position in `columns` of the column whose bits the codes are.
    encoded : EncodedKeys
        The keys of the rows.
    owned : list of int64 arrays, or int
        The rows of each shard; or the number of shards, where all rows go to their owners.
    owner_seed : int
        Seed of the hash that chooses the owner of a code.
    numbered : bool
        Whether to return the input positions of the rows.
    """
    device = backend.get(None, encoded.codes)
    if not isinstance(owned, int):
        rows = device.xp.concatenate(list(owned))
        counts = np.array([len(each) for each in owned], np.int64)
        return PartitionedColumns([column[rows] for column in columns], rows, counts)
    if owned == 1:
        rows = row_numbers(device, len(encoded)) if numbered else None
        return PartitionedColumns(list(columns), rows, np.array([len(encoded)]))
    others = [number for number in range(len(columns)) if number != key]
    # One column moves with the codes; others are gathered by row number.
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
    return PartitionedColumns(
        [found[number] for number in range(len(columns))], moved.numbers, np.diff(ends)
    )


def _words(column: Any) -> Any:
    return column.view(f"u{column.dtype.itemsize}")


def partition_rows(
    encoded: EncodedKeys, encoder: KeyEncoder, parts: int, heavy: HeavyKeys = NO_HEAVY
) -> list[Any]:
    """Hash partition rows: return the positions that each shard owns.

    The int64 arrays are ascending, on the rows' device. Rows of `heavy` keys are spread over all
    shards.
    """
    device = backend.get(None, encoded.codes)
    if parts == 1:
        return [device.xp.arange(len(encoded), dtype=np.int64)]
    if not heavy.codes:
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


def partition_rows_with_heavy(
    encoded: EncodedKeys, encoder: KeyEncoder, parts: int, heavy: HeavyKeys
) -> list[Any]:
    """Hash partition rows, with rows of `heavy` keys for every shard.

    As `partition_rows`; rows of heavy keys follow the other rows of a shard.
    """
    owned = partition_rows(encoded, encoder, parts)
    if parts == 1 or not heavy.codes:
        return owned
    xp = backend.get(None, encoded.codes).xp
    among = heavy.among(encoded.codes)
    shared = xp.flatnonzero(among)
    if len(shared) == 0:
        return owned
    return [xp.concatenate([rows[~among[rows]], shared]) for rows in owned]


def cut_into_chunks(
    frame: Any,
    owned: Sequence[Any],
    like: Any,
    nbytes: int | None = None,
    *,
    least_nbytes: int = 1,
) -> list[list[tuple[Any, Payload]]]:
    """Cut each shard's rows into chunks: (row positions, payload) pairs.

    Parameters
    ----------
    frame : DataFrame
    owned : sequence of int64 arrays
        The rows of each shard.
    like : DataFrame
        An empty frame with the requested columns; the receiver has it, too.
    nbytes : int, optional
        Size limit of a chunk, default `chunk_nbytes`; a single row may be larger.
    least_nbytes : int
        Size that a row counts at least, in bytes.

    Returns
    -------
    list of list of (int64 array, payload)
        By shard. Payloads are copies of these rows: a slice of Arrow strings is serialized whole.
    """
    moved = frame[list(like)]
    nbytes = nbytes or chunk_nbytes(frames_of(frame).device)
    # A single shard gets its rows uncopied: a frame, unlike arrays, tracks shared memory.
    arrays = None if len(owned) == 1 else plain_arrays(moved, like)
    if arrays is not None:
        return cut_arrays_into_chunks(arrays, owned, nbytes, least_nbytes=least_nbytes)
    whole = frames_of(moved).rows_nbytes(moved)
    return _cut_shared(owned, lambda rows: _pieces(moved, whole, rows, nbytes, least_nbytes))


def cut_arrays_into_chunks(
    arrays: Sequence[Any],
    owned: Sequence[Any],
    nbytes: int,
    *,
    least_nbytes: int = 1,
) -> list[list[tuple[Any, Payload]]]:
    """Cut each shard's rows into chunks; as `cut_into_chunks`, for null-free columns."""
    row_nbytes = max(least_nbytes, sum(array.dtype.itemsize for array in arrays))
    step = max(1, nbytes // row_nbytes)

    def cut(rows: Any) -> list[tuple[Any, Payload]]:
        own = [array[rows] for array in arrays]
        spans = [slice(start, start + step) for start in range(0, len(rows), step)]
        return [(rows[span], tuple(column[span] for column in own)) for span in spans]

    return _cut_shared(owned, cut)


def _cut_shared(
    owned: Sequence[Any], cut: Callable[[Any], list[tuple[Any, Payload]]]
) -> list[list[tuple[Any, Payload]]]:
    """Cut each shard's rows; shards with equal rows share memory.

    They do not share frames: one goes to this worker's shard while another is sent, and no two
    threads may read one cuDF frame, since reading modifies its cached state.
    """
    found: dict[int, list[tuple[Any, Payload]]] = {}
    dealt = []
    for rows in owned:
        if id(rows) in found:
            own = [(some, _shallow_copy(piece)) for some, piece in found[id(rows)]]
        else:
            own = found[id(rows)] = cut(rows)
        dealt.append(own)
    return dealt


def _shallow_copy(piece: Payload) -> Payload:
    return piece if is_plain(piece) else piece.copy(deep=False)


def _pieces(
    moved: Any, whole: int, rows: Any, nbytes: int, least_nbytes: int
) -> list[tuple[Any, Any]]:
    """Return some rows of a frame of `whole` bytes in chunks, with their positions."""
    frames = frames_of(moved)
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
