"""Route rows and queries to the shards of their keys."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from dgpuhash.distributed.partition.change import CANDIDATE_CHUNKS, Change
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import partition_rows, partition_rows_with_heavy
from dgpuhash.distributed.partition.row_order import ARRIVAL_COLUMN
from dgpuhash.distributed.partition.skew import NO_HEAVY, HeavyKeys, KeyCounts
from dgpuhash.frames import EncodedKeys, frames_of


def rows_to_store(
    rows: Any, encoded: EncodedKeys, change: Change, near: int | None, tally: KeyCounts
) -> list[tuple[int, list[Any]]]:
    """Return the positions of the rows that each shard stores, or erases.

    Parameters
    ----------
    rows : DataFrame
    encoded : EncodedKeys
        The keys of `rows`.
    change : Change
    near : int or None
        The shard that stores all rows where rows stay local; None: their arrival chooses it.
    tally : Tally
        Row counts of the candidates for heavy keys.

    Returns
    -------
    list of (int, list of int64 arrays)
        Layers: the number of the first chunk, and the positions for each shard. Rows of keys in
        `tally` are a layer of their own.
    """
    encoder, parts = change.encoder, len(change.shards)
    if change.placement is Placement.DISTRIBUTED and change.verb == "erase":
        # Until the heavy keys are known, rows of any key may be in any shard.
        heavy = HeavyKeys.of_all(encoded.codes) if change.heavy is None else change.heavy
        return [(0, partition_rows_with_heavy(encoded, encoder, parts, heavy))]
    if change.placement is Placement.DISTRIBUTED and tally:
        perhaps = HeavyKeys(tally.codes)
        owned = partition_rows(encoded, encoder, parts, perhaps)
        among = perhaps.among(encoded.codes)
        settled = [each[~among[each]] for each in owned]
        return [(0, settled), (CANDIDATE_CHUNKS, [each[among[each]] for each in owned])]
    if change.placement is Placement.DISTRIBUTED:
        return [(0, partition_rows(encoded, encoder, parts, change.heavy or NO_HEAVY))]
    everything = frames_of(rows).xp.arange(len(rows))
    wanting = [part for part in range(parts) if part not in change.kept]
    if change.placement is Placement.REPLICATED or change.verb == "erase":
        return [(0, _everything(everything, wanting, parts))]
    if near is not None:
        return [(0, _everything(everything, [near], parts))]
    xp = frames_of(rows).xp
    owners = xp.asarray(wanting)[rows[ARRIVAL_COLUMN].values % len(wanting)]
    return [(0, [xp.flatnonzero(owners == part) for part in range(parts)])]


def keys_to_replace(encoded: EncodedKeys, change: Change, owned: Sequence[Any]) -> list[Any]:
    """Return the positions of the keys whose rows an upsert erases on each shard.

    The keys of rows that the shard gets itself, which are at `owned`, are left out.
    """
    parts, xp = len(change.shards), frames_of(change.meta).xp
    if parts == 1 or change.placement is Placement.REPLICATED:
        return [xp.arange(0)] * parts
    # Until the heavy keys are known, rows of any key may be in any shard.
    shared, kept = xp.ones(len(encoded), bool), change.kept
    if change.placement is Placement.DISTRIBUTED:
        kept = frozenset()
        if change.heavy is not None:
            shared = change.heavy.among(encoded.codes)
    found = []
    for part, rows in enumerate(owned):
        here = shared.copy()
        here[rows] = False
        found.append(xp.flatnonzero(here)[: 0 if part in kept else None])
    return found


def lost_rows(rows: Any, encoded: EncodedKeys, change: Change) -> Any:
    """Return a mask of the rows that a rebuild of lost shards must read."""
    lost, xp = change.lost, frames_of(rows).xp
    assert lost is not None
    if change.placement is Placement.INDEPENDENT:
        if change.verb == "erase":
            return xp.ones(len(rows), bool)
        return ~xp.isin(rows[ARRIVAL_COLUMN].values, xp.asarray(sorted(lost.arrivals), xp.int64))
    owners = change.encoder.owners(encoded.codes, lost.parts)
    gone = xp.isin(owners, xp.asarray(sorted(lost.gone), owners.dtype))
    return gone | lost.heavy.among(encoded.codes)


def rows_to_query(
    count: int, encode: Callable[[], EncodedKeys], descriptor: Descriptor, how: str, address: str
) -> list[Any]:
    """Return the rows that a task sends to each shard as queries.

    Parameters
    ----------
    count : int
        Number of rows.
    encode : callable
        Returns the keys of the rows.
    descriptor : Descriptor
    how : str
        Kind of join.
    address : str
        The worker of the task.
    """
    parts = len(descriptor.shards)
    if descriptor.placement is Placement.DISTRIBUTED:
        encoder, heavy = descriptor.encoder, descriptor.heavy
        if encoder.exact and how in {"semi", "anti"}:
            # The owner of a heavy key has some of its rows: it alone can tell.
            heavy = NO_HEAVY
        return partition_rows_with_heavy(encode(), encoder, parts, heavy)
    xp = frames_of(descriptor.meta).xp
    if descriptor.placement is Placement.INDEPENDENT:
        return _everything(xp.arange(count), range(parts), parts)
    return _everything(xp.arange(count), [nearest_shard(descriptor.shards, address)], parts)


def nearest_shard(shards: Sequence[ShardAddress], address: str, number: int | None = None) -> int:
    """Return the shard on the worker at `address`, or one chosen by `number`.

    Parameters
    ----------
    shards : sequence of ShardAddress
    address : str
    number : int, optional
        Of a partition; default: a hash of `address`, so that workers without a shard use several.

    Examples
    --------
    >>> shards = [ShardAddress("tcp://a", "x"), ShardAddress("tcp://b", "y")]
    >>> nearest_shard(shards, "tcp://b"), nearest_shard(shards, "tcp://c", number=5)
    (1, 1)
    """
    for part, shard in enumerate(shards):
        if shard.worker == address:
            return part
    return (zlib.crc32(address.encode()) if number is None else number) % len(shards)


def _everything(rows: Any, which: Sequence[int], parts: int) -> list[Any]:
    """Return all `rows` for the shards in `which`, none for the others."""
    return [rows if part in which else rows[:0] for part in range(parts)]
