"""All-to-all between GPUs of one host, by copies through CUDA IPC.

Each process writes messages into the GPU memory of the others.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import (
    STALL,
    DestinationBuffers,
    Outgoing,
    Received,
    Transfer,
    columns_differ_error,
)
from dgpuhash.distributed.collective.cuda_driver import Driver
from dgpuhash.distributed.collective.cuda_ipc_channel import (
    ChannelMessage,
    MessageReceiver,
    MessageSender,
    SelfCopy,
    split_messages,
)
from dgpuhash.distributed.collective.cuda_ipc_memory import (
    PeerBuffers,
    PeerWindow,
    WindowSlots,
    landing_nbytes,
    window_nbytes,
)
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.membership import Membership
from dgpuhash.distributed.collective.shared_memory import CALLS, SharedCounters
from dgpuhash.errors import OutOfMemoryError, ShapeError, UnsupportedError

# Seconds of busy polling without progress, and of each sleep between polls after that.
RESTLESS, NAP = 2e-3, 50e-6
# Seconds between the first two polls whether the others have left, which double; the longest; and
# the number of polls. A rank stopped for longer costs its peers the memory of their windows.
# GPU work waits while memory is freed, so that is done early, before the next table's verbs.
SOON, LEAVE, LEAVES = 1e-3, 0.1, 600
HIGHEST = -100  # Stream priority; CUDA clamps it to its own highest one.


class PeerCollective(CommCollective):
    """Endpoint whose copy engines write into windows of the other GPUs.

    Receivers copy messages from their window to their destination. The host of the sender announces
    on the `SharedCounters` that a message has arrived once its copy is done, and the host of the
    receiver that it was taken out once that copy is done: so no GPU ever waits for another process,
    which may be dead. The messages of a call that fits the windows are in flight when `start`
    returns. Rows with offsets in destination buffers are written there directly, by copies or by
    kernels, and not copied again. Host arrays go over the Dask comm.
    """

    def __init__(self, membership: Membership, limit: float = STALL) -> None:
        super().__init__(membership, limit)
        self._window: Any = None
        self._landing: PeerBuffers | None = None
        self._board: Any = None
        self.leaving: Any = None
        self.taking: Any = None
        self._numbers = 0
        self._under_way: deque[PeerTransfer] = deque()
        self._lines: list[MessageSender | MessageReceiver | SelfCopy] = []
        self.ways: dict[int, MessageSender] = {}
        self.doors: dict[int, MessageReceiver] = {}

    @property
    def needs_loop(self) -> bool:
        return False

    def connect(self) -> None:
        """Map the windows of the other ranks; all ranks call it together.

        Raises
        ------
        UnsupportedError
            When a rank cannot.
        """
        path, handle, nbytes, trouble = "", b"", (0, 0), ""
        try:
            if platform.machine() not in {"x86_64", "AMD64"}:
                raise UnsupportedError(f"hosts of kind {platform.machine()} are not known to do")
            nbytes = window_nbytes(), landing_nbytes()
        except Exception as error:
            trouble = str(error)
        windows, landings = zip(*self.agreed(nbytes, trouble), strict=True)
        slots = WindowSlots.of(self.size, min(windows))
        self._landing = PeerBuffers(self, min(landings))
        try:
            self._window = PeerWindow(self.rank, self.size, slots)
            handle = self._window.handle
            if self.rank == 0:
                path = str(SharedCounters.create(self.membership.name, self.size))
        except Exception as error:
            trouble = str(error)
        try:
            offers = self.agreed((handle, path), trouble)
            try:
                self._board = SharedCounters(Path(offers[0][1]), self.rank, self.size)
                self._window.open([handle for handle, _ in offers])
                self._open_channels()
            except Exception as error:
                trouble = str(error)
            self.agreed(None, trouble)
        finally:
            if path:
                Path(path).unlink()

    def _open_channels(self) -> None:
        import cupy

        self.driver: Driver = Driver()
        self.message_nbytes: Any = self._window.slots.nbytes
        self.window_nbytes: Any = self._window.slots.nbytes_of(self.size)
        self.leaving = cupy.cuda.Stream(non_blocking=True)
        # Other ranks wait for copies out of the window, which must not queue behind kernels.
        self.taking = cupy.cuda.Stream(non_blocking=True, priority=HIGHEST)
        self.events: list[list[Any]] = [
            [cupy.cuda.Event(disable_timing=True) for _ in range(3)] for _ in range(CALLS)
        ]
        between = (self.driver, self._board, self._window, self.rank)
        for rank in self.membership.others():
            self.ways[rank] = MessageSender(*between, rank)
            self.doors[rank] = MessageReceiver(*between, rank, self.taking.ptr)
        self.stay: SelfCopy = SelfCopy(self.driver, self.taking.ptr)
        self._lines = [*self.ways.values(), *self.doors.values(), self.stay]

    def _carry(self, outgoing: Outgoing) -> Transfer:
        if self.membership.broken is not None:
            raise self.membership.broken
        number, self._numbers = self._numbers, self._numbers + 1
        with self.carrying():
            while len(self._under_way) >= CALLS:
                self.finish()
            self._until(lambda: self._board.has_room(number))
            transfer = PeerTransfer(self, number, outgoing)
            on_host = outgoing.device.name == "cpu"
            if not on_host:
                # Before counts are announced: they are needed only when messages arrive.
                transfer.send()
                self._progress()
            self._board.write_counts(number, outgoing.counts, _digest(outgoing))
            if on_host:
                transfer.over_comm = super()._carry(outgoing)
        self._under_way.append(transfer)
        return transfer

    def finish(self, *, ahead: bool = False) -> None:
        """Wait for the oldest transfer.

        With `ahead`, destinations are also allocated for later transfers whose counts all ranks
        have announced, before the caller uses the received rows: so rows of the next transfers need
        not wait for the caller.
        """
        transfer = self._under_way[0]
        self._until(lambda: self._board.has_counts(transfer.number))
        if transfer.counts is None:
            if strangers := self._strangers(transfer):
                error = columns_differ_error(strangers[0], self.rank)
                self.abort(str(error))
                raise error
            self._take(transfer)
        if ahead:
            self._take_ahead()
        if transfer.over_comm is not None:
            transfer.received = transfer.over_comm.wait()
        else:
            self._until(lambda: transfer.pending == 0)
            if ahead:
                self._take_ahead()
            transfer.arrive()
        self._under_way.popleft()

    def _take_ahead(self) -> None:
        for transfer in self._under_way:
            if transfer.counts is not None:
                continue
            if not self._board.has_counts(transfer.number) or self._strangers(transfer):
                return
            try:
                self._take(transfer)
            except (OutOfMemoryError, ShapeError):
                # There may be more memory when its turn comes; errors are raised then.
                return

    def _strangers(self, transfer: PeerTransfer) -> list[int]:
        return self._board.strangers(transfer.number, _digest(transfer.outgoing))

    def _take(self, transfer: PeerTransfer) -> None:
        transfer.take(self._board.counts(transfer.number))
        self._board.set_read(transfer.number)

    def lands(self, device: str) -> bool:
        return device == "cuda"

    def landing(self, nbytes: Sequence[int]) -> DestinationBuffers | None:
        if self.membership.broken is not None:
            raise self.membership.broken
        found = self._landing
        with self.carrying():
            return found if found is not None and found.fits(nbytes) else None

    def address(self, rank: int, offset: int) -> int:
        """Return the address of `offset` in a rank's destination buffer."""
        assert self._landing is not None
        return self._landing.address(rank, offset)

    def release(self) -> None:
        super().release()
        if self._window is None:
            return
        self._settle()
        window, self._window = self._window, None
        landing, self._landing = self._landing, None
        for held in (self._under_way, self._lines, self.ways, self.doors):
            held.clear()
        memories = [window, *([] if landing is None else [landing])]
        for memory in memories:
            memory.leave()
        if self._board is not None:
            self._board.leave()
        asyncio.run_coroutine_threadsafe(self._free(memories), self.membership.loop)

    async def _free(self, memories: Sequence[PeerWindow | PeerBuffers]) -> None:
        """Free memory once no other rank can write to it."""
        for look in range(LEAVES):
            if self._board is None or self._board.all_left():
                for memory in memories:
                    await asyncio.to_thread(memory.free)
                return
            await asyncio.sleep(min(LEAVE, SOON * 2**look))

    def _settle(self) -> None:
        """Wait for the copies that were started."""
        for stream in (self.leaving, self.taking, *(way.stream for way in self.ways.values())):
            if stream is not None:
                stream.synchronize()

    def _progress(self) -> bool:
        """Advance all channels, and return whether any of them moved."""
        moved = [line.progress() for line in self._lines]
        return any(moved)

    def _until(self, done: Callable[[], bool]) -> None:
        """Advance everything in flight until `done()` is true."""
        idle = None
        while not done():
            if self.membership.broken is not None:
                # Copies read and write arrays that are freed after the error.
                self._settle()
                raise self.membership.broken
            if self._progress():
                idle = None
                continue
            now = time.monotonic()
            idle = idle or now
            if now - idle > RESTLESS:
                time.sleep(NAP)
            if now - idle > self._limit:
                self.abort(self._stall_text())


