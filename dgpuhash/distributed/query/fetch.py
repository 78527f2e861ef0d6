"""Keys to the owners of their rows, and the answers in the order of the keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.distributed.cluster.payload import Payload, is_plain, joined, plain_arrays
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import parcel_nbytes, pieces, pieces_of_arrays
from dgpuhash.distributed.partition.routing import asked_rows, part_near
from dgpuhash.distributed.partition.row_order import asked_of_several, in_order, of_any
from dgpuhash.distributed.pruning.asked import Asked
from dgpuhash.distributed.pruning.policy import Sparing
from dgpuhash.distributed.query.question import Asker
from dgpuhash.distributed.shards.plugin import host_of
from dgpuhash.distributed.shards.shard_store import Shard
from dgpuhash.frames import POSITION_NBYTES, EncodedKeys, frames_of, in_query_order
from dgpuhash.tables.columns.select import taken
from dgpuhash.tables.memory_errors import call_says_memory

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
    sparing: Sparing,
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
    sparing : Sparing
    """
    if descriptor.placement is Placement.REPLICATED and worker.address in descriptor.workers:
        part = part_near(descriptor.shards, worker.address)
        rows, found, _ = Asker(worker, descriptor, how, columns).ask_here(part, keys).outcome()
        return rows, found
    shard = asked = None
    if descriptor.several_owners:
        shard, bloom = _shard_beside(worker, descriptor), None
        if shard is not None:
            bloom = shard.sieve.filter(worker, descriptor, sparing, len(shard.index))
        asked = Asked(encoded(keys, descriptor), bloom, sparing)
    questions = questions_to(keys, count, descriptor, how, worker.address, asked)
    apart = descriptor.placement is Placement.INDEPENDENT
    asker = Asker(worker, descriptor, *asked_of_several(how, columns, apart))
    answers = asker.ask_all(questions)
    frames = frames_of(descriptor.meta)
    xp = frames.xp
    query_rows = xp.concatenate([rows for rows, _ in answers] or [xp.zeros(0, dtype="int64")])
    payloads = [payload for _, payload in answers]
    found = None
    if how in {"semi", "anti"}:
        if asked is not None:
            query_rows, _ = asked.for_all(query_rows, count)
        query_rows = of_any(query_rows, count, how, xp)
        matched = len(query_rows) if how == "semi" else count - len(query_rows)
    elif not answers:
        found, matched = descriptor.meta[list(columns)], 0
    elif apart:
        found = joined(payloads, descriptor.stored[asker.columns])
        names = descriptor.encoder.names
        return descriptor.conflict.settle(*in_order(query_rows, found), names)
    else:
        query_rows, found, matched = _in_query_order(
            query_rows, count, payloads, asker.columns, descriptor, asked
        )
    if shard is not None:
        shard.sieve.note(frames.device, count, count - matched, asked)
    return query_rows, found


def _shard_beside(worker: Any, descriptor: Descriptor) -> Shard | None:
    """The shard on this worker, where that has one at this epoch."""
    host = host_of(worker)
    shard = host.shards.standing(descriptor.uid)
    here = ShardAddress(worker.address, host.shards.incarnation)
    at = shard is not None and shard.epoch == descriptor.epoch and here in descriptor.shards
    return shard if at else None


def encoded(keys: Payload, descriptor: Descriptor) -> EncodedKeys:
    """The codes of `keys`."""
    if is_plain(keys):
        return descriptor.encoder.encode_arrays(keys, frames_of(descriptor.meta))
    return descriptor.encoder.encode(keys)


def questions_to(
    keys: Payload,
    count: int,
    descriptor: Descriptor,
    how: str,
    address: str,
    asked: Asked | None,
) -> list[list[tuple[Any, Payload]]]:
    """For each part the rows that it is asked about, in pieces: their positions, and their keys."""
    if asked is None:
        owned = asked_rows(count, lambda: encoded(keys, descriptor), descriptor, how, address)
    else:
        some = EncodedKeys(asked.codes, None, True, ())
        owned = asked_rows(len(some), lambda: some, descriptor, how, address)
        if asked.rows is not None:
            owned = [asked.rows[each] for each in owned]
    # The answer may be a position for each key.
    nbytes = parcel_nbytes(frames_of(descriptor.meta).device)
    if is_plain(keys):
        return pieces_of_arrays(keys, owned, nbytes, least_nbytes=POSITION_NBYTES)
    like = descriptor.meta[list(descriptor.encoder.names)]
    return pieces(keys, owned, like, nbytes, least_nbytes=POSITION_NBYTES)


def _in_query_order(
    query_rows: Any,
    count: int,
    payloads: list[Payload],
    columns: list[Hashable],
    descriptor: Descriptor,
    asked: Asked | None,
) -> tuple[Any, Payload, int]:
    """Query rows and what they match in the order of the query; how many rows have a match."""
    frames = frames_of(descriptor.meta)
    order = None
    if len(payloads) > 1 or bool((query_rows[1:] < query_rows[:-1]).any()):
        query_rows, order, matched = in_query_order(query_rows, count, frames.xp)
    else:
        matched = _distinct(query_rows)
    if asked is not None and asked.repeated:
        query_rows, matches = asked.for_all(query_rows, count)
        order, matched = matches if order is None else order[matches], _distinct(query_rows)
    if not all(map(is_plain, payloads)):
        found = joined(payloads, descriptor.meta[columns])
        return query_rows, found if order is None else frames.take(found, order), matched
    arrays = [
        column[0] if len(column) == 1 else frames.xp.concatenate(column)
        for column in zip(*payloads, strict=True)
    ]
    if order is not None:
        arrays = [taken(each, order) for each in arrays]
    return query_rows, tuple(arrays), matched


def _distinct(ascending: Any) -> int:
    return min(1, len(ascending)) + int((ascending[1:] != ascending[:-1]).sum())
