"""Message channel between two GPUs: sender, receiver, and copies within a GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dgpuhash.distributed.collective.cuda_driver import Driver
from dgpuhash.distributed.collective.cuda_ipc_memory import PeerWindow
from dgpuhash.distributed.collective.shared_memory import SharedCounters

if TYPE_CHECKING:
    from typing import Any


# Strips of a message begin at multiples of this.
ALIGNMENT = 256
# Bytes of a rank's own rows that are copied before received messages get their turn.
PIECE_NBYTES = 64 << 20


class MessageOwner(Protocol):
    """Transfer that a message belongs to."""

    pending: int
    """Messages not sent or not received yet, and pieces of own rows not copied yet."""


@dataclass(slots=True)
class ChannelMessage:
    """Message with rows of one column or more.

    Attributes
    ----------
    owner : Owner
    strips : list of (int, int, int)
        For each run of rows of a column: its address, its offset in the message, and its bytes.
    direct : bool
        Whether the sender writes the rows to their destination: the offsets are then addresses,
        and the receiver copies nothing. A direct message is counted like all others.
    """

    owner: MessageOwner
    strips: list[tuple[int, int, int]]
    direct: bool = False


def split_messages(
    owner: MessageOwner, columns: Sequence[tuple[int, int]], room: int
) -> list[ChannelMessage]:
    """Cut the rows of all columns into messages of at most `room` bytes.

    The columns follow one after the other. The messages are as few as possible, and about equal in
    size. Sender and receiver cut alike, since the cuts depend on the numbers of bytes alone.

    Parameters
    ----------
    owner : Owner
    columns : sequence of (int, int)
        Address and bytes of each column's rows.
    room : int
        A multiple of `ALIGNMENT`.

    Examples
    --------
    >>> [letter.strips for letter in split_messages(None, [(1000, 300), (5000, 600)], 1024)]
    [[(1000, 0, 300), (5000, 512, 256)], [(5256, 0, 344)]]
    """
    blocks = sum(-(-nbytes // ALIGNMENT) for _, nbytes in columns)
    number = max(1, -(-blocks * ALIGNMENT // room))
    room = -(-blocks // number) * ALIGNMENT
    found: list[ChannelMessage] = []
    strips: list[tuple[int, int, int]] = []
    offset = 0
    for address, nbytes in columns:
        while nbytes:
            if offset >= room:
                found.append(ChannelMessage(owner, strips))
                strips, offset = [], 0
            some = min(nbytes, room - offset)
            strips.append((address, offset, some))
            address, nbytes = address + some, nbytes - some
            offset += -(-some // ALIGNMENT) * ALIGNMENT
    if strips:
        found.append(ChannelMessage(owner, strips))
    return found


class MessageSender:
    """Sender of messages to one rank.

    Attributes
    ----------
    stream : cupy.cuda.Stream
        Used by this sender alone.
    """

    def __init__(
        self, driver: Driver, board: SharedCounters, window: PeerWindow, mine: int, target: int
    ) -> None:
        import cupy

        self._driver, self._board, self._window = driver, board, window
        self._mine, self._target = mine, target
        self.stream: Any = cupy.cuda.Stream(non_blocking=True)
        self._room = window.slots.number
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(self._room)]
        self._waiting: deque[tuple[ChannelMessage, int]] = deque()
        self._flying: deque[ChannelMessage] = deque()
        self._put = self._told = 0

    def send(self, found: Sequence[ChannelMessage], stream: int) -> None:
        """Queue messages, to be copied to the window as soon as it has room.

        Their copies are in the order of `stream`.
        """
        self._waiting.extend((letter, stream) for letter in found)

    def progress(self) -> bool:
        """Start and complete copies, and return whether any moved."""
        if not self._flying and not self._waiting:
            return False
        before = self._told, self._put
        while self._flying and self._driver.done(self._events[self._told % self._room]):
            self._told += 1
            self._flying.popleft().owner.pending -= 1
            self._board.set_sent(self._target, self._told)
        if self._waiting:
            room = self._board.freed(self._mine, self._target) + self._room
            while self._waiting and self._put < room:
                self._put_letter(*self._waiting.popleft())
        return before != (self._told, self._put)

    def _put_letter(self, letter: ChannelMessage, stream: int) -> None:
        direct = letter.direct
        place = 0 if direct else self._window.place(self._mine, self._target, self._put)
        for address, offset, nbytes in letter.strips:
            self._driver.copy(place + offset, address, nbytes, stream)
        self._driver.record(self._events[self._put % self._room], stream)
        self._put += 1
        self._flying.append(letter)


class MessageReceiver:
    """Receiver of messages from one rank; its copies go in `stream` order."""

    def __init__(
        self,
        driver: Driver,
        board: SharedCounters,
        window: PeerWindow,
        mine: int,
        source: int,
        stream: int,
    ) -> None:
        import cupy

        self._driver, self._board, self._window = driver, board, window
        self._mine, self._source = mine, source
        self._stream = stream
        self._room = window.slots.number
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(self._room)]
        self._expected: deque[ChannelMessage] = deque()
        self._taken = self._told = 0

    def expect(self, found: Sequence[ChannelMessage]) -> None:
        """Queue messages, to be copied out of the window when they arrive."""
        self._expected.extend(found)

    def progress(self) -> bool:
        """Start and complete copies, and return whether any moved."""
        if self._told == self._taken and not self._expected:
            return False
        before = self._told, self._taken
        while self._told < self._taken and self._driver.done(self._events[self._told % self._room]):
            self._told += 1
            self._board.set_freed(self._source, self._told)
        if self._expected:
            there = self._board.sent(self._source, self._mine)
            while self._expected and self._taken < there:
                self._take_letter(self._expected.popleft())
        return before != (self._told, self._taken)

    def _take_letter(self, letter: ChannelMessage) -> None:
        place = self._window.place(self._source, self._mine, self._taken)
        for address, offset, nbytes in letter.strips:
            self._driver.copy(address, place + offset, nbytes, self._stream)
        self._driver.record(self._events[self._taken % self._room], self._stream)
        self._taken += 1
        letter.owner.pending -= 1


class SelfCopy:
    """Copies from a rank to itself, in the order of `stream`.

    Pieces are copied one by one, so that messages on the same stream wait behind one piece only,
    and their senders continue: with two H200s, 2 GiB in one copy had kept the window full for 0.7
    ms of 7.
    """

    def __init__(self, driver: Driver, stream: int) -> None:
        import cupy

        self._driver, self._stream = driver, stream
        self._event = cupy.cuda.Event(disable_timing=True)
        self._pieces: deque[tuple[MessageOwner, int, int, int]] = deque()

    def expect(self, owner: MessageOwner, place: int, source: int, nbytes: int) -> None:
        """Queue a copy of `nbytes` bytes from `source` to `place`."""
        for start in range(0, nbytes, PIECE_NBYTES):
            some = min(PIECE_NBYTES, nbytes - start)
            self._pieces.append((owner, place + start, source + start, some))
            owner.pending += 1

    def progress(self) -> bool:
        """Start the next copies, and return whether any were started."""
        if not self._pieces or not self._driver.done(self._event):
            return False
        put = 0
        while self._pieces and put < PIECE_NBYTES:
            owner, place, source, nbytes = self._pieces.popleft()
            self._driver.copy(place, source, nbytes, self._stream)
            put += nbytes
            owner.pending -= 1
        self._driver.record(self._event, self._stream)
        return True
