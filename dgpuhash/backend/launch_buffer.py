"""What the driver copies a kernel's argument from."""

from __future__ import annotations

import ctypes
import threading

__all__ = ["Argument", "Passed"]

# The most that a kernel may take on GPUs before sm_70 and with drivers before CUDA 12.1.
_MOST_NBYTES = 4096


class Passed(threading.local):
    """Memory of each thread: a launch gives Python's lock away while the driver copies it.

    Attributes
    ----------
    parameters : int
        The address of the address of the argument, as ``cuLaunchKernel`` takes it.
    devices : set of int
        Those on which this thread has a context.
    """

    def __init__(self) -> None:
        self._argument = bytearray(_MOST_NBYTES)
        # As long as this stands, the memory stays where it is, and as long.
        self._there = (ctypes.c_char * _MOST_NBYTES).from_buffer(self._argument)
        self._addresses = (ctypes.c_void_p * 1)(ctypes.addressof(self._there))
        self.parameters = ctypes.addressof(self._addresses)
        self.devices: set[int] = set()

    def put(self, argument: bytes) -> None:
        """Let `argument` be what `parameters` stand for.

        Raises
        ------
        BufferError
            When it is too long.
        """
        self._argument[: len(argument)] = argument


class Argument:
    """Memory of one launch that is done later, with its argument.

    Attributes
    ----------
    parameters : int
        As those of `Passed`.
    """

    def __init__(self, argument: bytes) -> None:
        self._there = ctypes.create_string_buffer(argument, len(argument))
        self._addresses = (ctypes.c_void_p * 1)(ctypes.addressof(self._there))
        self.parameters = ctypes.addressof(self._addresses)
