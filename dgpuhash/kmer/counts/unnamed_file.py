"""Arrays in a file without a name, in the folder for temporary files."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.frames.spill.file import WholeWrites, told_if_full

__all__ = ["UnnamedFile"]

_ALIGNMENT = 64
_REMEDY = "or name a folder of a larger disk by the variable TMPDIR"


class UnnamedFile:
    """A file that is gone when this object is, also when the process is killed.

    Examples
    --------
    >>> file = UnnamedFile()
    >>> at = file.append(np.arange(3))
    >>> file.read(at + 8, 2, np.int64)
    array([1, 2])
    >>> file.close()
    """

    def __init__(self) -> None:
        self._file: Any = None
        self._end = 0

    def append(self, array: np.ndarray) -> int:
        """Write an array, and return where it begins: at a multiple of 64.

        Raises
        ------
        OutOfMemoryError
            When the disk is full.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        at = self._end + -self._end % _ALIGNMENT
        folder = tempfile.gettempdir()
        with told_if_full(folder, array.nbytes, "k-mers", _REMEDY):
            self._file.seek(at)
            WholeWrites(self._file).write(array.view(np.uint8).data)
        self._end = at + array.nbytes
        return at

    def read(self, at: int, n: int, dtype: DTypeLike) -> np.ndarray:
        """Return `n` elements from a place on; several threads may read at once."""
        array = np.empty(n, dtype)
        room = array.view(np.uint8).data
        while len(room):
            done = os.preadv(self._file.fileno(), [room], at + array.nbytes - len(room))
            if not done:
                raise OSError("a temporary file of k-mers was cut short by someone else")
            room = room[done:]
        return array

    def mapped(self) -> mmap.mmap | None:
        """Return a map of what was written, which outlives this object; None when it is nothing."""
        if not self._end:
            return None
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
