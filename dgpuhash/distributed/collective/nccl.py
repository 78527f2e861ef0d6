"""All-to-all between GPUs by NCCL: grouped send and receive on one stream."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import (
    STALL,
    Outgoing,
    Received,
    Transfer,
    columns_differ_error,
)
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.membership import Membership
from dgpuhash.errors import DgpuhashError, UnsupportedError

# Busy polls of the device, and the seconds of each sleep between polls after that.
LOOKS = 2000
NAP = 50e-6
# Seconds to connect all ranks.
CONNECT = 60.0


class NcclCollective(CommCollective):
    """Endpoint that exchanges columns by NCCL, on a stream of its own.

    `start` exchanges the counts; the columns follow with the next call, whichever it is, so all
    ranks launch the same operations in the same order. The host polls for the end of the transfer
    that it waits for, and aborts NCCL when a rank is lost, so that no GPU waits for ever. Host
    arrays go over the Dask comm.
    """

    def __init__(self, membership: Membership, limit: float = STALL) -> None:
        super().__init__(membership, limit)
        self.xp: Any = None
        self._nccl: Any = None
        self._under_way: deque[NcclTransfer] = deque()

    @property
    def needs_loop(self) -> bool:
        # Between hosts the loop carries `gather`.
        return self._mailbox is None or self.membership.layout is not None

    def connect(self) -> None:
        """Create a communicator, and connect all pairs of ranks.

        Raises
        ------
        UnsupportedError
            On all ranks, when one of them cannot.
        """
        trouble, place, unique = "", ("", ""), None
        try:
            import cupy
            from cupy.cuda import nccl

            nccl.get_version()
            host = self.membership.addresses[self.rank].rpartition(":")[0]
            place, unique = (host, cupy.cuda.Device().pci_bus_id), nccl.get_unique_id()
        except Exception as error:
            trouble = str(error)
        offers = self.agreed((place, unique), trouble)
        places = [place for place, _ in offers]
        if len(set(places)) < self.size:
            raise UnsupportedError("ranks share a GPU, which NCCL does not allow")
        # Ranks of one host are neighbours for NCCL.
        order = sorted(range(self.size), key=lambda rank: places[rank])
        self._there = {rank: number for number, rank in enumerate(order)}
        try:
            unique = offers[order[0]][1]
            self._nccl = nccl.NcclCommunicator(self.size, unique, self._there[self.rank])
            self._stream, self.xp = cupy.cuda.Stream(non_blocking=True), cupy
        except Exception as error:
            trouble = str(error)
        self.agreed(None, trouble)
        # NCCL connects two ranks at their first exchange, which takes long.
        words = cupy.zeros((2, self.size, 1), np.int64)
        ready = cupy.cuda.get_current_stream().record()
        try:
            trouble = self._wait_for_event(
                self.swap(_rows(words[0]), _rows(words[1]), ready), CONNECT
            )
        except RuntimeError as error:
            trouble = str(error)
        self.agreed(None, trouble)

    def _carry(self, outgoing: Outgoing) -> Transfer:
        if self.membership.broken is not None:
            raise self.membership.broken
        with self.carrying():
            for earlier in self._under_way:
                earlier.launch()
            over_comm = super()._carry(outgoing) if outgoing.device.name == "cpu" else None
            transfer = NcclTransfer(self, outgoing, over_comm)
        self._under_way.append(transfer)
        return transfer

    def swap(self, sent: list[list[Any]], received: list[list[Any]], ready: Any) -> Any:
        """Launch sends and receives with all ranks, and return the end event.

        They start after the event `ready`.
        """
        from cupy.cuda import nccl

        stream = self._stream.ptr
        self._stream.wait_event(ready)
        nccl.groupStart()
        try:
            for rank, there in self._there.items():
                for array in filter(len, sent[rank]):
                    self._nccl.send(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, there, stream)
                for array in filter(len, received[rank]):
                    self._nccl.recv(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, there, stream)
        finally:
            # Otherwise later NCCL calls of this thread, of other groups too, stay in this group.
            nccl.groupEnd()
        return self._stream.record()

    def until(self, event: Any) -> None:
        """Wait on the host for the end of an exchange."""
        if trouble := self._wait_for_event(event, self._limit):
            raise self.fail(trouble)

    def fail(self, trouble: str) -> DgpuhashError:
        # NCCL kernels wait for the other ranks, perhaps for ever.
        self._nccl.abort()
        return super().fail(trouble)

    def _wait_for_event(self, event: Any, limit: float) -> str:
        """Wait on the host for an event, and return an error text or none.

        The text says what prevents the event; it is empty when the event has come.
        """
        began, looks = time.monotonic(), 0
        while not event.done:
            looks += 1
            time.sleep(0 if looks < LOOKS else NAP)
            if self.membership.broken is not None:
                return str(self.membership.broken)
            if error := self._nccl.check_async_error():
                return f"NCCL failed on rank {self.rank} with error {error}"
            if time.monotonic() - began > limit:
                return self._stall_text()
        return ""

    def _finish(self) -> None:
        """Wait for the oldest transfer."""
        self._under_way[0].finish()
        self._under_way.popleft()

    def release(self) -> None:
        if self._nccl is not None:
            # This also ends transfers that nobody waited for.
            self._nccl.abort()
            self._nccl = None
        self._under_way.clear()
        super().release()


class NcclTransfer(Transfer):
    """Exchange of counts, and then of columns, of one call."""

    def __init__(self, end: NcclCollective, outgoing: Outgoing, over_comm: Transfer | None) -> None:
        self._end, self._outgoing, self._over_comm = end, outgoing, over_comm
        self._launched = over_comm is not None
        self._received: Received | None = None
        self._columns: list[Any] = []
        xp, size = end.xp, end.size
        mine = np.stack([outgoing.counts, np.full(size, outgoing.kind.digest)], axis=1)
        stream = xp.cuda.get_current_stream()
        self._mine = xp.asarray(mine)
        self._theirs = xp.empty_like(self._mine)
        self._ready = stream.record()
        self._there = end.swap(_rows(self._mine), _rows(self._theirs), self._ready)

    def launch(self) -> None:
        """Launch the exchange of the columns, unless it was launched before."""
        if self._launched:
            return
        self._launched = True
        counts = self._counts()
        outgoing, end = self._outgoing, self._end
        room = outgoing.room(counts)
        self._columns = room.columns
        received = [
            [column[first : first + count] for column in self._columns]
            for first, count in zip(room.starts, counts, strict=True)
        ]
        ready = end.xp.cuda.get_current_stream().record()
        self._there = end.swap([outgoing.part(rank) for rank in range(end.size)], received, ready)
        self._came = counts

    def finish(self) -> None:
        """Wait until all columns are received."""
        if self._over_comm is not None:
            self._counts()
            self._received = self._over_comm.wait()
            return
        self.launch()
        self._end.until(self._there)
        self._received = Received(self._columns, self._came)

    def wait(self) -> Received:
        with self._end.carrying():
            while self._received is None:
                self._end._finish()
        return self._received

    def _counts(self) -> np.ndarray:
        """Return the numbers of rows from each rank, once the columns agree."""
        self._end.until(self._there)
        theirs = self._end.xp.asnumpy(self._theirs)
        strangers = np.flatnonzero(theirs[:, 1] != self._outgoing.kind.digest)
        if len(strangers):
            error = columns_differ_error(int(strangers[0]), self._end.rank)
            self._end.abort(str(error))
            raise error
        return theirs[:, 0].copy()


def _rows(matrix: Any) -> list[list[Any]]:
    return [[row] for row in matrix]
