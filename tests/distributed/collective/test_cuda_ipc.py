"""CUDA IPC messages between ranks that are threads with simulated GPUs.

The GPUs run their work late.
"""

from __future__ import annotations

import asyncio
import ctypes
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from paper_gpus import DeviceArray, Outgoing

from dgpuhash.distributed.collective import cuda_ipc, cuda_ipc_channel
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.collective.cuda_ipc_memory import WindowSlots
from dgpuhash.distributed.collective.shared_memory import CALLS, SharedCounters
from dgpuhash.errors import OutOfMemoryError, ShapeError

SIZE, MESSAGE = 3, 4096
TURNS = 25
# The address of the current stream.
CURRENT = 0


class PaperDriver:
    """Simulated driver whose streams advance when an event is queried.

    A query advances a stream by one step or none.
    """

    def __init__(self) -> None:
        self._streams: dict[int, deque[Callable[[], bool]]] = {}
        # Of each event whether what it stood for, when it was recorded last, is done.
        self._last: dict[Any, list[bool]] = {}
        self._chance = random.Random(3)
        self.kept: list[Any] = []

    def _given(self, stream: int, step: Callable[[], bool]) -> None:
        self._streams.setdefault(stream, deque()).append(step)

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._given(stream, lambda: bool(ctypes.memmove(to, source, nbytes)))

    def record(self, event: Any, stream: int) -> None:
        done = self._last[event] = [False]

        def step() -> bool:
            done[0] = True
            return True

        self._given(stream, step)

    def wait(self, stream: int, event: Any) -> None:
        done = self._last.get(event, [True])
        self._given(stream, lambda: done[0])

    def done(self, event: Any) -> bool:
        for steps in self._streams.values():
            if steps and self._chance.random() < 0.5 and steps[0]():
                steps.popleft()
        return self._last.get(event, [True])[0]

    def settle(self) -> None:
        while any(self._streams.values()):
            self.done(None)


class PaperWindow:
    """Staging buffers of messages in the process's memory, for all ranks."""

    slots = WindowSlots(4, MESSAGE)

    def __init__(self) -> None:
        self._rows = np.full((SIZE, SIZE, *self.slots), 255, np.uint8)

    def place(self, source: int, target: int, message: int) -> int:
        slot = self._rows[target, source, message % self.slots.number]
        return int(slot.ctypes.data)


class PaperStream:
    """Simulated stream with an address of its own."""

    made = CURRENT

    def __init__(self, **_: Any) -> None:
        PaperStream.made += 1
        self.ptr = PaperStream.made


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    cupy = ModuleType("cupy")
    cuda = SimpleNamespace(
        Stream=PaperStream, Event=lambda **_: object(), get_current_stream=nullcontext
    )
    cupy.__dict__.update(cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda_ipc, "Driver", PaperDriver)
    monkeypatch.setattr(cuda_ipc_channel, "PIECE_NBYTES", 1000)
    monkeypatch.setattr(cuda_ipc.PeerTransfer, "_stream", CURRENT)
    path, window = SharedCounters.create("test", SIZE), PaperWindow()
    ends = []
    for rank in range(SIZE):
        others = [other for other in range(SIZE) if other != rank]
        end = cuda_ipc.PeerCollective(
            SimpleNamespace(rank=rank, size=SIZE, broken=None, others=lambda others=others: others)
        )
        end._board, end._window = SharedCounters(path, rank, SIZE), window
        end._open_channels()
        ends.append(end)
    path.unlink()
    yield ends


def between(turn: int) -> np.ndarray:
    """Draw the rows from each rank to each, from none to above the window."""
    rng = np.random.default_rng(turn)
    rows = rng.integers(0, 1200, (SIZE, SIZE)) * rng.integers(0, 2, (SIZE, SIZE))
    return rows // 100 if is_wide(turn) else rows


def is_wide(turn: int) -> bool:
    return turn % 5 == 0