class PeerTransfer(Transfer):
    """Messages of one exchange, to and from all ranks.

    Attributes
    ----------
    pending : int
        Messages that have not arrived in the others' windows, or were not taken out of this one,
        and pieces of this rank's own rows that were not copied.
    counts : int64 array or None
        Numbers of rows from each rank, once their destination is allocated.
    """

    def __init__(self, end: PeerCollective, number: int, outgoing: Outgoing) -> None:
        self.number, self.outgoing = number, outgoing
        self.pending: int = 0
        self.over_comm: Transfer | None = None
        self.received: Received | None = None
        self.counts: np.ndarray | None = None
        self._end = end
        self._columns: list[Any] = []
        self._ready, self._room, self._came = end.events[number % CALLS]
        # Memory allocated on this stream is usable before work queued on another one is done.
        on_host = outgoing.device.name == "cpu"
        self._begun = nullcontext() if on_host else outgoing.device.xp.cuda.get_current_stream()

    def send(self) -> None:
        """Queue the messages to the other ranks."""
        outgoing, end = self.outgoing, self._end
        end.driver.record(self._ready, self._stream)
        firsts, rows = outgoing.starts.tolist(), outgoing.counts.tolist()
        leaving = (sum(rows) - rows[end.rank]) * outgoing.kind.row_nbytes
        # With a stream for each rank the GPU copies all that is queued for one rank, of later
        # transfers too, before it begins with the next rank's; with two streams for all ranks half
        # of the messages of a pipeline came late. One stream is slower where much leaves at once.
        apart = leaving > end.window_nbytes and not outgoing.put
        if not apart and not outgoing.put:
            end.driver.wait(end.leaving.ptr, self._ready)
        columns = self._lying(outgoing.columns)
        for rank, way in end.ways.items():
            if rows[rank] and outgoing.put:
                # Announced once the current stream has written them; no copy waits for that.
                way.send([self._direct_message()], self._stream)
            elif rows[rank]:
                stream = way.stream.ptr if apart else end.leaving.ptr
                if apart:
                    end.driver.wait(stream, self._ready)
                strips = _strips(columns, firsts[rank], rows[rank])
                way.send(self._messages(strips, rank), stream)

    def take(self, counts: np.ndarray) -> None:
        """Allocate the destination, and expect the messages of all ranks."""
        end, outgoing = self._end, self.outgoing
        if self.over_comm is not None:
            self.counts = counts
            return
        with self._begun:
            room = outgoing.room(counts)
            free = room.free
            if not outgoing.has_destination:
                free = self._room
                end.driver.record(free, self._stream)
        self._columns, self.counts = room.columns, counts
        columns, firsts, rows = self._lying(room.columns), room.starts.tolist(), counts.tolist()
        # Copies share one stream, so one that waits for more than it must delays all others.
        if outgoing.theirs is None:
            end.driver.wait(end.taking.ptr, free or self._ready)
        for rank, door in end.doors.items():
            if rows[rank]:
                strips = _strips(columns, firsts[rank], rows[rank])
                door.expect(self._messages(strips, None))
        own = rows[end.rank]
        if not own or outgoing.put:
            return
        # The stream that started the transfer may still compute the rank's own rows.
        end.driver.wait(end.taking.ptr, self._ready)
        first = int(outgoing.starts[end.rank])
        kept = _strips(self._lying(outgoing.columns), first, own)
        places = _strips(columns, firsts[end.rank], own)
        for (source, nbytes), (place, _) in zip(kept, places, strict=True):
            end.stay.expect(self, place, source, nbytes)

    def arrive(self) -> None:
        """Make the current stream wait for the copies out of the window."""
        assert self.counts is not None
        self._end.driver.record(self._came, self._end.taking.ptr)
        self._end.driver.wait(self._stream, self._came)
        self.received = Received(self._columns, self.counts)

    def wait(self) -> Received:
        early = self.received is not None
        with self._end.carrying():
            while self.received is None:
                self._end.finish(ahead=True)
        if early and self.over_comm is None:
            # A later call may have finished it, while another stream was current.
            self.arrive()
        return self.received

    @property
    def nbytes(self) -> int:
        if self.received is not None or self.outgoing.has_destination:
            return 0
        return sum(column.nbytes for column in self._columns)

    @property
    def _stream(self) -> int:
        return int(self.outgoing.device.xp.cuda.get_current_stream().ptr)

    def _lying(self, columns: Sequence[Any]) -> list[tuple[int, int]]:
        """Return the address and the row size of each column."""
        widths = self.outgoing.kind.widths
        return [(column.data.ptr, width) for column, width in zip(columns, widths, strict=True)]

    def _messages(self, strips: list[tuple[int, int]], to: int | None) -> list[ChannelMessage]:
        """Return messages for rank `to`, or those expected here for None."""
        theirs = self.outgoing.theirs
        if theirs is None:
            found = split_messages(self, strips, self._end.message_nbytes)
            self.pending += len(found)
            return found
        if to is None:
            return [self._direct_message()]
        places = [self._end.address(to, offset) for offset in theirs[to]]
        sent = zip(strips, places, strict=True)
        return [self._direct_message([(lying, place, size) for (lying, size), place in sent])]

    def _direct_message(self, strips: Sequence[tuple[int, int, int]] = ()) -> ChannelMessage:
        """Return a message whose rows go directly to their destination.

        Without strips, kernels write the rows, and the message only notifies.
        """
        self.pending += 1
        return ChannelMessage(self, list(strips), direct=True)


def _strips(columns: list[tuple[int, int]], first: int, rows: int) -> list[tuple[int, int]]:
    """Return the address and the bytes of some rows of each column."""
    return [(address + first * width, rows * width) for address, width in columns]


def _digest(outgoing: Outgoing) -> int:
    """Return the hash by which ranks compare columns and write mode."""
    return outgoing.kind.digest ^ (outgoing.theirs is not None)
