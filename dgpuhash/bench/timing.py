"""Measure median times, by CUDA events on a GPU and the wall clock on the CPU."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.errors import UnsupportedError

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

REPEATS = {"cuda": 5, "cpu": 3}
# Short work is called as often as fills this time, so that the host's part overlaps the device's.
_SHORT_SECONDS = 0.005
_MOST_CALLS = 64
# Half a millisecond of copying within 128 KiB, which evicts little from the cache.
_BUSY_SLOTS, _BUSY_ROWS = 2**12, 2**27


def median_time(
    backend: Backend, work: Callable[[], Result], *, repeats: int,
    before: Callable[[], object] | None = None, again: bool = False,
) -> tuple[float, Result]:  # fmt: skip
    """Return the median seconds of `work`, and the last run's result.

    The median is of `repeats` runs, after one that is not counted. A GPU is kept busy until the
    host has launched the first kernels of `work`: the time is that of the device, with each wait
    for the host, but without the launch of the first kernel, which `latency` measures.

    Parameters
    ----------
    backend : Backend
        Whose clock to use: events on the current stream, or the wall clock.
    work : callable
        The function to time.
    repeats : int
        Counted runs.
    before : callable, optional
        Run before each `work`, outside the time.
    again : bool
        Whether one run may call `work` several times, when `work` is short on a GPU.

    Returns
    -------
    float, object
        Seconds of one call, and what the last call returned.
    """
    once = _on_gpu if backend.name == "cuda" else _on_cpu
    times = []
    result: Any = None
    calls = 1
    for _ in range(repeats + 1):
        result = None  # its memory is free for the next run
        if before is not None:
            before()
        seconds, result = once(backend, work, calls)
        times.append(seconds / calls)
        if again and before is None and backend.name == "cuda" and len(times) == 1:
            result = None
            seconds, result = once(backend, work, 1)  # the first one compiled the kernels
            calls = max(1, min(_MOST_CALLS, math.ceil(_SHORT_SECONDS / max(seconds, 1e-9))))
    return statistics.median(times[1:]), result


def latency(backend: Backend, work: Callable[[], object], *, calls: int) -> tuple[float, float]:
    """Return the median wall-clock seconds of one call on an idle device.

    Returns
    -------
    float, float
        Until the device has finished, and until the call returned, which is the cost of the launch.
    """
    whole, launched = [], []
    work()
    for _ in range(calls):
        backend.synchronize()
        start = time.perf_counter()
        result = work()
        returned = time.perf_counter()
        backend.synchronize()
        whole.append(time.perf_counter() - start)
        launched.append(returned - start)
        del result
    return statistics.median(whole), statistics.median(launched)


def by_turns(works: Mapping[Key, Callable[[], Result]], repeats: int) -> dict[Key, list[Result]]:
    """Run each of `works` once a turn; return the results of each, by turn.

    A busy minute of the machine then takes a turn of all, and none of them alone. A library that
    says at its first turn that it cannot do it (`UnsupportedError`) has no results.

    Examples
    --------
    >>> by_turns({"one": lambda: 1, "two": lambda: 2}, 2)
    {'one': [1, 1], 'two': [2, 2]}
    """
    results: dict[Key, list[Result]] = {name: [] for name in works}
    for _ in range(repeats):
        for name in list(results):
            try:
                results[name].append(works[name]())
            except UnsupportedError:
                del results[name]
    return results


def count_calls(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of calls of Python and other functions by `work` in this thread.

    Examples
    --------
    >>> count_calls(lambda: len([]))
    (1, 1)
    """
    work()
    counts: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _, event, __: counts.update([event]))
    try:
        work()
    finally:
        sys.setprofile(before)
    # The last of the others is what ends the count.
    return counts["call"], counts["c_call"] - 1


def empty_launch(backend: Backend, *, calls: int) -> float:
    """Return the median seconds of CuPy's launch of an empty kernel.

    This wall-clock time is the least that any call on a GPU takes, without this package's own
    overhead.
    """
    nothing = backend.xp.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    return latency(backend, partial(nothing, (1,), (1,), ()), calls=calls)[1]


def _on_gpu(backend: Backend, work: Callable[[], Result], calls: int) -> tuple[float, Result]:
    cuda = backend.xp.cuda
    start, stop = cuda.Event(), cuda.Event()
    busy = backend.empty((2, _BUSY_SLOTS * 16), np.uint8)
    backend.run(
        kernel_named("limit_copy"), _BUSY_ROWS,
        values=busy[0], slots=busy[1], slot_count=_BUSY_SLOTS,
    )  # fmt: skip
    start.record()
    for _ in range(calls):
        result = work()
    stop.record()
    stop.synchronize()
    return float(cuda.get_elapsed_time(start, stop)) / 1000, result


def _on_cpu(backend: Backend, work: Callable[[], Result], calls: int) -> tuple[float, Result]:
    start = time.perf_counter()
    for _ in range(calls):
        result = work()
    return time.perf_counter() - start, result
