"""Routes: the parts that rows are put into, and the parts that are asked about keys."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from dgpuhash.distributed.partition.change import LOOSE, Change
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import split, split_to_all
from dgpuhash.distributed.partition.row_order import ARRIVAL
from dgpuhash.distributed.partition.skew import NO_HEAVY, Heavy, Tally
from dgpuhash.frames import EncodedKeys, frames_of

__all__ = ["asked_rows", "lost_rows", "part_near", "stored_layers"]


def stored_layers(
    rows: Any, encoded: EncodedKeys, change: Change, near: int | None, tally: Tally
) -> list[tuple[int, list[Any]]]:
    """For each part the rows that it is to store, or to erase, as positions in `rows`.

    Parameters
    ----------
    rows : DataFrame
    encoded : EncodedKeys
        Their keys.
    change : Change
    near : int or None
        The part that stores them when none moves; None: the one that their arrival tells.
    tally : Tally
        Keys that may be heavy.

    Returns
    -------
    list of (int, list of int64 arrays)
        The number of the first parcel, and the rows. Those of keys in `tally` stand apart.
    """
    encoder, parts = change.encoder, len(change.shards)
    if change.placement is Placement.DISTRIBUTED and change.verb == "erase":
        # Where heavy keys are yet to be found, rows of any key may be in any part.
        heavy = Heavy.of_all(encoded.codes) if change.heavy is None else change.heavy
        return [(0, split_to_all(encoded, encoder, parts, heavy))]
    if change.placement is Placement.DISTRIBUTED and tally:
        perhaps = Heavy(tally.codes)
        owned = split(encoded, encoder, parts, perhaps)
        among = perhaps.among(encoded.codes)
        settled = [each[~among[each]] for each in owned]
        return [(0, settled), (LOOSE, [each[among[each]] for each in owned])]
    if change.placement is Placement.DISTRIBUTED:
        return [(0, split(encoded, encoder, parts, change.heavy or NO_HEAVY))]
    everything = frames_of(rows).xp.arange(len(rows))
    wanting = [part for part in range(parts) if part not in change.kept]
    if change.placement is Placement.REPLICATED or change.verb == "erase":
        return [(0, _everything(everything, wanting, parts))]
    if near is not None:
        return [(0, _everything(everything, [near], parts))]
    xp = frames_of(rows).xp
    owners = xp.asarray(wanting)[rows[ARRIVAL].values % len(wanting)]
    return [(0, [xp.flatnonzero(owners == part) for part in range(parts)])]


def lost_rows(rows: Any, encoded: EncodedKeys, change: Change) -> Any:
    """Mask of the rows that a change which makes lost parts anew has to read again."""
    lost, xp = change.lost, frames_of(rows).xp
    assert lost is not None
    if change.placement is Placement.INDEPENDENT:
        if change.verb == "erase":
            return xp.ones(len(rows), bool)
        return ~xp.isin(rows[ARRIVAL].values, xp.asarray(sorted(lost.arrivals), xp.int64))
    owners = change.encoder.owners(encoded.codes, lost.parts)
    gone = xp.isin(owners, xp.asarray(sorted(lost.gone), owners.dtype))
    return gone | lost.heavy.among(encoded.codes)


def asked_rows(
    count: int, encode: Callable[[], EncodedKeys], descriptor: Descriptor, how: str, address: str
) -> list[Any]:
    """For each part the rows, of so many, that a task on the worker at `address` asks it about.

    `encode` gives their keys.
    """
    parts = len(descriptor.shards)
    if descriptor.placement is Placement.DISTRIBUTED:
        encoder, heavy = descriptor.encoder, descriptor.heavy
        if encoder.exact and how in {"semi", "anti"}:
            # The owner of a heavy key has rows of it too.
            heavy = NO_HEAVY
        return split_to_all(encode(), encoder, parts, heavy)
    xp = frames_of(descriptor.meta).xp
    if descriptor.placement is Placement.INDEPENDENT:
        return _everything(xp.arange(count), range(parts), parts)
    return _everything(xp.arange(count), [part_near(descriptor.shards, address)], parts)


def part_near(shards: Sequence[ShardAddress], address: str, number: int | None = None) -> int:
    """The part on the worker at `address`; where it has none, one that `number` tells.

    Parameters
    ----------
    shards : sequence of ShardAddress
    address : str
    number : int, optional
        Of a partition; default: the address itself, so that workers without a part ask several.

    Examples
    --------
    >>> shards = [ShardAddress("tcp://a", "x"), ShardAddress("tcp://b", "y")]
    >>> part_near(shards, "tcp://b"), part_near(shards, "tcp://c", number=5)
    (1, 1)
    """
    for part, shard in enumerate(shards):
        if shard.worker == address:
            return part
    return (zlib.crc32(address.encode()) if number is None else number) % len(shards)


def _everything(rows: Any, which: Sequence[int], parts: int) -> list[Any]:
    """All `rows` for the parts in `which`, and none for the others."""
    return [rows if part in which else rows[:0] for part in range(parts)]
