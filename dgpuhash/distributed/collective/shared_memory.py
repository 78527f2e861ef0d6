"""Counters and small values in host memory, shared by the ranks of one host."""

from __future__ import annotations

import mmap
import os
import pickle
import platform
import tempfile
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.errors import UnsupportedError

# Most bytes of a pickled value; larger ones go over the Dask comm.
ROOM = 1 << 16
FOLDER = Path("/dev/shm")
# Two values a rank suffice: a rank that writes number n + 1 has read all values number n, so all
# ranks have written number n, hence have read number n - 1, which may be overwritten.
TURNS = 2
# Header of a value: its number, and its length.
_WORDS = 2
_NBYTES = _WORDS * 8 + ROOM
TOO_LARGE = -1


class SharedAllgather:
    """Allgather of small values through shared memory.

    Each rank writes its own values and reads all; the number of a value is written last. It relies
    on stores becoming visible in the order in which they are made: that holds on x86, and the class
    is not used on other architectures.

    Parameters
    ----------
    path : Path
        Returned by `create`; the file can be removed when all ranks have opened it.
    rank, size : int
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), size * TURNS * _NBYTES)
        self._words = memoryview(self._memory).cast("q")

    @staticmethod
    def create(name: str, size: int) -> Path:
        """Create the shared file for `size` ranks, and return its path.

        Raises
        ------
        UnsupportedError
            On an architecture that may reorder stores.
        """
        if platform.machine() not in {"x86_64", "AMD64"}:
            raise UnsupportedError(f"hosts of kind {platform.machine()} are not known to do")
        folder = FOLDER if FOLDER.is_dir() else Path(tempfile.gettempdir())
        handle, path = tempfile.mkstemp(prefix=f"dgpuhash-{name}-", dir=folder)
        os.truncate(handle, size * TURNS * _NBYTES)
        os.close(handle)
        return Path(path)

    def put(self, number: int, value: Any) -> None:
        """Write this rank's value number `number`."""
        letter = pickle.dumps(value)
        base = self._base(self._rank, number)
        if len(letter) <= ROOM:
            first = (base + _WORDS) * 8
            self._memory[first : first + len(letter)] = letter
        self._words[base + 1] = len(letter) if len(letter) <= ROOM else TOO_LARGE
        self._words[base] = number + 1

    def there(self, number: int) -> bool:
        """Return whether all ranks have written value number `number`."""
        return all(self._words[self._base(rank, number)] > number for rank in range(self._size))

    def values(self, number: int) -> list[Any] | None:
        """Return the values of all ranks, or None if one was too large.

        All ranks have written theirs.
        """
        found = []
        for rank in range(self._size):
            base = self._base(rank, number)
            length, first = self._words[base + 1], (base + _WORDS) * 8
            if length == TOO_LARGE:
                return None
            found.append(self._memory[first : first + length])
        return [pickle.loads(letter) for letter in found]

    def _base(self, rank: int, number: int) -> int:
        return (rank * TURNS + number % TURNS) * _NBYTES // 8


# Exchanges whose counts the board holds at the same time.
CALLS = 16


class SharedCounters:
    """Counters in shared memory by which ranks announce messages and counts.

    A rank writes its own words and reads all; each word only grows, or is guarded by one that does.
    It relies on words being written whole, and becoming visible in the order of the writes: that
    holds on x86, and the class is not used on other architectures.

    Parameters
    ----------
    path : Path
        Returned by `create`; the file can be removed when all ranks have opened it.
    rank, size : int
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _words(size) * 8)
        self._words = memoryview(self._memory).cast("q")
        self._words[self._own(1 + 2 * size)] = os.getpid()
        # Offsets of each rank's counts, by call, and of its word for the counts that it has read.
        self._counts = [[self._call(each, call) for each in range(size)] for call in range(CALLS)]
        self._reads = [self._own(0, each) for each in range(size)]

    @staticmethod
    def create(name: str, size: int) -> Path:
        """Create the shared file for `size` ranks, and return its path."""
        folder = FOLDER if FOLDER.is_dir() else Path(tempfile.gettempdir())
        handle, path = tempfile.mkstemp(prefix=f"dgpuhash-{name}-", dir=folder)
        os.truncate(handle, _words(size) * 8)
        os.close(handle)
        return Path(path)

    def write_counts(self, call: int, counts: np.ndarray, digest: int) -> None:
        """Announce the rows for each rank in this rank's exchange `call`."""
        base = self._call(self._rank, call)
        self._words[base + 2 : base + 2 + self._size] = array("q", counts.tolist())
        self._words[base + 1] = digest
        self._words[base] = call + 1

    def has_counts(self, call: int) -> bool:
        """Return whether all ranks have announced their counts of `call`."""
        return min(map(self._words.__getitem__, self._counts[call % CALLS])) > call

    def counts(self, call: int) -> np.ndarray:
        """Return the numbers of rows that each rank sends to this one."""
        mine = 2 + self._rank
        counts = [self._words[place + mine] for place in self._counts[call % CALLS]]
        return np.array(counts, np.int64)

    def strangers(self, call: int, digest: int) -> list[int]:
        """Return the ranks whose columns have a different digest."""
        places = enumerate(self._counts[call % CALLS])
        return [rank for rank, place in places if self._words[place + 1] != digest]

    def set_read(self, call: int) -> None:
        """Announce that this rank has read the counts up to `call`."""
        self._words[self._own(0)] = call + 1

    def has_room(self, call: int) -> bool:
        """Return whether the counts of `call` may overwrite older ones."""
        return min(map(self._words.__getitem__, self._reads)) > call - CALLS

    def sent(self, source: int, target: int) -> int:
        """Return the messages that `source` has put into `target`'s window."""
        return self._words[self._own(1 + target, source)]

    def set_sent(self, target: int, messages: int) -> None:
        """Announce the number of messages put into the window of `target`."""
        self._words[self._own(1 + target)] = messages

    def freed(self, source: int, target: int) -> int:
        """Return the messages of `source` that `target` took from its window."""
        return self._words[self._own(1 + self._size + source, target)]

    def set_freed(self, source: int, messages: int) -> None:
        """Announce the number of messages of `source` taken from the window."""
        self._words[self._own(1 + self._size + source)] = messages

    def leave(self) -> None:
        """Announce that this rank no longer writes into other ranks' windows."""
        self._words[self._own(1 + 2 * self._size)] = -1

    def all_left(self) -> bool:
        """Return whether every rank has left, or its process has ended."""
        marks = [self._words[self._own(1 + 2 * self._size, rank)] for rank in range(self._size)]
        return all(mark == -1 or not Path(f"/proc/{mark}").exists() for mark in marks)

    def _call(self, rank: int, call: int) -> int:
        return (rank * CALLS + call % CALLS) * (2 + self._size)

    def _own(self, word: int, rank: int | None = None) -> int:
        rank = self._rank if rank is None else rank
        return self._size * CALLS * (2 + self._size) + rank * (2 + 2 * self._size) + word


def _words(size: int) -> int:
    return size * (CALLS * (2 + size) + 2 + 2 * size)
