"""Expose GPU memory to other processes of the host, for their writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Collective, DestinationBuffers

# Fewest slots for each sender in a window of 1 GiB, or of 1 / 128 of a small GPU's memory: enough
# that the messages of several steps of a pipeline need not wait for the receiver.
MESSAGES = 8
MESSAGE_NBYTES = 64 << 20
WINDOW_NBYTES = 1 << 30
WINDOW_SHARE = 128
# Page of GPU memory. Bare copies of 2 GiB between two H200s: 386 to 389 GB/s into windows with
# slots of 64 MiB, 288 into one whose slots had 4 KiB more.
PAGE_NBYTES = 2 << 20
# cudaIpcMemLazyEnablePeerAccess
LAZY_PEER_ACCESS = 1


class WindowSlots(NamedTuple):
    """Number and size of the message slots of a window, on all ranks alike."""

    number: int
    """Slots for each other rank."""
    nbytes: int
    """Bytes of a slot, and of the largest message."""

    @classmethod
    def of(cls, size: int, nbytes: int = WINDOW_NBYTES) -> WindowSlots:
        """Return the slots of windows of `nbytes` bytes between `size` ranks.

        With many ranks, the windows are somewhat larger than `nbytes`.

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
        """Return the bytes of a window, for one of `size` ranks."""
        return (size - 1) * self.number * self.nbytes


def window_nbytes() -> int:
    """Return the bytes that this process's GPU can give for a window."""
    import cupy

    _, total = cupy.cuda.runtime.memGetInfo()
    return min(WINDOW_NBYTES, int(total) // WINDOW_SHARE)


class PeerMemory:
    """GPU memory of this rank, and access to the memory of the other ranks.

    It is allocated outside of pools, which cannot be shared with other processes.

    Parameters
    ----------
    rank : int
    nbytes : int
        Bytes of this rank's memory; the other ranks' may have other sizes.
    """

    def __init__(self, rank: int, nbytes: int) -> None:
        import cupy

        self._runtime: Any = cupy.cuda.runtime
        self._rank = rank
        self.nbytes: int = nbytes
        self._opened: dict[int, int] = {}
        self._base = self._malloc(cupy.get_default_memory_pool()) if nbytes else 0

    def _malloc(self, pool: Any) -> int:
        try:
            return int(self._runtime.malloc(self.nbytes))
        except RuntimeError:
            # The pool keeps the memory of freed arrays, and can return it.
            pool.free_all_blocks()
            return int(self._runtime.malloc(self.nbytes))

    @property
    def handle(self) -> bytes:
        """IPC handle by which the other processes open this rank's memory."""
        return self._runtime.ipcGetMemHandle(self._base) if self._base else b""

    def open(self, handles: list[bytes]) -> None:
        """Open the memory of all ranks that have some."""
        for rank, handle in enumerate(handles):
            if rank != self._rank and handle:
                self._opened[rank] = self._runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS)

    def address(self, rank: int) -> int:
        """Return the address in this process of the memory of `rank`."""
        return self._base if rank == self._rank else self._opened[rank]

    def leave(self) -> None:
        """Close the memory of the other ranks."""
        for address in self._opened.values():
            self._runtime.ipcCloseMemHandle(address)
        self._opened.clear()

    def free(self) -> None:
        """Free this rank's memory, which no other process has open."""
        if self._base:
            self._runtime.free(self._base)
        self._base = 0


class PeerWindow(PeerMemory):
    """Window with message slots for each other rank.

    Parameters
    ----------
    rank, size : int
    slots : WindowSlots
    """

    def __init__(self, rank: int, size: int, slots: WindowSlots) -> None:
        super().__init__(rank, slots.nbytes_of(size))
        self.slots = slots

    def place(self, source: int, target: int, message: int) -> int:
        """Return the address of the slot of a message from `source` to `target`.

        The address is valid in this process.
        """
        row = source - (source > target)
        number, nbytes = self.slots
        return self.address(target) + (row * number + message % number) * nbytes


# A rank's buffer is at most 1 / 16 of its GPU's memory; larger exchanges go through windows.
LANDING_SHARE = 16
# 1 / 8 more than was asked for, for batches that are a little larger than the first one.
SPARE = 8


class PeerBuffers(DestinationBuffers):
    """Destination buffers of all ranks, which grow with the demand.

    Parameters
    ----------
    end : Collective
    most : int
        Most bytes of a rank's buffer; the same on all ranks.
    """

    def __init__(self, end: Collective, most: int) -> None:
        self._end, self._most = end, most
        self._nbytes = [0] * end.size
        self._memory: PeerMemory | None = None
        self._lying: dict[int, Any] = {}

    def fits(self, nbytes: Sequence[int]) -> bool:
        """Return whether each rank has `nbytes` bytes, growing buffers if needed.

        All ranks make the same call and get the same result.
        """
        if max(nbytes) > self._most:
            return False
        if any(have < need for have, need in zip(self._nbytes, nbytes, strict=True)):
            pages = [-(-(need + need // SPARE) // PAGE_NBYTES) for need in nbytes]
            self._renew([max(1, each) * PAGE_NBYTES for each in pages])
            if self._memory is None:
                # No further attempt, unless for fewer bytes.
                self._most = max(nbytes) - 1
        return self._memory is not None

    def _renew(self, nbytes: list[int]) -> None:
        """Allocate `nbytes` on each rank, or no buffer if one rank cannot."""
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
        """Free the buffers; all ranks do so at the same time."""
        self._lying, self._nbytes = {}, [0] * self._end.size
        self.leave()
        # After this, no rank has another rank's buffer open.
        self._end.gather(None)
        self.free()

    def array(self, rank: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array in the buffer of `rank`; see `DestinationBuffers`."""
        import cupy

        if rank not in self._lying:
            # Declared as memory of this GPU, whose kernels write to it.
            self._lying[rank] = cupy.cuda.UnownedMemory(
                self.address(rank, 0), self._nbytes[rank], self._memory, cupy.cuda.Device().id
            )
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(self._lying[rank], offset))

    def address(self, rank: int, offset: int) -> int:
        """Return the address in this process of `offset` in a rank's buffer."""
        assert self._memory is not None
        return self._memory.address(rank) + offset

    def leave(self) -> None:
        """Close the buffers of the other ranks."""
        if self._memory is not None:
            self._memory.leave()

    def free(self) -> None:
        """Free this rank's buffer, which no other process has open."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.free()


def landing_nbytes() -> int:
    """Return the most bytes that this process's GPU gives for a buffer."""
    import cupy

    _, total = cupy.cuda.runtime.memGetInfo()
    return int(total) // LANDING_SHARE
