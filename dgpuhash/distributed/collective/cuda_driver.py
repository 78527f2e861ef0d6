"""CUDA driver calls to copy and order work while holding the GIL."""

from __future__ import annotations

import ctypes
from typing import Any

from dgpuhash.errors import DeviceError

NOT_READY = 600


class Driver:
    """Bindings for copies, events and streams by their addresses.

    CuPy releases the GIL in each call, and the event loop of a worker on UCXX, which never sleeps,
    then keeps it for about 25 µs: with four H200s a message of 4 MiB took 125 µs that way. None of
    these calls waits. The thread has used CuPy before, so it has a context.
    """

    def __init__(self) -> None:
        library = ctypes.PyDLL("libcuda.so.1")
        address = ctypes.c_void_p
        self._copy = library.cuMemcpyAsync
        self._copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, address)
        self._record = library.cuEventRecord
        self._record.argtypes = (address, address)
        self._query = library.cuEventQuery
        self._query.argtypes = (address,)
        self._wait = library.cuStreamWaitEvent
        self._wait.argtypes = (address, address, ctypes.c_uint)

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copy GPU memory, in the order of `stream`."""
        _check("copy", self._copy(to, source, nbytes, stream))

    def record(self, event: Any, stream: int) -> None:
        """Record `event` after the work queued on `stream`."""
        _check("record an event", self._record(event.ptr, stream))

    def done(self, event: Any) -> bool:
        """Return whether the work before `event` is done."""
        status = self._query(event.ptr)
        if status == NOT_READY:
            return False
        _check("look at an event", status)
        return True

    def wait(self, stream: int, event: Any) -> None:
        """Make work queued later on `stream` wait for `event`."""
        _check("wait for an event", self._wait(stream, event.ptr, 0))


def _check(what: str, status: int) -> None:
    if status:
        raise DeviceError(
            f"the CUDA driver could not {what} (error {status}), perhaps for what was launched "
            "before; the process must be restarted: rerun with CUDA_LAUNCH_BLOCKING=1 to find it"
        )
