"""Arrays in a file without a name, in the folder for temporary files."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.errors import OutOfMemoryError

__all__ = ["UnnamedFile"]

_ALIGNMENT = 64
# What a file system says that has no room.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
        raw = array.view(np.uint8).data
        try:
            self._file.seek(at)
            while len(raw):
                raw = raw[self._file.write(raw) :]
        except OSError as error:
            if error.errno not in _FULL:
                raise
            folder = tempfile.gettempdir()
            raise OutOfMemoryError(
                f"the disk is full: k-mers that memory has no place for go to {folder}, where "
                f"{len(raw):,} bytes more are needed and {shutil.disk_usage(folder).free:,} are "
                "free; free some, or name a folder of a larger disk by the variable TMPDIR"
            ) from error
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
