"""Preload of workers with a GPU: their memory pool, and ballast in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["dask_setup", "fill", "free"]

FIRST, MOST = 256 << 20, 1 << 30
# Bytes that the pool's blocks are a multiple of.
BLOCK = 256

_ballast: list[Any] = []


def dask_setup(worker: Any) -> None:
    """Let RMM and CuPy allocate from a pool of limited size."""
    import cudf  # noqa: F401 - before the worker joins
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.reinitialize(pool_allocator=True, initial_pool_size=FIRST, maximum_pool_size=MOST)
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def fill(headroom: int) -> None:
    """Allocate all of the pool but `headroom` bytes."""
    import rmm

    left = rmm.DeviceBuffer(size=headroom) if headroom else None
    nbytes = MOST
    while nbytes >= BLOCK:
        with suppress(MemoryError):
            while True:
                _ballast.append(rmm.DeviceBuffer(size=nbytes))
        nbytes //= 2
    del left


def free() -> None:
    """Free the ballast."""
    _ballast.clear()
