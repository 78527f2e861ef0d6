"""Median times: CUDA events on a GPU, the wall clock on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

from dgpuhash.backend import Backend

__all__ = ["median_time"]

Result = TypeVar("Result")


def median_time(
    backend: Backend,
    work: Callable[[], Result],
    *,
    repeats: int,
    before: Callable[[], object] | None = None,
) -> tuple[float, Result]:
    """The median seconds of `work` over `repeats` runs after one that is not counted.

    Parameters
    ----------
    backend : Backend
        Whose clock to use: events on the current stream, or the wall clock.
    work : callable
        What is timed.
    repeats : int
        Counted runs.
    before : callable, optional
        Run before each `work`, outside the time.

    Returns
    -------
    float, object
        Seconds, and what the last run returned.
    """
    once = _on_gpu if backend.name == "cuda" else _on_cpu
    times = []
    result: Any = None
    for _ in range(repeats + 1):
        result = None  # its memory is free for the next run
        if before is not None:
            before()
        seconds, result = once(backend, work)
        times.append(seconds)
    return statistics.median(times[1:]), result


def _on_gpu(backend: Backend, work: Callable[[], Result]) -> tuple[float, Result]:
    cuda = backend.xp.cuda
    start, stop = cuda.Event(), cuda.Event()
    start.record()
    result = work()
    stop.record()
    stop.synchronize()
    return float(cuda.get_elapsed_time(start, stop)) / 1000, result


def _on_cpu(backend: Backend, work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result
