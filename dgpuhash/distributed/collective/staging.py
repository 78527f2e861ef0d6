"""Copies of what ranks exchange on a GPU: to its place, and by way of the host where a comm carries
only that one's memory, as TCP does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Staging", "by_host"]

# Rows that are copied to the host at once; while these travel the next ones are copied.
STEP_NBYTES = 64 << 20
# Comms that take no memory of a GPU.
_HOSTS_ALONE = {"tcp", "tls", "ws", "wss"}
# Each column begins at a multiple of so many bytes.
_LINE = 64


def by_host(address: str) -> bool:
    """Whether what is sent to `address` has to lie in the host's memory.

    Examples
    --------
    >>> by_host("tcp://10.0.0.1:8786"), by_host("ucxx://10.0.0.1:8786")
    (True, False)
    """
    return address.partition("://")[0] in _HOSTS_ALONE


class Staging:
    """Copies from a GPU through pinned memory, and to it, each way on a stream of its own.

    Pinned memory is of CuPy's pool, which has it again when nobody holds the arrays. The driver
    copies what came, which is not pinned, as fast as it travels.

    Parameters
    ----------
    xp : module
        CuPy.

    Attributes
    ----------
    coming : Stream
        Of copies to the places of what comes.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._leaving = xp.cuda.Stream(non_blocking=True)
        self.coming = xp.cuda.Stream(non_blocking=True)

    @staticmethod
    def step_nbytes(columns: int) -> int:
        """Rows of so many bytes, in so many columns, are copied at once."""
        return STEP_NBYTES - columns * _LINE

    async def fetched(self, part: Sequence[Any]) -> list[np.ndarray]:
        """Copies of `part`, which nobody writes to, in the host's memory."""
        return await asyncio.to_thread(self._fetched, part)

    async def put(self, places: Sequence[Any], part: Sequence[np.ndarray]) -> None:
        """Copy `part` to its places on the GPU; it is there when this returns."""
        await asyncio.to_thread(self._put, places, part)

    # Their threads hold what is copied until it is, also when nobody waits for that any more.

    def _fetched(self, part: Sequence[Any]) -> list[np.ndarray]:
        rooms = self._rooms(part)
        for column, room in zip(part, rooms, strict=True):
            column.get(stream=self._leaving, out=room, blocking=False)
        self._leaving.record().synchronize()
        return rooms

    def _put(self, places: Sequence[Any], part: Sequence[np.ndarray]) -> None:
        for place, column in zip(places, part, strict=True):
            place.set(column, stream=self.coming)
        self.coming.record().synchronize()

    def _rooms(self, part: Sequence[Any]) -> list[np.ndarray]:
        """Arrays like those of `part`, in pinned memory."""
        room = [-(-column.nbytes // _LINE) * _LINE for column in part]
        starts = np.cumsum(room) - room
        # The pool keeps memory of each size for itself: so of few sizes.
        pinned = self._xp.cuda.alloc_pinned_memory(1 << (sum(room) - 1).bit_length())
        return [
            np.frombuffer(pinned, column.dtype, column.size, start).reshape(column.shape)
            for column, start in zip(part, starts.tolist(), strict=True)
        ]
