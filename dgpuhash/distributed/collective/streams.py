"""A second stream, on which the next rows are put in order while the last are served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["SideStream"]


class _Streams(threading.local):
    """Of this thread one for each device."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, cuda: Any) -> Any:
        """That of the current device."""
        device = cuda.runtime.getDevice()
        if device not in self._made:
            self._made[device] = cuda.Stream(non_blocking=True)
        return self._made[device]


_streams = _Streams()


class SideStream:
    """Work beside that of the current stream of a GPU; on a CPU all work is done where it is asked.

    Memory that is allocated here goes back to this stream when it is freed. So whoever used it on
    the current stream calls `follow` before. All that one thread makes are of one stream, so that
    pools, which keep memory by stream, have what earlier tables took for the next one.

    Parameters
    ----------
    backend : Backend
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._stream: Any = None
        if backend.name == "cuda":
            cuda = backend.xp.cuda
            self._stream = _streams.of(cuda)
            # Whoever waits for it waits for what it stood for then.
            self._event = cuda.Event(disable_timing=True)

    def use(self) -> AbstractContextManager[Any]:
        """A block whose work is done on this stream."""
        return contextlib.nullcontext() if self._stream is None else self._stream

    def follow(self) -> None:
        """Let what is launched here wait for what the current stream was given."""
        if self._stream is not None:
            self._event.record(self._backend.xp.cuda.get_current_stream())
            self._stream.wait_event(self._event)

    def rejoin(self) -> None:
        """Let the current stream wait for what was launched here."""
        if self._stream is not None:
            self._event.record(self._stream)
            self._backend.xp.cuda.get_current_stream().wait_event(self._event)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """A block at whose end all work here is done, also where it leaves arrays behind."""
        try:
            yield
        finally:
            if self._stream is not None:
                self._stream.synchronize()

    def fetch(self, array: Any) -> Callable[[], np.ndarray]:
        """Begin to copy a small array of this stream to the host; the call waits for it."""
        if self._stream is None:
            return lambda: self._backend.to_host(array)
        pinned = self._backend.xp.cuda.alloc_pinned_memory(array.nbytes)
        room = np.frombuffer(pinned, array.dtype, array.size)
        array.get(stream=self._stream, out=room, blocking=False)
        fetched = self._stream.record()

        def wait() -> np.ndarray:
            fetched.synchronize()
            return room

        return wait
