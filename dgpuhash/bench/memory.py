"""Measure a call's peak memory, and choose batch sizes within the free memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, TypeVar

from dgpuhash.backend import Backend

Result = TypeVar("Result")


def peak_bytes(backend: Backend, work: Callable[[], Result]) -> tuple[int, Result]:
    """Return the peak bytes of arrays that `work` allocates, and its result.

    Memory allocated before the call, such as the input, does not count; the result does. On a GPU
    every allocation from CuPy's pool is counted, on the CPU every one by NumPy, but not the few
    bytes that kernels allocate for themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from dgpuhash import backend
    >>> peak, made = peak_bytes(backend.get("cpu"), lambda: np.zeros(10**6, np.uint8))
    >>> 10**6 <= peak < 2 * 10**6
    True
    """
    return (_on_gpu if backend.name == "cuda" else _on_cpu)(backend, work)


def _on_gpu(backend: Backend, work: Callable[[], Result]) -> tuple[int, Result]:
    class Watch(backend.xp.cuda.MemoryHook):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.now = self.most = 0

        def malloc_postprocess(self, **call: Any) -> None:
            self.now += call["mem_size"]
            self.most = max(self.most, self.now)

        def free_postprocess(self, **call: Any) -> None:
            self.now -= call["mem_size"]

    # Where CuPy shares RMM's pool, no hook is called.
    pool = backend.xp.get_default_memory_pool()
    with backend.xp.cuda.using_allocator(pool.malloc), Watch() as watch:
        result = work()
    return watch.most, result


def _on_cpu(backend: Backend, work: Callable[[], Result]) -> tuple[int, Result]:
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = work()
        return tracemalloc.get_traced_memory()[1] - before, result
    finally:
        if not running:
            tracemalloc.stop()


# Peak bytes for each byte of a batch: input, table, peers' copies, checks.
_COPIES = 16


def rows_that_fit(backend: Backend, rows: int, row_bytes: int) -> int:
    """Halve `rows` until the batch fits the device's free memory.

    The peak memory is taken to be 16 times that of a batch with `row_bytes` bytes a row.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> rows_that_fit(backend.get("cpu"), 1024, 16)
    1024
    """
    free = backend.memory()[0]
    while rows > 1 and _COPIES * rows * row_bytes > free:
        rows //= 2
    return rows
