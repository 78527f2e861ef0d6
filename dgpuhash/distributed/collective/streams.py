"""Second CUDA stream, to overlap partitioning with serving."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dgpuhash.backend import Backend


class _Streams(threading.local):
    """Streams of this thread, one for each device."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, cuda: Any) -> Any:
        """Return the stream of the current device."""
        device = cuda.runtime.getDevice()
        if device not in self._made:
            self._made[device] = cuda.Stream(non_blocking=True)
        return self._made[device]


_streams = _Streams()


class SideStream:
    """Work on a second stream of a GPU; on a CPU it is done at once.

    Memory that is allocated on this stream returns to it when it is freed. So whoever has used such
    memory on the current stream calls `follow` before freeing it. All side streams of a thread on
    one device are the same stream, so that memory pools, which keep blocks by stream, reuse the
    blocks of earlier tables.

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
            # A wait refers to what was recorded when it was queued, so one event can be reused.
            self._event = cuda.Event(disable_timing=True)

    def use(self) -> AbstractContextManager[Any]:
        """Return a context whose work is queued on this stream."""
        return contextlib.nullcontext() if self._stream is None else self._stream

    def follow(self) -> None:
        """Make later work here wait for the work queued on the current stream."""
        if self._stream is not None:
            self._event.record(self._backend.xp.cuda.get_current_stream())
            self._stream.wait_event(self._event)

    def rejoin(self) -> None:
        """Make the current stream wait for the work queued here."""
        if self._stream is not None:
            self._event.record(self._stream)
            self._backend.xp.cuda.get_current_stream().wait_event(self._event)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Wait at the end of the block for all work here, also after an error."""
        try:
            yield
        finally:
            if self._stream is not None:
                self._stream.synchronize()

    def fetch(self, array: Any) -> Callable[[], np.ndarray]:
        """Start to copy a small array to the host, and return a function.

        The array belongs to this stream; the function waits for the copy, and returns it.
        """
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
