"""Shared counters of a host's ranks, messages, and choice of transport."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from dgpuhash.distributed.collective.cuda_ipc_channel import ALIGNMENT, split_messages
from dgpuhash.distributed.collective.cuda_ipc_memory import PAGE_NBYTES, WindowSlots
from dgpuhash.distributed.collective.group import WorkerInfo, transports_between
from dgpuhash.distributed.collective.shared_memory import CALLS, SharedCounters


@pytest.fixture
def boards() -> Iterator[list[SharedCounters]]:
    """Yield the ends of three ranks that share one board."""
    path = SharedCounters.create("test", 3)
    boards = [SharedCounters(path, rank, 3) for rank in range(3)]
    path.unlink()
    yield boards


def test_counts_are_read_when_all_have_told_them(boards):
    for call in range(2 * CALLS):
        for rank, board in enumerate(boards):
            assert not boards[0].has_counts(call)
            assert board.has_room(call)
            board.write_counts(call, np.array([rank, 10 * rank, call]), digest=7)
        assert [board.counts(call).tolist() for board in boards] == [
            [0, 1, 2], [0, 10, 20], [call] * 3,
        ]  # fmt: skip
        for board in boards:
            board.set_read(call)


def test_counts_stay_until_all_have_read_them(boards):
    for call in range(CALLS):
        for board in boards:
            board.write_counts(call, np.arange(3), digest=7)
    assert not boards[0].has_room(CALLS)
    for board in boards[:2]:
        board.set_read(0)
    assert not boards[0].has_room(CALLS)
    boards[2].set_read(0)
    assert boards[0].has_room(CALLS)
    assert not boards[0].has_room(CALLS + 1)


def test_ranks_with_other_columns_are_seen(boards):
    for rank, board in enumerate(boards):
        board.write_counts(0, np.arange(3), digest=-5 if rank == 1 else 7)
    assert boards[0].strangers(0, 7) == [1]
    assert boards[1].strangers(0, -5) == [0, 2]


def test_messages_are_counted_for_each_pair(boards):
    boards[0].set_sent(2, 5)
    boards[2].set_freed(0, 4)
    boards[1].set_sent(2, 9)
    assert [board.sent(0, 2) for board in boards] == [5, 5, 5]
    assert [board.freed(0, 2) for board in boards] == [4, 4, 4]
    assert boards[2].sent(1, 2) == 9
    assert boards[2].sent(0, 1) == boards[2].freed(1, 2) == 0


def test_windows_are_freed_when_all_ranks_left(boards):
    for board in boards:
        assert not boards[0].all_left()
        board.leave()
    assert boards[0].all_left()


@pytest.mark.parametrize("rows", [0, 1, 700, 5_000_000])
def test_messages_hold_all_rows_once_and_fit_the_window(rows):
    columns = [(2**40, 8 * rows), (2**41, rows), (2**42, 12 * rows)]
    room, owner = WindowSlots.of(4).nbytes, SimpleNamespace(pending=0)
    found = split_messages(owner, columns, room)
    expected = dict(columns)
    places = {first: first for first in expected}
    ends = []
    for letter in found:
        end = 0
        for address, offset, nbytes in letter.strips:
            assert offset % ALIGNMENT == 0 and offset >= end and nbytes > 0
            end = offset + nbytes
            column = max(first for first in expected if first <= address)
            assert places[column] == address
            places[column] += nbytes
        ends.append(end)
    assert places == {first: first + nbytes for first, nbytes in columns}
    assert len(found) == -(
        -sum(-(-nbytes // ALIGNMENT) for _, nbytes in columns) * ALIGNMENT // room
    )
    assert max(ends, default=0) <= room
    assert max(ends, default=0) - min(ends, default=0) <= len(found) * ALIGNMENT


@pytest.mark.parametrize("nbytes", [PAGE_NBYTES, 200 << 20, 1 << 30])
def test_windows_have_room_for_several_messages_of_whole_pages(nbytes):
    for size in range(2, 17):
        slots = WindowSlots.of(size, nbytes)
        whole = (size - 1) * slots.number * slots.nbytes
        assert slots.number >= 8
        assert slots.nbytes % PAGE_NBYTES == 0
        assert whole <= max(nbytes, (size - 1) * 8 * PAGE_NBYTES)


def place(host: str = "a", process: int = 1, device: str = "cuda") -> WorkerInfo:
    return WorkerInfo(host, process, device)


@pytest.mark.parametrize(
    ("places", "ways"),
    [
        ([place(), place(process=2)], ["peer", "nccl", "comm"]),
        ([place(), place(host="b")], ["nccl", "comm"]),
        ([place(), place()], ["comm"]),
        ([place(), place(process=2, device="cpu")], ["comm"]),
        ([place(device="cpu"), place(process=2, device="cpu")], ["comm"]),
    ],
)
def test_the_fastest_way_that_may_be_is_tried_first(places, ways):
    assert transports_between(places) == ways
