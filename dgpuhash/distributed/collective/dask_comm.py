"""All-to-all over the comms of the Dask cluster: TCP, UCXX or inproc."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash import config
from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.distributed.collective.base import (
    STALL,
    Outgoing,
    Received,
    Transfer,
    columns_differ_error,
)
from dgpuhash.distributed.collective.endpoint import Endpoint, LoopTransfer
from dgpuhash.distributed.collective.membership import Membership, all_of

# Protocols that cannot send GPU memory.
_HOSTS_ALONE = {"tcp", "tls", "ws", "wss"}
# Each column begins at a multiple of this many bytes.
_LINE = 64


def needs_host_memory(address: str) -> bool:
    """Return whether messages to `address` must lie in host memory.

    Examples
    --------
    >>> needs_host_memory("tcp://10.0.0.1:8786"), needs_host_memory("ucxx://10.0.0.1:8786")
    (True, False)
    """
    return address.partition("://")[0] in _HOSTS_ALONE


class Staging:
    """Copies between a GPU and the host, each direction on its own stream.

    Copies from the GPU go through pinned memory of CuPy's pool, which gets it back once nobody
    holds the arrays. Received arrays are not pinned; the driver copies them as fast as they arrive.

    Parameters
    ----------
    xp : module
        CuPy.

    Attributes
    ----------
    coming : Stream
        Stream of the copies of received rows to their destination.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._leaving = xp.cuda.Stream(non_blocking=True)
        self.coming: Any = xp.cuda.Stream(non_blocking=True)

    @staticmethod
    def step_nbytes(columns: int) -> int:
        """Return the bytes of rows, in `columns` columns, of one copy."""
        return config.nbytes("exchange.host-copy") - columns * _LINE

    async def fetched(self, part: Sequence[Any]) -> list[np.ndarray]:
        """Return copies of the arrays of `part` in host memory.

        Nobody writes to `part` meanwhile.
        """
        return await asyncio.to_thread(self._fetch, part)

    async def put(self, places: Sequence[Any], part: Sequence[np.ndarray]) -> None:
        """Copy `part` to `places` on the GPU, and return when it is done."""
        await asyncio.to_thread(self._put, places, part)

    # The thread keeps the arrays alive until the copy is done, even when nobody awaits it any more.

    def _fetch(self, part: Sequence[Any]) -> list[np.ndarray]:
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
        """Return pinned arrays of the shapes and dtypes of `part`."""
        room = [-(-column.nbytes // _LINE) * _LINE for column in part]
        starts = np.cumsum(room) - room
        # The pool reuses blocks of the same size only, hence few sizes.
        pinned = self._xp.cuda.alloc_pinned_memory(1 << (sum(room) - 1).bit_length())
        return [
            np.frombuffer(pinned, column.dtype, column.size, start).reshape(column.shape)
            for column, start in zip(part, starts.tolist(), strict=True)
        ]


# Rows of at most this many bytes travel with their counts, without a second message.
SMALL_NBYTES = 1 << 20
# Chunks in flight from one rank: enough to fill the link, and a bound on the memory of a receiver
# (backpressure).
CHUNKS = 4


class CommCollective(Endpoint):
    """Endpoint that sends rows in chunks over the Dask comm.

    The counts travel first, together with the rows where these are few. A receiver that has all
    counts allocates its destination and answers the senders, whose chunks it then writes to their
    places as they arrive.
    """

    def __init__(self, membership: Membership, limit: float = STALL) -> None:
        super().__init__(membership, limit)
        membership.receiver = self
        self._calls = 0
        self._arrivals: dict[int, IncomingRows] = {}
        self._chunks = asyncio.Semaphore(CHUNKS)
        self._staging: Staging | None = None

    def _carry(self, outgoing: Outgoing) -> Transfer:
        stream: Any = contextlib.nullcontext()
        if outgoing.device.name == "cuda":
            # The destination is allocated and written in the order of this thread's work.
            stream = outgoing.device.xp.cuda.get_current_stream()
            self._staging = self._staging or Staging(outgoing.device.xp)
        number, self._calls = self._calls, self._calls + 1
        return LoopTransfer(self, self._begin(self._exchange(number, outgoing, stream)))

    async def _exchange(self, number: int, outgoing: Outgoing, stream: Any) -> Received:
        if outgoing.device.name == "cuda":
            await asyncio.to_thread(stream.synchronize)
        arrival = self._arrival(number)
        arrival.expect(outgoing, stream, self._staging)
        arrival.announce(self.rank, int(outgoing.counts[self.rank]), outgoing.kind.digest)
        sending = self._send_all(number, outgoing, arrival)
        await all_of([], sending, self._keep(arrival, outgoing), arrival.done)
        del self._arrivals[number]
        return Received(arrival.columns, arrival.counts)

    async def _keep(self, arrival: IncomingRows, outgoing: Outgoing) -> None:
        """Copy this rank's own rows to their destination."""
        for start, chunk in _chunks(outgoing, self.rank, chunk_nbytes(outgoing.device.name)):
            await arrival.place(self.rank, start, chunk)
            self.membership.pace.progress += 1

    async def _send_all(self, number: int, outgoing: Outgoing, arrival: IncomingRows) -> None:
        """Send the other ranks their row counts, then their rows."""
        await all_of([self._send(number, outgoing, rank) for rank in self.membership.others()])

    async def _send(self, number: int, outgoing: Outgoing, rank: int) -> None:
        part = outgoing.part(rank)
        rows = len(part[0])
        small = rows * outgoing.kind.row_nbytes <= SMALL_NBYTES
        message = {"number": number, "rows": rows, "digest": outgoing.kind.digest}
        staging = self._staging_to(outgoing, rank)
        payload = await _stage(part, staging) if small and rows else None
        await self.membership.send(rank, "begin", payload, **message)
        self.membership.pace.progress += 1
        if not small:
            await self.send_chunks(number, outgoing, rank)

    async def send_chunks(self, number: int, outgoing: Outgoing, rank: int) -> None:
        """Send a rank its rows in chunks."""
        staging = self._staging_to(outgoing, rank)
        nbytes = chunk_nbytes(outgoing.device.name)
        if staging is not None:
            nbytes = staging.step_nbytes(len(outgoing.columns))
        chunks = _chunks(outgoing, rank, nbytes)
        await all_of([self._send_chunk(number, rank, staging, *chunk) for chunk in chunks])

    def _staging_to(self, outgoing: Outgoing, rank: int) -> Staging | None:
        """Return the staging copies to a rank; None if its messages may stay on the GPU."""
        on_gpu = outgoing.device.name == "cuda"
        address = self.membership.addresses[rank]
        return self._staging if on_gpu and needs_host_memory(address) else None

    async def _send_chunk(
        self, number: int, rank: int, staging: Staging | None, start: int, chunk: list[Any]
    ) -> None:
        async with self._chunks:
            payload = await _stage(chunk, staging)
            await self.membership.send(rank, "chunk", payload, number=number, start=start)
        self.membership.pace.progress += 1

    async def take(self, kind: str, source: int, payload: Any, **message: Any) -> list[Any]:
        """Handle a message with counts or rows of rank `source`.

        The answer is sent once the destination of the rows is allocated.
        """
        arrival = self._arrival(message["number"])
        if kind == "begin":
            arrival.announce(source, message["rows"], message["digest"])
        await arrival.place(source, message.get("start", 0), payload or [])
        return []

    def release(self) -> None:
        if self._staging is not None:
            # Copies still write to arrays that are freed next.
            self._staging.coming.synchronize()
        self._arrivals.clear()

    def _arrival(self, number: int) -> IncomingRows:
        if number not in self._arrivals:
            self._arrivals[number] = IncomingRows(self.rank, self.size)
        return self._arrivals[number]


async def _stage(part: list[Any], staging: Staging | None) -> list[Any]:
    """Return rows as a comm carries them, staged in host memory if needed."""
    return part if staging is None else await staging.fetched(part)


def _chunks(outgoing: Outgoing, rank: int, nbytes: int) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows for `rank` in chunks of at most `nbytes` bytes.

    Each chunk comes with its first row, counted among the rows for `rank`.
    """
    part = outgoing.part(rank)
    step = max(1, nbytes // max(1, outgoing.kind.row_nbytes))
    for start in range(0, len(part[0]), step):
        yield start, [column[start : start + step] for column in part]


class IncomingRows:
    """Rows that this rank receives in one exchange.

    Attributes
    ----------
    ready, done : Future
        Set when the destination is allocated, and when all rows are written to it.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.counts: np.ndarray = np.full(size, -1, np.int64)
        self.columns: list[Any] = []
        self._starts = np.zeros(size, np.int64)
        self._digests: dict[int, int] = {}
        self._outgoing: Outgoing | None = None
        self._stream: Any = None
        self._staging: Staging | None = None
        self._held: deque[tuple[Any, Sequence[Any]]] = deque()
        self._missing = 0

    def expect(self, outgoing: Outgoing, stream: Any, staging: Staging | None) -> None:
        """Set the expected columns, equal to those that this rank sends.

        The destination is allocated in the order of `stream`; on a GPU, `staging` copies rows
        there.
        """
        self._outgoing, self._stream = outgoing, stream
        if outgoing.device.name == "cuda":
            self._staging = staging

    def announce(self, source: int, rows: int, digest: int) -> None:
        """Record that `source` sends `rows` rows.

        Once the counts of all ranks are known, the destination is allocated.
        """
        self.counts[source] = rows
        self._digests[source] = digest
        if self._outgoing is None or (self.counts < 0).any():
            return
        for rank, theirs in self._digests.items():
            if theirs != self._outgoing.kind.digest:
                raise columns_differ_error(rank, self._rank)
        total = int(self.counts.sum())
        with self._stream:
            room = self._outgoing.room(self.counts)
        self.columns, self._starts = room.columns, room.starts
        if self._staging is not None:
            self._staging.coming.wait_event(self._stream.record())
        self._missing = total
        self.ready.set_result(None)
        if total == 0:
            self.done.set_result(None)

    def runs(self, sources: Sequence[int], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the runs of `sources` whose rows lie one after the other at their destination.

        Parameters
        ----------
        sources : sequence of int
        rows : sequence of int
            The rows of each source that are at hand.

        Yields
        ------
        source, rows
            The first source of a run, and the rows of all of it.
        """
        first, run = -1, 0
        for source, count in zip(sources, rows, strict=True):
            if not count:
                continue
            if run and self._starts[source] == self._starts[first] + run:
                run += count
                continue
            if run:
                yield first, run
            first, run = source, count
        if run:
            yield first, run

    async def place(self, source: int, start: int, chunk: Sequence[Any]) -> None:
        """Write rows from `source` to their destination once it is allocated."""
        await asyncio.shield(self.ready)
        if not chunk:
            return
        first = int(self._starts[source]) + start
        rows = len(chunk[0])
        if self._staging is not None and isinstance(chunk[0], np.ndarray):
            await self._staging.put(self._places(first, rows), chunk)
        elif self._staging is not None:
            self._launch(self._staging.coming, first, chunk)
        elif sum(part.nbytes for part in chunk) > SMALL_NBYTES:
            await asyncio.to_thread(self._copy, first, chunk)
        else:
            self._copy(first, chunk)
        self._missing -= rows
        if self._missing == 0 and rows:
            if self._staging is not None:
                await asyncio.to_thread(self._staging.coming.synchronize)
                self._held.clear()
            self.done.set_result(None)

    def _places(self, first: int, rows: int) -> list[Any]:
        return [column[first : first + rows] for column in self.columns]

    def _launch(self, copying: Any, first: int, chunk: Sequence[Any]) -> None:
        """Start a GPU copy here: a separate thread would wait long for the GIL."""
        while self._held and self._held[0][0].done:
            self._held.popleft()
        with copying:
            self._copy(first, chunk)
        # Kept until the copy is done, as the comm reuses the chunk's memory once it is freed.
        self._held.append((copying.record(), chunk))

    def _copy(self, first: int, chunk: Sequence[Any]) -> None:
        for place, part in zip(self._places(first, len(chunk[0])), chunk, strict=True):
            place[...] = part
