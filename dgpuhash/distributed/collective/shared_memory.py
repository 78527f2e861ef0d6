"""Words in memory that all processes of a host share: who has sent and read how much."""

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

__all__ = ["Board", "Mailbox"]

# Of a pickled value; larger ones go another way.
ROOM = 1 << 16
FOLDER = Path("/dev/shm")
# Two values of a rank lie here at once: who has written number n + 1 has read all with number n, so
# its number n - 1 is of use to nobody.
TURNS = 2
# Before a value: its number, and its length.
_WORDS = 2
_NBYTES = _WORDS * 8 + ROOM
TOO_LARGE = -1


class Mailbox:
    """Each rank writes its own values and reads all; the number of a value is written last.

    Others see words in the order in which they are written: so it is on x86, and on hosts of
    another kind it is not used.

    Parameters
    ----------
    path : Path
        As `create` gives it; it can be removed when all have opened it.
    rank, size : int
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), size * TURNS * _NBYTES)
        self._words = memoryview(self._memory).cast("q")

    @staticmethod
    def create(name: str, size: int) -> Path:
        """A new one for `size` ranks.

        Raises
        ------
        UnsupportedError
            On a host that is not known to do.
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
        """Whether all ranks have written theirs."""
        return all(self._words[self._base(rank, number)] > number for rank in range(self._size))

    def values(self, number: int) -> list[Any] | None:
        """The values of all ranks, which are there; None when one was too large."""
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


# Exchanges whose counts stand on the board at once.
CALLS = 16


class Board:
    """A rank writes its own words and reads all; each word only grows, or is covered by one that
    does.

    Words are whole, and seen by others in the order in which they are written: so it is on x86,
    and on hosts of another kind it is not used.

    Parameters
    ----------
    path : Path
        A file of `Board.nbytes`, which can be removed when all have opened it.
    rank, size : int
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _words(size) * 8)
        self._words = memoryview(self._memory).cast("q")
        self._words[self._own(1 + 2 * size)] = os.getpid()
        # Where the counts of each rank stand, by call, and how far it has read those of others.
        self._counts = [[self._call(each, call) for each in range(size)] for call in range(CALLS)]
        self._reads = [self._own(0, each) for each in range(size)]

    @staticmethod
    def create(name: str, size: int) -> Path:
        """A new board for `size` ranks; nothing stands on it."""
        folder = FOLDER if FOLDER.is_dir() else Path(tempfile.gettempdir())
        handle, path = tempfile.mkstemp(prefix=f"dgpuhash-{name}-", dir=folder)
        os.truncate(handle, _words(size) * 8)
        os.close(handle)
        return Path(path)

    def write_counts(self, call: int, counts: np.ndarray, digest: int) -> None:
        """Tell what this rank sends in its exchange number `call`."""
        base = self._call(self._rank, call)
        self._words[base + 2 : base + 2 + self._size] = array("q", counts.tolist())
        self._words[base + 1] = digest
        self._words[base] = call + 1

    def has_counts(self, call: int) -> bool:
        """Whether all ranks have told theirs."""
        return min(map(self._words.__getitem__, self._counts[call % CALLS])) > call

    def counts(self, call: int) -> np.ndarray:
        """What each rank sends to this one."""
        mine = 2 + self._rank
        counts = [self._words[place + mine] for place in self._counts[call % CALLS]]
        return np.array(counts, np.int64)

    def strangers(self, call: int, digest: int) -> list[int]:
        """The ranks that exchange other columns than those of this digest."""
        places = enumerate(self._counts[call % CALLS])
        return [rank for rank, place in places if self._words[place + 1] != digest]

    def set_read(self, call: int) -> None:
        """This rank needs the counts of `call`, and those before, no longer."""
        self._words[self._own(0)] = call + 1

    def has_room(self, call: int) -> bool:
        """Whether nobody needs the counts any more that those of `call` are written over."""
        return min(map(self._words.__getitem__, self._reads)) > call - CALLS

    def sent(self, source: int, target: int) -> int:
        """Messages that `source` has put into the window of `target`."""
        return self._words[self._own(1 + target, source)]

    def set_sent(self, target: int, messages: int) -> None:
        """So many messages of this rank are in the window of `target`."""
        self._words[self._own(1 + target)] = messages

    def freed(self, source: int, target: int) -> int:
        """Messages from `source` that `target` has taken out of its window."""
        return self._words[self._own(1 + self._size + source, target)]

    def set_freed(self, source: int, messages: int) -> None:
        """This rank has taken so many messages from `source`."""
        self._words[self._own(1 + self._size + source)] = messages

    def leave(self) -> None:
        """This rank no longer writes into the windows of others."""
        self._words[self._own(1 + 2 * self._size)] = -1

    def all_left(self) -> bool:
        """Whether no other rank writes into windows: it left, or its process is gone."""
        marks = [self._words[self._own(1 + 2 * self._size, rank)] for rank in range(self._size)]
        return all(mark == -1 or not Path(f"/proc/{mark}").exists() for mark in marks)

    def _call(self, rank: int, call: int) -> int:
        return (rank * CALLS + call % CALLS) * (2 + self._size)

    def _own(self, word: int, rank: int | None = None) -> int:
        rank = self._rank if rank is None else rank
        return self._size * CALLS * (2 + self._size) + rank * (2 + 2 * self._size) + word


def _words(size: int) -> int:
    return size * (CALLS * (2 + size) + 2 + 2 * size)
