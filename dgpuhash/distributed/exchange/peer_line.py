"""The two ends of the line between two GPUs: messages put into a window, and taken out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dgpuhash.distributed.exchange.board import Board
from dgpuhash.distributed.exchange.driver import Driver
from dgpuhash.distributed.exchange.peer_window import MESSAGES, PeerWindow, message_nbytes
from dgpuhash.errors import UnsupportedError

__all__ = ["Door", "Letter", "Sheet", "Way"]

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
    strips : list of (int, int, int)
        For each column the address of its rows, where they are in the message, and their bytes.
    """

    owner: Owner
    strips: list[tuple[int, int, int]]


class Sheet:
    """How columns are cut into messages: the same for all ranks.

    Parameters
    ----------
    columns : sequence of CuPy array
    size : int
        The number of ranks.

    Raises
    ------
    UnsupportedError
        When a row does not fit into a message.
    """

    def __init__(self, columns: Sequence[Any], size: int) -> None:
        self._widths = [
            int(column.dtype.itemsize * np.prod(column.shape[1:], dtype=np.int64))
            for column in columns
        ]
        room = message_nbytes(size) - ALIGNMENT * len(columns)
        self._rows = room // max(1, sum(self._widths))
        if self._rows < 1:
            raise UnsupportedError(
                f"rows of {sum(self._widths):,} bytes, and {room:,} fit into a message between "
                "GPUs; form the group with exchange='comm'"
            )
        self._offsets = [0]
        for width in self._widths[:-1]:
            strip = -(-self._rows * width // ALIGNMENT) * ALIGNMENT
            self._offsets.append(self._offsets[-1] + strip)

    def letters(self, owner: Owner, columns: Sequence[Any], first: int, rows: int) -> list[Letter]:
        """The messages for `rows` of the columns, from row `first` on."""
        starts = [
            column.data.ptr + first * width
            for column, width in zip(columns, self._widths, strict=True)
        ]
        found = []
        for row in range(0, rows, self._rows):
            some = min(self._rows, rows - row)
            strips = [
                (start + row * width, offset, some * width)
                for start, width, offset in zip(starts, self._widths, self._offsets, strict=True)
            ]
            found.append(Letter(owner, strips))
        return found


class Way:
    """To one rank; its copies are in the order of a stream of their own."""

    def __init__(
        self, driver: Driver, board: Board, window: PeerWindow, mine: int, target: int
    ) -> None:
        import cupy

        self._driver, self._board, self._window = driver, board, window
        self._mine, self._target = mine, target
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(MESSAGES)]
        self._waiting: deque[Letter] = deque()
        self._flying: deque[Letter] = deque()
        self._put = self._told = 0

    def send(self, found: Sequence[Letter], ready: Any) -> None:
        """Put these messages into the window, after `ready`, as soon as it has room."""
        self._driver.wait(self._stream.ptr, ready)
        self._waiting.extend(found)

    def progress(self) -> bool:
        """Do what can be done; whether anything was."""
        before = self._told, self._put
        while self._flying and self._driver.done(self._events[self._told % MESSAGES]):
            self._told += 1
            self._flying.popleft().owner.pending -= 1
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
        for address, offset, nbytes in letter.strips:
            self._driver.copy(place + offset, address, nbytes, self._stream.ptr)
        self._driver.record(self._events[self._put % MESSAGES], self._stream.ptr)
        self._put += 1
        self._flying.append(letter)


class Door:
    """From one rank; its copies are in the order of `stream`."""

    def __init__(
        self, driver: Driver, board: Board, window: PeerWindow, mine: int, source: int, stream: int
    ) -> None:
        import cupy

        self._driver, self._board, self._window = driver, board, window
        self._mine, self._source = mine, source
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
        while self._told < self._taken and self._driver.done(self._events[self._told % MESSAGES]):
            self._told += 1
            self._board.set_freed(self._source, self._told)
        if self._expected:
            there = self._board.sent(self._source, self._mine)
            while self._expected and self._taken < there:
                self._take_letter(self._expected.popleft())
        return before != (self._told, self._taken)

    def _take_letter(self, letter: Letter) -> None:
        place = self._window.place(self._source, self._mine, self._taken)
        for address, offset, nbytes in letter.strips:
            self._driver.copy(address, place + offset, nbytes, self._stream)
        self._driver.record(self._events[self._taken % MESSAGES], self._stream)
        self._taken += 1
        letter.owner.pending -= 1