def sent_by(rank: int, turn: int) -> list[Any]:
    """Return a rank's columns, whose values name the rank.

    The rows' widths do not divide a message.
    """
    label = 1 + np.arange(between(turn)[rank].sum()) + 10**6 * rank + 10**8 * turn
    if is_wide(turn):
        return [(label[:, None] + np.arange(MESSAGE // 7)).view(DeviceArray)]
    columns = [label, (label % 251).astype("u1"), np.stack([label, -label, label], 1)]
    return [column.view(DeviceArray) for column in columns]


def came_to(rank: int, turn: int) -> list[np.ndarray]:
    parts = []
    for source, counts in enumerate(between(turn)):
        first = int(counts[:rank].sum())
        parts.append([column[first : first + counts[rank]] for column in sent_by(source, turn)])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def copied(driver: PaperDriver, column: Any) -> Any:
    """Return a copy that the current stream makes."""
    copy = np.zeros_like(column)
    driver.copy(copy.data.ptr, column.data.ptr, column.nbytes, CURRENT)
    driver.kept.append(column)
    return copy


def exchange(end: Any, ahead: int) -> None:
    """Run several transfers at once, a third of them into caller's buffers."""
    under_way: deque[tuple[int, Any]] = deque()
    for turn in range(TURNS + ahead):
        if turn < TURNS:
            columns = [copied(end.driver, column) for column in sent_by(end.rank, turn)]
            coming = between(turn)[:, end.rank]
            room = [np.zeros((coming.sum(), *column.shape[1:]), column.dtype) for column in columns]
            to = Destination(
                [column.view(DeviceArray) for column in room], coming.cumsum() - coming
            )
            counts = between(turn)[end.rank]
            outgoing = Outgoing(columns, counts, SIZE, None, None if turn % 3 else to)
            under_way.append((turn, end._carry(outgoing)))
        if turn >= ahead:
            done, transfer = under_way.popleft()
            came = [copied(end.driver, column) for column in transfer.wait().columns]
            end.driver.settle()
            for column, wanted in zip(came, came_to(end.rank, done), strict=True):
                assert np.array_equal(column, wanted)


@pytest.mark.parametrize("ahead", [4, CALLS + 3])
def test_rows_arrive_whole_and_in_the_order_of_ranks(ends: list[Collective], ahead: int):
    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(exchange, end, ahead) for end in ends]:
            done.result(60)


@pytest.mark.parametrize("number", [CALLS, CALLS + 1, CALLS + 6])
def test_a_stream_waits_for_what_another_one_waited_for(ends: list[Any], number: int, monkeypatch):
    """Transfers that are begun on a side stream, the first of which end to make room for more."""
    here, side = threading.local(), 10**6
    stream = property(lambda transfer: here.stream)
    monkeypatch.setattr(cuda_ipc.PeerTransfer, "_stream", stream)

    def work(end: Any) -> None:
        here.stream, transfers = side, []
        for turn in range(number):
            coming = between(turn)[:, end.rank]
            columns = sent_by(end.rank, turn)
            room = [np.zeros((coming.sum(), *each.shape[1:]), each.dtype) for each in columns]
            to = Destination([each.view(DeviceArray) for each in room], coming.cumsum() - coming)
            counts = between(turn)[end.rank]
            transfers.append(end._carry(Outgoing(columns, counts, SIZE, None, to)))
        here.stream, came = CURRENT, []
        for transfer in transfers:
            came.append([copied(end.driver, each) for each in transfer.wait().columns])
            # It goes on as soon as it may, before others.
            steps = end.driver._streams[CURRENT]
            while steps and steps[0]():
                steps.popleft()
        end.driver.settle()
        for turn, columns in enumerate(came):
            for column, wanted in zip(columns, came_to(end.rank, turn), strict=True):
                assert np.array_equal(column, wanted)

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


@pytest.fixture
def fields(ends: list[Any]) -> list[np.ndarray]:
    """Set up the destination buffers of each rank, a part for each exchange."""
    fields = [np.full(TURNS << 17, 255, np.uint8) for _ in ends]
    for end in ends:
        end._landing = SimpleNamespace(
            address=lambda rank, offset: fields[rank].ctypes.data + offset
        )
    return fields


def landing(turn: int, widths: list[int]) -> list[list[list[int]]]:
    """Return the byte offsets at which each rank receives rows of each other.

    They are by column.
    """
    found = []
    for coming in between(turn).T:
        base, firsts = turn << 17, []
        for width in widths:
            firsts.append(base + (np.cumsum(coming) - coming) * width)
            base += -(-int(coming.sum()) * width // 8) * 8
        assert base <= (turn + 1) << 17
        found.append(np.transpose(firsts).tolist())
    return found


def put_by_kernels(
    driver: PaperDriver, fields: list[Any], columns: list[Any], counts: Any, theirs: Any
) -> list[Any]:
    """Let the current stream write rows into the other ranks' memory.

    The columns that are returned are empty.
    """
    firsts = np.cumsum(counts) - counts
    for rank, field in enumerate(fields):
        for column, offset in zip(columns, theirs[rank], strict=True):
            rows = column[firsts[rank] : firsts[rank] + counts[rank]]
            driver.copy(field.ctypes.data + offset, rows.data.ptr, rows.nbytes, CURRENT)
            driver.kept.append(rows)
    return [column[:0] for column in columns]


def test_rows_are_put_straight_to_their_places(ends: list[Any], fields: list[np.ndarray]):
    """By copies and kernels, among others that go through windows; nobody copies them again."""

    def work(end: Any) -> None:
        copy, under_way = end.driver.copy, []
        taken = to_take = 0

        def copied_by(to: int, source: int, nbytes: int, stream: int) -> None:
            nonlocal taken
            taken += nbytes * (stream == end.taking.ptr)
            copy(to, source, nbytes, stream)

        end.driver.copy = copied_by
        for turn in range(6):
            columns, counts = sent_by(end.rank, turn), between(turn)[end.rank]
            widths = [column.itemsize * int(np.prod(column.shape[1:])) for column in columns]
            coming = between(turn)[:, end.rank]
            put = turn == 3
            to_take += sum(widths) * int(
                0 if put else coming[end.rank] if turn % 2 else coming.sum()
            )
            to = None
            if turn % 2:
                places = landing(turn, widths)
                room = []
                for offset, column in zip(places[end.rank][0], columns, strict=True):
                    shape = coming.sum(), *column.shape[1:]
                    nbytes = int(np.prod(shape)) * column.itemsize
                    raw = fields[end.rank][offset : offset + nbytes]
                    room.append(raw.view(column.dtype).reshape(shape).view(DeviceArray))
                theirs = [each[end.rank] for each in places]
                to = Destination(room, coming.cumsum() - coming, theirs=theirs, put=put)
                if put:
                    columns = put_by_kernels(end.driver, fields, columns, counts, theirs)
            under_way.append((turn, end._carry(Outgoing(columns, counts, SIZE, None, to))))
        for turn, transfer in under_way:
            came = transfer.wait().columns
            end.driver.settle()
            for column, wanted in zip(came, came_to(end.rank, turn), strict=True):
                assert np.array_equal(column, wanted)
        assert taken == to_take

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


def test_ranks_that_put_rows_and_ranks_that_do_not_are_told(ends: list[Any], fields: Any):
    def work(end: Any) -> str:
        column = np.arange(SIZE).view(DeviceArray)
        theirs = None if end.rank else [[0]] * SIZE
        to = Destination([np.empty_like(column)], np.arange(SIZE), theirs=theirs)
        end.abort = lambda reason: None
        try:
            end._carry(Outgoing([column], [1] * SIZE, SIZE, None, to)).wait()
        except ShapeError as error:
            return str(error)
        finally:
            end.driver.settle()
        return ""

    with ThreadPoolExecutor(SIZE) as threads:
        said = [done.result(60) for done in [threads.submit(work, end) for end in ends]]
    assert all("exchanges other columns" in each for each in said)


def test_given_places_are_written_beside_what_the_caller_does_later(ends: list[Collective]):
    """So answers come while its GPU works, on its own stream, on what it was given since."""
    turn = 2

    def work(end: Any) -> None:
        columns, coming = sent_by(end.rank, turn), between(turn)[:, end.rank]
        room = [np.zeros((coming.sum(), *column.shape[1:]), column.dtype) for column in columns]
        to = Destination([column.view(DeviceArray) for column in room], coming.cumsum() - coming)
        outgoing = Outgoing(columns, between(turn)[end.rank], SIZE, None, to)
        transfer = end._carry(outgoing)
        end.driver.busy = True
        end.driver._given(CURRENT, lambda: not end.driver.busy)
        transfer.wait()
        # Once all that was given before is done, and none of what was given since.
        while sum(map(len, end.driver._streams.values())) > len(end.driver._streams[CURRENT]):
            end.driver.done(None)
        for column, wanted in zip(room, came_to(end.rank, turn), strict=True):
            assert np.array_equal(column, wanted)
        end.driver.busy = False
        end.driver.settle()

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


def test_places_that_are_free_wait_for_nothing_else(ends: list[Collective]):
    """Nor does what comes after it, whose copies stand in the same order."""

    def work(end: Any) -> None:
        column = np.arange(0 if end.rank == 0 else 100).view(DeviceArray)
        counts = [len(column), 0, 0]
        free = object()
        end.driver.record(free, CURRENT)
        end.driver.busy = end.rank == 0
        end.driver._given(CURRENT, lambda: not end.driver.busy)
        room = np.zeros(200 if end.rank == 0 else 0, int).view(DeviceArray)
        to = Destination([room], np.array([0, 0, 100]) * (end.rank == 0), free)
        end._carry(Outgoing([column], counts, SIZE, None, to)).wait()
        if end.rank == 0:
            while not (room[:100] == room[100:]).all() or room[99] != 99:
                end.driver.done(None)
            assert end.driver.busy
            end.driver.busy = False
        end.driver.settle()

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


def test_room_is_made_ahead_where_all_have_told_their_counts(ends: list[Collective]):
    """So what comes next leaves the window beside what the caller does with what came."""
    told = Barrier(SIZE, timeout=60)

    def work(end: Any) -> list[Any]:
        transfers = []
        for turn in (1, 2, 3):
            columns, counts = sent_by(end.rank, turn), between(turn)[end.rank]
            transfers.append(end._carry(Outgoing(columns, counts, SIZE, None, None)))
        told.wait()
        came = [transfers[0].wait()]
        ahead = [transfer.counts is not None for transfer in transfers]
        nbytes = [transfer.nbytes for transfer in transfers]
        came += [transfer.wait() for transfer in transfers[1:]]
        end.driver.settle()
        for turn, received in zip((1, 2, 3), came, strict=True):
            for column, wanted in zip(received.columns, came_to(end.rank, turn), strict=True):
                assert np.array_equal(column, wanted)
        assert ahead == [True, True, True]
        coming = [sum(column.nbytes for column in came_to(end.rank, turn)) for turn in (1, 2, 3)]
        assert nbytes == [0, *coming[1:]]
        assert [transfer.nbytes for transfer in transfers] == [0, 0, 0]
        return transfers

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


def test_what_does_not_fit_the_windows_leaves_for_all_ranks_at_once(ends: list[Collective]):
    streams: dict[tuple[int, int], list[int]] = {}

    def work(end: Any) -> None:
        copy = end.driver.copy

        def copied_on(to: int, source: int, nbytes: int, stream: int) -> None:
            if stream != end.taking.ptr:
                streams.setdefault((end.rank, rows), []).append(stream)
            copy(to, source, nbytes, stream)

        end.driver.copy = copied_on
        for rows in (1000, 2000, 3000):
            column = np.arange(SIZE * rows).view(DeviceArray)
            came = end._carry(Outgoing([column], [rows] * SIZE, SIZE, None, None)).wait()
            end.driver.kept += [column, *came.columns]
        end.driver.settle()

    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)
    # A window has room for 4,096 numbers.
    for end in ends:
        ways = {way.stream.ptr for way in end.ways.values()}
        assert [set(streams[end.rank, rows]) for rows in (1000, 2000, 3000)] == [
            {end.leaving.ptr}, {end.leaving.ptr}, ways
        ]  # fmt: skip
        assert len(ways) == SIZE - 1


def test_memory_that_is_short_ahead_is_asked_for_again(ends: list[Collective]):
    def work(end: Any) -> None:
        outgoings, transfers = [], []
        for turn in (1, 2):
            columns, counts = sent_by(end.rank, turn), between(turn)[end.rank]
            outgoings.append(Outgoing(columns, counts, SIZE, None, None))
            transfers.append(end._carry(outgoings[-1]))
        told.wait()
        room = outgoings[1].room
        outgoings[1].room = short
        transfers[0].wait()
        assert transfers[1].counts is None
        outgoings[1].room = room
        came = transfers[1].wait()
        end.driver.settle()
        for column, wanted in zip(came.columns, came_to(end.rank, 2), strict=True):
            assert np.array_equal(column, wanted)

    def short(counts: Any) -> Any:
        raise OutOfMemoryError("none is left")

    told = Barrier(SIZE, timeout=60)
    with ThreadPoolExecutor(SIZE) as threads:
        for done in [threads.submit(work, end) for end in ends]:
            done.result(60)


def test_windows_are_freed_as_soon_as_the_others_have_left(ends: list[Any], monkeypatch: Any):
    naps: list[float] = []
    freed: list[int] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) in {3, 20}:
            ends[len(naps) // 10]._board.leave()

    monkeypatch.setattr(asyncio, "sleep", nap)
    window = SimpleNamespace(free=lambda: freed.append(len(naps)))
    ends[1]._board.leave()
    asyncio.run(ends[1]._free([window]))
    assert freed == [20]
    assert naps[:3] == [1e-3, 2e-3, 4e-3]
    assert naps[10:] == [0.1] * 10
