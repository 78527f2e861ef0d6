"""Routes: the parts that rows are put into, and the parts that are asked about keys."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from dgpuhash.distributed.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.shard import Change
from dgpuhash.distributed.split import split
from dgpuhash.frames import EncodedKeys, frames_of

__all__ = ["asked_rows", "part_near", "stored_rows"]


def stored_rows(rows: Any, encoded: EncodedKeys, change: Change, near: int) -> list[Any]:
    """For each part the rows that it is to store, or to erase, as positions in `rows`.

    Parameters
    ----------
    rows : DataFrame
    encoded : EncodedKeys
        Their keys.
    change : Change
    near : int
        The part that stores them when none moves.
    """
    parts = len(change.shards)
    if change.placement is Placement.DISTRIBUTED:
        return split(encoded, change.encoder, parts)
    if change.placement is Placement.REPLICATED or change.verb == "erase":
        wanting = [part for part in range(parts) if part not in change.kept]
        return _everything(rows, wanting, parts)
    return _everything(rows, [near], parts)


def asked_rows(
    left: Any, descriptor: Descriptor, left_on: Sequence[Any], address: str
) -> list[Any]:
    """For each part the rows of `left` that a task on the worker at `address` asks it about."""
    parts = len(descriptor.shards)
    if descriptor.placement is Placement.DISTRIBUTED:
        encoder = descriptor.encoder
        return split(encoder.encode(left, list(left_on)), encoder, parts)
    if descriptor.placement is Placement.INDEPENDENT:
        return _everything(left, range(parts), parts)
    return _everything(left, [part_near(descriptor.shards, address)], parts)


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


def _everything(frame: Any, which: Sequence[int], parts: int) -> list[Any]:
    """All rows for the parts in `which`, as one array, and none for the others."""
    rows = frames_of(frame).xp.arange(len(frame))
    return [rows if part in which else rows[:0] for part in range(parts)]
