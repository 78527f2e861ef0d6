"""Small values between processes of one host, by memory that they share."""

from __future__ import annotations

import mmap
import os
import pickle
import platform
import tempfile
from pathlib import Path
from typing import Any

from dgpuhash.errors import UnsupportedError

__all__ = ["Mailbox"]

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
