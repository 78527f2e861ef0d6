"""The share of all runs in a worker's memory, and what is written beyond it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgpuhash.distributed.shards import worker_memory
from dgpuhash.distributed.shards.worker_memory import Spillable, SpillManager


class Rows(Spillable):
    """Rows of a run that count how often they are written."""

    def __init__(self, memory: Any, nbytes: int, kept_nbytes: int = 0) -> None:
        self.writes, self._nbytes, self._kept = 0, nbytes, kept_nbytes
        super().__init__(memory)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def kept_nbytes(self) -> int:
        return self._kept

    def spill(self) -> None:
        self._nbytes, self.writes = 0, self.writes + 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a worker's memory with a share of 100 bytes."""
    monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 10)
    made: Any = SimpleNamespace(left=300, relieve=lambda: None)
    made.for_rows = lambda: made.left
    made.spills = SpillManager(made)
    return made


def test_the_largest_of_all_runs_are_written_first(memory):
    small, large, keys = Rows(memory, 30), Rows(memory, 50), Rows(memory, 20, kept_nbytes=15)
    assert memory.spills.is_beyond
    memory.spills.make_room(20)
    assert (small.writes, large.writes, keys.writes) == (0, 1, 0)
    assert not memory.spills.is_beyond


def test_few_bytes_more_are_not_looked_at(memory):
    rows = Rows(memory, 200)
    memory.spills.make_room(10)
    assert rows.writes == 0
    memory.spills.make_room(1)
    assert rows.writes == 1


def test_where_memory_is_used_up_nearly_all_is_written(memory):
    rows, few = Rows(memory, 40), Rows(memory, 10)
    memory.left = -1
    memory.spills.make_room(50)
    assert (rows.writes, few.writes) == (1, 0)


def test_what_is_free_or_gone_does_not_count(memory):
    free, kept = Rows(memory, 90), Rows(memory, 60)
    free.free()
    assert not memory.spills.is_beyond
    more = Rows(memory, 90)
    assert memory.spills.is_beyond
    del more
    assert not memory.spills.is_beyond and kept.writes == 0


def test_what_keys_take_cannot_be_written(memory):
    rows = Rows(memory, 1, kept_nbytes=500)
    memory.spills.make_room(500)
    memory.spills.make_room(500)
    assert rows.writes == 1 and not memory.spills.is_beyond
