"""The two ends of the line between two GPUs: messages put into a window, and taken out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dgpuhash.distributed.exchange.board import Board
from dgpuhash.distributed.exchange.peer_window import MESSAGES, PeerWindow, message_nbytes

__all__ = ["Door", "Letter", "Way", "letters"]

# cudaMemcpyDeviceToDevice
DEVICE_TO_DEVICE = 3
# Columns of a message begin at multiples of this.
ALIGNMENT = 256


class Owner(Protocol):
    """The transfer that a message belongs to."""

    pending: int
    """Messages that are still to be sent or to come."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message: some rows of all columns, one column after the other.

    Attributes
    ----------
    owner : Owner
    columns : sequence of array
        The rows where they come from, or where they go to.
    offsets : sequence of int
        Where each column begins in the message.
    ready : Event
        After which the columns may be read, or written.
    """

    owner: Owner
    columns: Sequence[Any]
    offsets: Sequence[int]
    ready: Any


def letters(owner: Owner, columns: Sequence[Any], ready: Any, size: int) -> list[Letter]:
    """The messages that carry these columns; none when there are no rows.

    Raises
    ------
    ValueError
        When a row does not fit into a message.
    """
    widths = [column[:0].itemsize * _items(column) for column in columns]
    room = message_nbytes(size) - ALIGNMENT * len(columns)
    rows = room // max(1, sum(widths))
    if rows < 1:
        raise ValueError(f"rows of {sum(widths):,} bytes, {room:,} fit")
    offsets = [0]
    for width in widths[:-1]:
        offsets.append(offsets[-1] + -(-rows * width // ALIGNMENT) * ALIGNMENT)
    return [
        Letter(owner, [column[start : start + rows] for column in columns], offsets, ready)
        for start in range(0, len(columns[0]), rows)
    ]


class Way:
    """To one rank."""

    def __init__(self, board: Board, window: PeerWindow, mine: int, target: int) -> None:
        import cupy

        self._board, self._window = board, window
        self._mine, self._target = mine, target
        self._copy = cupy.cuda.runtime.memcpyAsync
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(MESSAGES)]
        self._waiting: deque[Letter] = deque()
        self._flying: deque[Letter] = deque()
        self._put = self._told = 0

    def send(self, found: Sequence[Letter]) -> None:
        """Put these messages into the window as soon as it has room."""
        self._waiting.extend(found)

    def progress(self) -> bool:
        """Do what can be done; whether anything was."""
        before = self._told, self._put
        while self._flying and self._events[self._told % MESSAGES].done:
            self._told += 1
            self._flying.popleft().owner.pending -= 1
        if self._told != before[0]:
            self._board.set_sent(self._target, self._told)
        if self._waiting:
            room = self._board.freed(self._mine, self._target) + MESSAGES
            while self._waiting and self._put < room:
                self._put_letter(self._waiting.popleft())
        return before != (self._told, self._put)

    def settle(self) -> None:
        """Wait for what was begun."""
        self._stream.synchronize()

    def _put_letter(self, letter: Letter) -> None:
        place = self._window.place(self._mine, self._target, self._put)
        self._stream.wait_event(letter.ready)
        for column, offset in zip(letter.columns, letter.offsets, strict=True):
            self._copy(
                place + offset, column.data.ptr, column.nbytes, DEVICE_TO_DEVICE, self._stream.ptr
            )
        self._events[self._put % MESSAGES].record(self._stream)
        self._put += 1
        self._flying.append(letter)


class Door:
    """From one rank."""

    def __init__(
        self, board: Board, window: PeerWindow, mine: int, source: int, stream: Any
    ) -> None:
        import cupy

        self._board, self._window = board, window
        self._mine, self._source = mine, source
        self._copy = cupy.cuda.runtime.memcpyAsync
        self._stream = stream
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(MESSAGES)]
        self._expected: deque[Letter] = deque()
        self._taken = self._told = 0

    def expect(self, found: Sequence[Letter]) -> None:
        """Take these messages out of the window when they come."""
        self._expected.extend(found)

    def progress(self) -> bool:
        """Do what can be done; whether anything was."""
        before = self._told, self._taken
        while self._told < self._taken and self._events[self._told % MESSAGES].done:
            self._told += 1
        if self._told != before[0]:
            self._board.set_freed(self._source, self._told)
        if self._expected:
            there = self._board.sent(self._source, self._mine)
            while self._expected and self._taken < there:
                self._take_letter(self._expected.popleft())
        return before != (self._told, self._taken)

    def _take_letter(self, letter: Letter) -> None:
        place = self._window.place(self._source, self._mine, self._taken)
        self._stream.wait_event(letter.ready)
        for column, offset in zip(letter.columns, letter.offsets, strict=True):
            self._copy(
                column.data.ptr, place + offset, column.nbytes, DEVICE_TO_DEVICE, self._stream.ptr
            )
        self._events[self._taken % MESSAGES].record(self._stream)
        self._taken += 1
        letter.owner.pending -= 1


def _items(column: Any) -> int:
    items = 1
    for extent in column.shape[1:]:
        items *= extent
    return items
