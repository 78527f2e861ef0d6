"""Exchange inside one process, and partitions that are put over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgpuhash.distributed.ingest.shuffle_tasks import parcels
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.shards.inbox import Inbox, Parcel, ParcelExchange, Receipt

__all__ = ["LocalExchange", "put_rows"]


class LocalExchange(ParcelExchange):
    """Exchange that puts parcels straight into inboxes of this process.

    Examples
    --------
    >>> import asyncio
    >>> from dgpuhash.distributed.shards.inbox import Receipt
    >>> inboxes = [Inbox(0), Inbox(1)]
    >>> parcel = Parcel(partition=0, attempt="a", number=0, rows=2, payload=[7, 9])
    >>> asyncio.run(LocalExchange(inboxes).put(1, parcel))
    >>> inboxes[1].collect([Receipt(partition=0, attempt="a", rows=(0, 2))])
    [[7, 9]]
    """

    def __init__(self, inboxes: Sequence[Inbox]) -> None:
        self._inboxes = inboxes

    @property
    def parts(self) -> int:
        return len(self._inboxes)

    async def put(self, part: int, parcel: Parcel) -> None:
        self._inboxes[part].accept(parcel)


async def put_rows(frame: Any, change: Change, partition: int, exchange: ParcelExchange) -> Receipt:
    """Put a partition's rows into the shards that own them, over an exchange."""
    segments, receipt = parcels(frame, change, partition)
    await exchange.put_segments(segments)
    return receipt
