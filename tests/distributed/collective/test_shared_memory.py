"""Allgather between ranks of one host by shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from clusters import until

from dgpuhash.distributed.collective import shared_memory as module
from dgpuhash.distributed.collective.shared_memory import ROOM, SharedAllgather


@pytest.fixture
def boxes() -> Iterator[list[SharedAllgather]]:
    path = SharedAllgather.create("test", 3)
    yield [SharedAllgather(path, rank, 3) for rank in range(3)]
    path.unlink()


def test_all_ranks_read_what_all_have_put(boxes):
    def work(rank: int) -> list[list[tuple[int, int, str]]]:
        box, found = boxes[rank], []
        for number in range(300):
            box.put(number, (rank, number, "x" * (rank * number)))
            until(partial(box.there, number), pause=0)
            found.append(box.values(number))
        return found

    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(work, range(3)):
            for number, values in enumerate(found):
                assert values == [(rank, number, "x" * (rank * number)) for rank in range(3)]


def test_a_value_is_there_when_all_have_put_theirs(boxes):
    boxes[0].put(0, "a")
    boxes[2].put(0, "c")
    assert not boxes[1].there(0)
    boxes[1].put(0, None)
    assert all(box.there(0) and not box.there(1) for box in boxes)
    assert boxes[1].values(0) == ["a", None, "c"]


def test_a_value_that_is_too_large_goes_another_way(boxes):
    boxes[0].put(0, "a")
    boxes[1].put(0, np.zeros(ROOM, np.uint8))
    boxes[2].put(0, "c")
    assert boxes[0].there(0) and boxes[2].values(0) is None


def test_hosts_of_another_kind(monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    with pytest.raises(module.UnsupportedError, match="aarch64"):
        SharedAllgather.create("test", 2)
