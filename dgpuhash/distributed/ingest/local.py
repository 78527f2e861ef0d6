"""An exchange inside one process."""

from __future__ import annotations

from collections.abc import Sequence

from dgpuhash.distributed.shards.inbox import Exchange, Inbox, Parcel

__all__ = ["LocalExchange"]


class LocalExchange(Exchange):
    """Puts parcels straight into inboxes of this process.

    Examples
    --------
    >>> import asyncio
    >>> from dgpuhash.distributed.exchange import Receipt
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
