"""GPU memory that other processes of the host put messages into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Collective, Landing

__all__ = [
    "PeerLanding",
    "PeerMemory",
    "PeerWindow",
    "WindowSlots",
    "landing_nbytes",
    "window_nbytes",
]

# A receiver holds so many messages of each sender or more, and up to 1 GiB in all, so that what
# comes in several steps of a pipeline need not wait for its rank; of small GPUs' memory 1 / 128.
MESSAGES = 8
MESSAGE_NBYTES = 64 << 20
WINDOW_NBYTES = 1 << 30
WINDOW_SHARE = 128
# Of GPU memory. Bare copies of 2 GiB between two H200s: 386 to 389 GB/s into windows with slots of
# 64 MiB, 288 into one whose slots had 4 KiB more.
PAGE_NBYTES = 2 << 20
# cudaIpcMemLazyEnablePeerAccess
LAZY_PEER_ACCESS = 1


class WindowSlots(NamedTuple):
    """How a window is cut; the same for all ranks."""

    number: int
    """Messages of each other rank that it has room for."""
    nbytes: int
    """Of the largest message."""

    @classmethod
    def of(cls, size: int, nbytes: int = WINDOW_NBYTES) -> WindowSlots:
        """Those of windows between `size` ranks, of `nbytes` or, with many ranks, somewhat more.

        Examples
        --------
        >>> [(slots.number, slots.nbytes >> 20) for slots in map(WindowSlots.of, [2, 4, 8])]
        [(16, 64), (8, 42), (8, 18)]
        """
        each = nbytes // max(1, size - 1)
        pages = max(1, each // MESSAGES // PAGE_NBYTES)
        message_nbytes = min(MESSAGE_NBYTES, pages * PAGE_NBYTES)
        return cls(max(MESSAGES, each // message_nbytes), message_nbytes)

    def nbytes_of(self, size: int) -> int:
        """Of a window of one of `size` ranks."""
        return (size - 1) * self.number * self.nbytes


def window_nbytes() -> int:
    """What this process's GPU has to give for a window."""
    import cupy

    _, total = cupy.cuda.runtime.memGetInfo()
    return min(WINDOW_NBYTES, int(total) // WINDOW_SHARE)


class PeerMemory:
    """Memory of this rank, and the way into that of the others.

    Pools cannot be shared with other processes, so it is memory of its own.

    Parameters
    ----------
    rank : int
    nbytes : int
        Of this rank's; the others' may have other sizes.
    """

    def __init__(self, rank: int, nbytes: int) -> None:
        import cupy

        self._runtime: Any = cupy.cuda.runtime
        self._rank, self.nbytes = rank, nbytes
        self._opened: dict[int, int] = {}
        self._base = self._malloc(cupy.get_default_memory_pool()) if nbytes else 0

    def _malloc(self, pool: Any) -> int:
        try:
            return int(self._runtime.malloc(self.nbytes))
        except RuntimeError:
            # The pool keeps what arrays had, and can give it back.
            pool.free_all_blocks()
            return int(self._runtime.malloc(self.nbytes))

    @property
    def handle(self) -> bytes:
        """By which the other processes open it."""
        return self._runtime.ipcGetMemHandle(self._base) if self._base else b""

    def open(self, handles: list[bytes]) -> None:
        """Get access to the memory of all ranks that have some."""
        for rank, handle in enumerate(handles):
            if rank != self._rank and handle:
                self._opened[rank] = self._runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS)

    def address(self, rank: int) -> int:
        """Where that of `rank` begins, seen from here."""
        return self._base if rank == self._rank else self._opened[rank]

    def leave(self) -> None:
        """Give up the access to the others' memory."""
        for address in self._opened.values():
            self._runtime.ipcCloseMemHandle(address)
        self._opened.clear()

    def free(self) -> None:
        """Free the memory; nobody else has access to it."""
        if self._base:
            self._runtime.free(self._base)
        self._base = 0


class PeerWindow(PeerMemory):
    """Places for messages of each other rank.

    Parameters
    ----------
    rank, size : int
    slots : WindowSlots
    """

    def __init__(self, rank: int, size: int, slots: WindowSlots) -> None:
        super().__init__(rank, slots.nbytes_of(size))
        self.slots = slots

    def place(self, source: int, target: int, message: int) -> int:
        """The address of a message from `source` in the window of `target`, seen from here."""
        row = source - (source > target)
        number, nbytes = self.slots
        return self.address(target) + (row * number + message % number) * nbytes


# The most that a rank has, of its GPU's memory; more goes through windows.
LANDING_SHARE = 16
# Room for batches that are a little larger than the first one.
SPARE = 8


class PeerLanding(Landing):
    """Memory of all ranks, as much of each as was needed so far.

    Parameters
    ----------
    end : Collective
    most : int
        Bytes of a rank; the same on all ranks.
    """

    def __init__(self, end: Collective, most: int) -> None:
        self._end, self._most = end, most
        self._nbytes = [0] * end.size
        self._memory: PeerMemory | None = None
        self._lying: dict[int, Any] = {}

    def fits(self, nbytes: Sequence[int]) -> bool:
        """Have at least so many bytes of each rank; whether it has, which all ranks tell alike.

        All ranks call it alike.
        """
        if max(nbytes) > self._most:
            return False
        if any(have < need for have, need in zip(self._nbytes, nbytes, strict=True)):
            pages = [-(-(need + need // SPARE) // PAGE_NBYTES) for need in nbytes]
            self._renew([max(1, each) * PAGE_NBYTES for each in pages])
            if self._memory is None:
                # Until less is asked for.
                self._most = max(nbytes) - 1
        return self._memory is not None

    def _renew(self, nbytes: list[int]) -> None:
        """Have so many bytes of each rank, or none where one has no memory for it."""
        self._close()
        handle, trouble = b"", False
        try:
            self._memory = PeerMemory(self._end.rank, nbytes[self._end.rank])
            handle = self._memory.handle
        except RuntimeError:
            trouble = True
        offers = self._end.gather((handle, trouble))
        if not any(trouble for _, trouble in offers):
            assert self._memory is not None
            try:
                self._memory.open([handle for handle, _ in offers])
            except RuntimeError:
                trouble = True
            if not any(self._end.gather(trouble)):
                self._nbytes = nbytes
                return
        self._close()

    def _close(self) -> None:
        """Give back what there is; all ranks do so at the same time."""
        self._lying, self._nbytes = {}, [0] * self._end.size
        self.leave()
        # Nobody has access to that of the others any more.
        self._end.gather(None)
        self.free()

    def array(self, rank: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """See `Landing`."""
        import cupy

        if rank not in self._lying:
            # As if it were this GPU's, by whose kernels it is written.
            self._lying[rank] = cupy.cuda.UnownedMemory(
                self.address(rank, 0), self._nbytes[rank], self._memory, cupy.cuda.Device().id
            )
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(self._lying[rank], offset))

    def address(self, rank: int, offset: int) -> int:
        """That of so many bytes from the beginning of a rank's, seen from here."""
        assert self._memory is not None
        return self._memory.address(rank) + offset

    def leave(self) -> None:
        """Give up the access to the others' memory."""
        if self._memory is not None:
            self._memory.leave()

    def free(self) -> None:
        """Free this rank's; nobody else has access to it."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.free()


def landing_nbytes() -> int:
    """What this process's GPU has to give at most."""
    import cupy

    _, total = cupy.cuda.runtime.memGetInfo()
    return int(total) // LANDING_SHARE
