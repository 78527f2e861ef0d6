"""Host buffer at a fixed address for the arguments of a kernel launch."""

from __future__ import annotations

import ctypes
import threading

# Most bytes of arguments on GPUs before sm_70 and with drivers before CUDA 12.1.
_MOST_NBYTES = 4096


class LaunchBuffer(threading.local):
    """Reusable argument buffer, one for each thread.

    The buffer is thread-local because a launch releases the GIL while the driver copies from it.

    Attributes
    ----------
    parameters : int
        The address of the address of the argument, as ``cuLaunchKernel`` takes it.
    devices : set of int
        Devices on which this thread has a context.
    """

    def __init__(self) -> None:
        self._argument = bytearray(_MOST_NBYTES)
        # While this view exists, the bytearray can be neither moved nor resized.
        self._there = (ctypes.c_char * _MOST_NBYTES).from_buffer(self._argument)
        self._addresses = (ctypes.c_void_p * 1)(ctypes.addressof(self._there))
        self.parameters: int = ctypes.addressof(self._addresses)
        self.devices: set[int] = set()

    def put(self, argument: bytes) -> None:
        """Write `argument` to the memory that `parameters` point to.

        Raises
        ------
        BufferError
            When `argument` is too long.
        """
        self._argument[: len(argument)] = argument


class LaunchArgument:
    """Argument of one launch that happens later, in memory of its own.

    Attributes
    ----------
    parameters : int
        The address of the address of the argument, as ``cuLaunchKernel`` takes it.
    """

    def __init__(self, argument: bytes) -> None:
        self._there = ctypes.create_string_buffer(argument, len(argument))
        self._addresses = (ctypes.c_void_p * 1)(ctypes.addressof(self._there))
        self.parameters: int = ctypes.addressof(self._addresses)
