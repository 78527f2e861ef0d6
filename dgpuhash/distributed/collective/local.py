"""All-to-all between threads of one process, for tests and one-worker clusters."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import (
    STALL,
    Collective,
    Outgoing,
    Received,
    Transfer,
    aborted_error,
    closed_error,
    columns_differ_error,
)


class LocalCollective(Collective):
    """Endpoint of one thread; `group` makes the endpoints of all ranks.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> def swap(end):
    ...     rows = np.array([10, 11, 12]) + 10 * end.rank
    ...     return end.all_to_all([rows], [1, 2])
    >>> with ThreadPoolExecutor(2) as threads:
    ...     for received in threads.map(swap, LocalCollective.group(2)):
    ...         print(received.columns[0], received.counts)
    [10 20] [1 1]
    [11 12 21 22] [2 2]
    """

    def __init__(self, rank: int, room: Rendezvous) -> None:
        self.rank: int = rank
        self.size: int = room.size
        self._room = room
        self._calls = 0
        self._under_way: list[LocalTransfer] = []
        self._closed = False

    @classmethod
    def group(cls, size: int, limit: float = STALL) -> list[LocalCollective]:
        """Return the endpoints of a new group of `size` ranks.

        A rank that waits longer than `limit` seconds aborts the group.
        """
        room = Rendezvous(size, limit)
        return [cls(rank, room) for rank in range(size)]

    def _carry(self, outgoing: Outgoing) -> Transfer:
        outgoing.device.synchronize()
        transfer = LocalTransfer(self, self._put(outgoing), outgoing)
        self._under_way.append(transfer)
        return transfer

    def gather(self, value: Any) -> list[Any]:
        number = self._put(value)
        return self._take(number, list)

    def abort(self, reason: str) -> None:
        self._room.abandon(reason)

    def close(self) -> None:
        self._closed = True
        self._room.abandon(f"rank {self.rank} closed its end")

    def _put(self, thing: Any) -> int:
        number, self._calls = self._calls, self._calls + 1
        self._room.put(number, self.rank, thing)
        return number

    def _take(self, number: int, work: Callable[[list[Any]], Any]) -> Any:
        return self._room.take(number, work, lambda: self._closed)


class LocalTransfer(Transfer):
    """Transfer that copies this rank's rows from the other ranks' columns."""

    def __init__(self, end: LocalCollective, number: int, outgoing: Outgoing) -> None:
        self._end, self._number, self._outgoing = end, number, outgoing
        self._received: Received | None = None

    def wait(self) -> Received:
        before = self._end._under_way
        while self._received is None:
            first = before[0]
            first._received = self._end._take(first._number, first._assemble)
            del before[0]
        return self._received

    def _assemble(self, sent: list[Outgoing]) -> Received:
        mine, rank = self._outgoing, self._end.rank
        for source, theirs in enumerate(sent):
            if theirs.kind.digest != mine.kind.digest:
                raise columns_differ_error(source, rank)
        parts = [theirs.part(rank) for theirs in sent]
        counts = np.array([theirs.counts[rank] for theirs in sent], np.int64)
        room = mine.room(counts)
        for part, start, count in zip(parts, room.starts, counts, strict=True):
            for column, rows in zip(room.columns, part, strict=True):
                column[start : start + count] = rows
        mine.device.synchronize()
        return Received(room.columns, counts)


class Rendezvous:
    """Rendezvous of the threads: their values, and how many have read them."""

    def __init__(self, size: int, limit: float) -> None:
        self.size: int = size
        self._limit = limit
        self._changed = threading.Condition()
        self._things: dict[int, dict[int, Any]] = defaultdict(dict)
        self._readers: dict[int, int] = defaultdict(int)
        self._broken: str | None = None

    def put(self, number: int, rank: int, thing: Any) -> None:
        with self._changed:
            if self._broken is not None:
                raise aborted_error(self._broken)
            self._things[number][rank] = thing
            self._changed.notify_all()

    def take(self, number: int, work: Callable[[list[Any]], Any], ended: Callable[[], bool]) -> Any:
        """Return ``work(values of all ranks)``, once all ranks have put theirs.

        It returns when all ranks have read the values.
        """
        self._wait(lambda: len(self._things[number]) == self.size, ended)
        things = self._things[number]
        try:
            result = work([things[rank] for rank in range(self.size)])
        except BaseException as error:
            self.abandon(str(error))
            raise
        with self._changed:
            self._readers[number] += 1
            self._changed.notify_all()
        self._wait(lambda: self._readers[number] >= self.size, ended)
        with self._changed:
            self._readers[number] += 1
            if self._readers[number] == 2 * self.size:
                del self._things[number], self._readers[number]
        return result

    def abandon(self, reason: str) -> None:
        """Abort the group and wake all waiting ranks; the first reason is kept."""
        with self._changed:
            self._broken = self._broken or reason
            self._changed.notify_all()

    def _wait(self, there: Callable[[], bool], ended: Callable[[], bool]) -> None:
        with self._changed:
            came = self._changed.wait_for(lambda: there() or self._broken, self._limit)
            if there():
                return
            if not came:
                self._broken = f"a rank did not come within {self._limit:.0f} s"
                self._changed.notify_all()
        raise closed_error() if ended() else aborted_error(str(self._broken))
