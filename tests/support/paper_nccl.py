"""Simulated NCCL: ranks are threads, and sent data waits in boxes."""

from __future__ import annotations

import ctypes
import random
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

__all__ = ["Communicator", "NcclStream", "nccl"]

_local = threading.local()


class Communicator:
    """Communicator between threads with the interface of CuPy's.

    Attributes
    ----------
    made : list of Communicator
        All.
    refuse : callable
        Returns why the communicator with a number cannot be made, or None.
    error : int
    aborted : bool
    """

    made: ClassVar[list[Communicator]] = []
    refuse: ClassVar[Callable[[int], str | None]] = lambda number: None
    boxes: ClassVar[dict[Any, deque[bytes]]] = {}

    def __init__(self, size: int, unique: int, number: int) -> None:
        if trouble := Communicator.refuse(number):
            raise RuntimeError(trouble)
        self.size, self.unique, self.number = size, unique, number
        self.error, self.aborted = 0, False
        self.thread = threading.get_ident()
        Communicator.made.append(self)

    def send(self, address: int, nbytes: int, kind: Any, to: int, stream: Any) -> None:
        def work() -> bool:
            self._box(self.number, to).append(ctypes.string_at(address, nbytes))
            return True

        _local.group.append((stream, work))

    def recv(self, address: int, nbytes: int, kind: Any, source: int, stream: Any) -> None:
        def work() -> bool:
            box = self._box(source, self.number)
            if not box:
                return False
            rows = box.popleft()
            assert len(rows) == nbytes
            ctypes.memmove(address, rows, nbytes)
            return True

        _local.group.append((stream, work))

    def _box(self, source: int, to: int) -> deque[bytes]:
        # Both ends may be the first to ask for it, at once.
        return Communicator.boxes.setdefault((self.unique, source, to), deque())

    def check_async_error(self) -> int:
        return self.error

    def abort(self) -> None:
        self.aborted = True


class NcclStream:
    """Stream on which groups of operations run one after the other.

    All other work is done at once.
    """

    def __init__(self) -> None:
        self.ptr = self
        self.groups: deque[list[Callable[[], bool]]] = deque()
        self.given = self.ended = 0

    def wait_event(self, event: Any) -> None:
        """Do nothing: work on other simulated streams is done at once."""

    def record(self) -> Any:
        return Record(self, self.given)

    def synchronize(self) -> None:
        """Do nothing: all other work is done at once."""

    def __enter__(self) -> NcclStream:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the stream was current."""

    def step(self) -> None:
        if self.groups:
            left = [work for work in self.groups[0] if not work()]
            self.groups[0] = left
            if not left:
                self.groups.popleft()
                self.ended += 1


class Record:
    """Event at the end of the groups that were queued before it."""

    def __init__(self, stream: NcclStream, groups: int) -> None:
        self._stream, self._groups = stream, groups

    @property
    def done(self) -> bool:
        if random.random() < 0.5:
            self._stream.step()
        return self._stream.ended >= self._groups

    def synchronize(self) -> None:
        """Do nothing: all other work is done at once."""


def group_start() -> None:
    assert getattr(_local, "group", None) is None, "a group of this thread was not ended"
    _local.group = []


def group_end() -> None:
    group, _local.group = _local.group, None
    if group:
        stream = group[0][0]
        stream.groups.append([work for _, work in group])
        stream.given += 1


nccl = SimpleNamespace(
    NCCL_UINT8=1,
    NcclCommunicator=Communicator,
    get_unique_id=lambda: random.getrandbits(60),
    get_version=lambda: 2,
    groupStart=group_start,
    groupEnd=group_end,
)
