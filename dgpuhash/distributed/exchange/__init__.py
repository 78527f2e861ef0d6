"""How segments of bulk phases get from the worker that has the rows to those that own the keys."""

from __future__ import annotations

from dgpuhash.distributed.exchange.base import Exchange, Inbox, Parcel, Receipt
from dgpuhash.distributed.exchange.comm import CommExchange
from dgpuhash.distributed.exchange.local import LocalExchange

__all__ = ["CommExchange", "Exchange", "Inbox", "LocalExchange", "Parcel", "Receipt"]
