"""GPU memory that other processes of the host put rows into where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import Collective, Landing
from dgpuhash.distributed.collective.cuda_ipc_memory import PAGE_NBYTES, PeerMemory

__all__ = ["PeerLanding", "landing_nbytes"]

# The most that a rank has, of its GPU's memory; more goes through windows.
SHARE = 16
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
    return int(total) // SHARE
