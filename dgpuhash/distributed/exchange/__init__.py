"""How segments of bulk phases get from the worker that has the rows to those that own the keys.

An `Exchange` puts parcels into inboxes one by one, as tasks have them. A `Collective` exchanges
columns between ranks that work in lockstep.
"""

from __future__ import annotations

from dgpuhash.distributed.exchange.base import LOOSE, Exchange, Inbox, Parcel, Receipt
from dgpuhash.distributed.exchange.collective import Collective, Received, Transfer
from dgpuhash.distributed.exchange.comm import CommExchange
from dgpuhash.distributed.exchange.comm_collective import CommCollective
from dgpuhash.distributed.exchange.local import LocalExchange
from dgpuhash.distributed.exchange.local_collective import LocalCollective
from dgpuhash.distributed.exchange.nccl_collective import NcclCollective
from dgpuhash.distributed.exchange.peer_collective import PeerCollective

__all__ = [
    "LOOSE",
    "Collective",
    "CommCollective",
    "CommExchange",
    "Exchange",
    "Inbox",
    "LocalCollective",
    "LocalExchange",
    "NcclCollective",
    "Parcel",
    "PeerCollective",
    "Receipt",
    "Received",
    "Transfer",
]
