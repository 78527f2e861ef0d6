"""Keys to the owners of their rows, and the answers in the order of the keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.distributed.arrival import asked_of_several, in_order, of_any
from dgpuhash.distributed.descriptor import Descriptor, Placement
from dgpuhash.distributed.payload import Payload, is_plain, joined, plain_arrays
from dgpuhash.distributed.question import Asker
from dgpuhash.distributed.routes import asked_rows, part_near
from dgpuhash.distributed.split import parcel_nbytes, pieces, pieces_of_arrays
from dgpuhash.frames import POSITION_NBYTES, EncodedKeys, frames_of, in_query_order
from dgpuhash.tables.scarcity import call_says_memory

__all__ = ["keys_of", "match"]


def keys_of(left: Any, descriptor: Descriptor, left_on: Sequence[Hashable]) -> Payload:
    """The columns of `left` that are compared with the index's key columns."""
    names, frames = descriptor.encoder.names, frames_of(left)
    arrays = plain_arrays(left[list(left_on)], descriptor.meta[list(names)])
    if arrays is not None:
        return arrays
    return frames.make(dict(zip(names, (left[one] for one in left_on), strict=True)))


@call_says_memory
def match(
    worker: Any,
    keys: Payload,
    count: int,
    descriptor: Descriptor,
    how: str,
    columns: Sequence[Hashable],
) -> tuple[Any, Payload | None]:
    """As `FrameIndex.match`, by requests to the owners of the keys; a tuple of arrays where it can.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks.
    keys : tuple of arrays, or DataFrame
        As `keys_of` gives them, or several of these one after the other.
    count : int
        How many.
    descriptor : Descriptor
    how : {"inner", "left", "semi", "anti"}
    columns : sequence of labels
        The columns of the index that are wanted.
    """
    if descriptor.placement is Placement.REPLICATED and worker.address in descriptor.workers:
        part = part_near(descriptor.shards, worker.address)
        rows, found, _ = Asker(worker, descriptor, how, columns).ask_here(part, keys).outcome()
        return rows, found
    apart = descriptor.placement is Placement.INDEPENDENT
    questions = questions_to(keys, count, descriptor, how, worker.address)
    asker = Asker(worker, descriptor, *asked_of_several(how, columns, apart))
    answers = asker.ask_all(questions)
    xp = frames_of(descriptor.meta).xp
    query_rows = xp.concatenate([rows for rows, _ in answers] or [xp.zeros(0, dtype="int64")])
    if how in {"semi", "anti"}:
        return of_any(query_rows, count, how, xp), None
    if not answers:
        return query_rows, descriptor.meta[list(columns)]
    if apart:
        found = joined([payload for _, payload in answers], descriptor.stored[asker.columns])
        names = descriptor.encoder.names
        return descriptor.conflict.settle(*in_order(query_rows, found), names)
    found = [payload for _, payload in answers]
    return _in_query_order(query_rows, count, found, asker.columns, descriptor)


def questions_to(
    keys: Payload, count: int, descriptor: Descriptor, how: str, address: str
) -> list[list[tuple[Any, Payload]]]:
    """For each part the rows that it is asked about, in pieces: their positions, and their keys."""
    encoder = descriptor.encoder
    frames = frames_of(descriptor.meta)

    def encode() -> EncodedKeys:
        return encoder.encode_arrays(keys, frames) if is_plain(keys) else encoder.encode(keys)

    owned = asked_rows(count, encode, descriptor, how, address)
    # The answer may be a position for each key.
    nbytes = parcel_nbytes(frames.device)
    if is_plain(keys):
        return pieces_of_arrays(keys, owned, nbytes, least_nbytes=POSITION_NBYTES)
    like = descriptor.meta[list(encoder.names)]
    return pieces(keys, owned, like, nbytes, least_nbytes=POSITION_NBYTES)


def _in_query_order(
    query_rows: Any,
    count: int,
    payloads: list[Payload],
    columns: list[Hashable],
    descriptor: Descriptor,
) -> tuple[Any, Payload]:
    frames = frames_of(descriptor.meta)
    order = None
    if len(payloads) > 1 or bool((query_rows[1:] < query_rows[:-1]).any()):
        query_rows, order, _ = in_query_order(query_rows, count, frames.xp)
    if not all(map(is_plain, payloads)):
        found = joined(payloads, descriptor.meta[columns])
        return query_rows, found if order is None else frames.take(found, order)
    arrays = [
        column[0] if len(column) == 1 else frames.xp.concatenate(column)
        for column in zip(*payloads, strict=True)
    ]
    return query_rows, tuple(arrays if order is None else [each[order] for each in arrays])
