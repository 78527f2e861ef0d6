"""An exchange over the comms of the Dask cluster: TCP, UCXX, or inproc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgpuhash.distributed.cluster.rpc import request
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.shards.inbox import Exchange, Parcel

__all__ = ["CommExchange"]


class CommExchange(Exchange):
    """Puts parcels into the inboxes of other workers by request and acknowledgement.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that sends.
    shards : sequence of ShardAddress
        Where the parts live.
    uid, transaction : str
        The index and the bulk phase that the parcels belong to.
    """

    def __init__(
        self, worker: Any, shards: Sequence[ShardAddress], uid: str, transaction: str
    ) -> None:
        self._worker = worker
        self._shards = shards
        self._phase = {"uid": uid, "transaction": transaction}

    @property
    def parts(self) -> int:
        return len(self._shards)

    async def put(self, part: int, parcel: Parcel) -> None:
        await request(
            self._worker,
            self._shards[part].worker,
            "dgpuhash_put",
            {"payload": parcel.payload},
            partition=parcel.partition,
            attempt=parcel.attempt,
            number=parcel.number,
            rows=parcel.rows,
            **self._phase,
        )
