"""Spill arrays to an unlinked temporary file."""

from __future__ import annotations

import errno
import io
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.errors import OutOfMemoryError

# What a file system says that has no room.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ALIGNMENT = 64
_REMEDY = "or name a folder of a larger disk by the variable TMPDIR"


class UnnamedFile:
    """Unlinked temporary file: the system frees it even if the process is killed.

    Parameters
    ----------
    what : str
        Name of its content, for error messages.

    Examples
    --------
    >>> file = UnnamedFile("numbers")
    >>> at = file.append(np.arange(3))
    >>> file.read(at + 8, 2, np.int64)
    array([1, 2])
    >>> file.close()
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._file: Any = None
        self._end = 0

    def append(self, array: np.ndarray) -> int:
        """Write an array; return its offset in the file, a multiple of 64.

        Raises
        ------
        OutOfMemoryError
            When the disk is full.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        at = self._end + -self._end % _ALIGNMENT
        folder = tempfile.gettempdir()
        with told_if_full(folder, array.nbytes, self._what, _REMEDY):
            self._file.seek(at)
            WholeWrites(self._file).write(array.view(np.uint8).data)
        self._end = at + array.nbytes
        return at

    def read(self, at: int, n: int, dtype: DTypeLike) -> np.ndarray:
        """Return `n` elements from an offset; several threads may read at once."""
        array = np.empty(n, dtype)
        room = array.view(np.uint8).data
        while len(room):
            done = os.preadv(self._file.fileno(), [room], at + array.nbytes - len(room))
            if not done:
                raise OSError(f"a temporary file of {self._what} was cut short by someone else")
            room = room[done:]
        return array

    def mapped(self) -> mmap.mmap | None:
        """Return a memory map of the file, which outlives this object; None for an empty file."""
        if not self._end:
            return None
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class WholeWrites(io.RawIOBase):
    """Raw file that counts the bytes written; each write is complete or raises."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._fd = file.fileno()
        self.written: int = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._fd, view[done:])
        self.written += done
        return done


@contextmanager
def told_if_full(folder: str, nbytes: int, what: str, remedy: str) -> Iterator[None]:
    """Translate errors of a full disk raised inside a block that writes `nbytes` of `what`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(folder).free
        raise OutOfMemoryError(
            f"the disk is full: {what} that do not fit the memory are written to {folder}, where "
            f"{nbytes:,} more bytes are needed and {free:,} are free; free disk space there, "
            f"{remedy}"
        ) from error
