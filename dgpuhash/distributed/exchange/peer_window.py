"""GPU memory that other processes of the host put messages into."""

from __future__ import annotations

from typing import Any

__all__ = ["PeerWindow", "message_nbytes", "messages_of"]

# A receiver holds so many messages of each sender or more, and up to 1 GiB in all, so that what
# comes in several steps of a pipeline need not wait for its rank.
MESSAGES = 8
MESSAGE_NBYTES = 64 << 20
WINDOW_NBYTES = 1 << 30
# Of GPU memory. Bare copies of 2 GiB between two H200s: 386 to 389 GB/s into windows with slots of
# 64 MiB, 288 into one whose slots had 4 KiB more.
PAGE_NBYTES = 2 << 20
# cudaIpcMemLazyEnablePeerAccess
LAZY_PEER_ACCESS = 1


def message_nbytes(size: int) -> int:
    """Of the messages between `size` ranks."""
    pages = WINDOW_NBYTES // MESSAGES // max(1, size - 1) // PAGE_NBYTES
    return min(MESSAGE_NBYTES, max(1, pages) * PAGE_NBYTES)


def messages_of(size: int) -> int:
    """How many messages of each other rank a window has room for, between `size` ranks."""
    return max(MESSAGES, WINDOW_NBYTES // max(1, size - 1) // message_nbytes(size))


class PeerWindow:
    """This rank's memory for what comes, and the way into that of the others.

    Pools cannot be shared with other processes, so it is memory of its own.

    Parameters
    ----------
    rank, size : int

    Attributes
    ----------
    messages : int
        Of each other rank that it has room for.
    """

    def __init__(self, rank: int, size: int) -> None:
        import cupy

        self._runtime: Any = cupy.cuda.runtime
        self._rank, self._size = rank, size
        self._slot = message_nbytes(size)
        self.messages = messages_of(size)
        self._opened: dict[int, int] = {}
        self._base = 0
        if size > 1:
            self._base = self._runtime.malloc((size - 1) * self.messages * self._slot)

    @property
    def handle(self) -> bytes:
        """By which the other processes open it."""
        return self._runtime.ipcGetMemHandle(self._base) if self._base else b""

    def open(self, handles: list[bytes]) -> None:
        """Get access to the windows of all ranks."""
        for rank, handle in enumerate(handles):
            if rank != self._rank:
                self._opened[rank] = self._runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS)

    def place(self, source: int, target: int, message: int) -> int:
        """The address of a message from `source` in the window of `target`, seen from here."""
        base = self._base if target == self._rank else self._opened[target]
        row = source - (source > target)
        return base + (row * self.messages + message % self.messages) * self._slot

    def leave(self) -> None:
        """Give up the access to the others' windows."""
        for address in self._opened.values():
            self._runtime.ipcCloseMemHandle(address)
        self._opened.clear()

    def free(self) -> None:
        """Free the memory; nobody else has access to it."""
        if self._base:
            self._runtime.free(self._base)
        self._base = 0
