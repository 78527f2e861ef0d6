"""Repair skew handling after a shuffle: forward rows of keys with too few rows to be heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.ingest.shuffle_tasks import CommExchange
from dgpuhash.distributed.partition.change import CANDIDATE_CHUNKS, Change
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks
from dgpuhash.distributed.partition.skew import HeavyKeys, consensus
from dgpuhash.distributed.shards.inbox import Inbox, Parcel, Receipt
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import frames_of

# Parcels that one forwarded parcel may be cut into.
_PIECES = 1 << 10

# For each partition with forwarded rows, their number by owner.
Moves = dict[int, list[int]]


def repair_heavy_keys(
    client: Client, change: Change, receipts: Sequence[Receipt]
) -> tuple[HeavyKeys, list[Moves]]:
    """Decide on the heavy keys, and forward rows of other candidates.

    Returns the heavy keys, and the rows that each shard has forwarded.
    """
    parts = len(change.shards)
    rows = sum(sum(receipt.rows) for receipt in receipts)
    heavy = consensus([receipt.tally for receipt in receipts], rows, parts)
    if {code for receipt in receipts for code in receipt.tally.codes} <= set(heavy.codes):
        return heavy, []
    return heavy, run_on_workers(client, change.workers, forward_rows, change, receipts, heavy)


def receipts_after(receipts: Sequence[Receipt], moves: Sequence[Moves]) -> list[Receipt]:
    """Return the receipts after rows were forwarded.

    ``moves[part]`` has the rows that shard `part` has forwarded.

    Examples
    --------
    >>> receipts_after([Receipt(7, "a", (5, 3))], [{7: [0, 2]}, {}])[0].rows
    (3, 5)
    """
    found = []
    for receipt in receipts:
        rows = list(receipt.rows)
        for part, moved in enumerate(moves):
            for owner, count in enumerate(moved.get(receipt.partition, ())):
                rows[part] -= count
                rows[owner] += count
        found.append(replace(receipt, rows=tuple(rows)))
    return found


def forward_rows(
    host: ShardHost, change: Change, receipts: Sequence[Receipt], heavy: HeavyKeys
) -> Moves:
    """Forward this shard's rows of keys that are not heavy; return the counts."""
    inbox = host.shards.inbox(change.uid, change.transaction)
    segments, moves = rows_to_forward(inbox, change, receipts, heavy)
    exchange = CommExchange(host.worker, change.shards, change.uid, change.transaction)
    sync(host.worker.loop, exchange.put_segments, segments)
    return moves


def rows_to_forward(
    inbox: Inbox, change: Change, receipts: Sequence[Receipt], heavy: HeavyKeys
) -> tuple[list[list[Parcel]], Moves]:
    """Remove from an inbox the rows that its shard has to forward.

    They are rows of candidates that are not heavy, and whose owner is another shard.
    """
    parts, part = len(change.shards), inbox.part
    segments: list[list[Parcel]] = [[] for _ in range(parts)]
    moves: Moves = {}
    for parcel in inbox.loose(receipts):
        rows = inbox.rows(parcel, change.meta)
        codes = change.encoder.encode_rows(rows).codes
        xp = backend.get(None, codes).xp
        owners = xp.where(heavy.among(codes), np.uint32(part), change.encoder.owners(codes, parts))
        if bool((owners == part).all()):
            continue
        owned = [xp.flatnonzero(owners == owner) for owner in range(parts)]
        moved = moves.setdefault(parcel.partition, [0] * parts)
        stays = frames_of(rows).take(rows, owned[part])
        inbox.replace(replace(parcel, rows=len(stays), payload=stays))
        owned[part] = owned[part][:0]
        for owner, found in enumerate(cut_into_chunks(rows, owned, change.meta)):
            # Parcel numbers: the first block is the owner's, the next ones are the next shards'.
            block = 1 + (part - owner) % parts
            first = block * CANDIDATE_CHUNKS + (parcel.number - CANDIDATE_CHUNKS) * _PIECES
            moved[owner] += len(owned[owner])
            segments[owner] += [
                Parcel(parcel.partition, parcel.attempt, number, len(piece), payload)
                for number, (piece, payload) in enumerate(found, start=first)
            ]
    return segments, moves
