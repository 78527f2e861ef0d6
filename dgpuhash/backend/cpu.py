"""CPU backend: NumPy arrays and the kernels in `dgpuhash._native`."""

from __future__ import annotations

import functools
import math
import os
import platform
import threading
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash import config
from dgpuhash.backend.base import Backend, Shape
from dgpuhash.backend.device import reject_nulls, require_host
from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.launches import Step
from dgpuhash.backend.native import REBUILD, native
from dgpuhash.errors import CompileError, OutOfMemoryError
from dgpuhash.typing import Device

ALIGNMENT = 64
# Environment variable: threads of the process; overrides every other setting.
VARIABLE = "DGPUHASH_NUM_THREADS"
# Where the system does not tell it.
_CACHE_NBYTES = 32 * 2**20
_NOT_STARTED = (KeyError, IndexError, ValueError, TypeError)


class ThreadQuota:
    """Thread-pool sizes claimed by the Dask workers of this process.

    The workers share one pool of as many threads as they have in total, but at most one per CPU
    of the process. So neither several workers of one process nor several processes of one host use
    more threads than they were given. Without workers the pool has one thread per CPU. If
    ``DGPUHASH_NUM_THREADS`` is set, it alone decides, or else the setting ``threads``.

    Examples
    --------
    >>> shares = ThreadQuota()
    >>> shares.take("tcp://host:1", 1)
    >>> native().threads()
    1
    >>> shares.give_back("tcp://host:1")
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}

    def take(self, worker: str, threads: int) -> None:
        """Register a worker that starts with `threads` threads."""
        with self._lock:
            self._taken[worker] = threads
            self._apply()

    def give_back(self, worker: str) -> None:
        """Unregister a worker that stops."""
        with self._lock:
            if self._taken.pop(worker, None) is not None:
                self._apply()

    def _apply(self) -> None:
        if os.environ.get(VARIABLE):
            return
        # Zero threads select the default: one per CPU.
        given = min(sum(self._taken.values()), len(os.sched_getaffinity(0)))
        threads = config.threads() or given
        if threads != native().threads():
            native().set_threads(threads)


class CpuBackend(Backend):
    """Backend with NumPy arrays and a pool of threads for kernels."""

    name: Device = "cpu"

    _pointer = None

    @property
    def xp(self) -> ModuleType:
        return np

    @property
    def is_serial(self) -> bool:
        return bool(native().threads() == 1)

    def launch(self, kernel: Kernel, args: bytes, n: int) -> None:
        extension = native()
        try:
            extension.launch(kernel.instance or kernel.expression, args, n)
        except _NOT_STARTED as error:
            raise CompileError(
                f"kernel {kernel.expression} did not start: {error}; {REBUILD}"
            ) from error

    def prepare(self, kernel: Kernel, args: bytes, n: int) -> functools.partial[Any]:
        return functools.partial(native().launch, kernel.instance or kernel.expression, args, n)

    def in_one_call(self, steps: Iterable[Step]) -> None:
        try:
            super().in_one_call(steps)
        except _NOT_STARTED as error:
            raise CompileError(f"a kernel did not start: {error}; {REBUILD}") from error

    def empty(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        made = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        if isinstance(shape, int):
            dims: tuple[int, ...] = (shape,)
            nbytes = shape * made.itemsize
        else:
            dims = tuple(shape)
            nbytes = math.prod(dims) * made.itemsize
        try:
            room = np.empty(nbytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError, OverflowError) as error:
            raise OutOfMemoryError(
                f"{nbytes:,} bytes of host memory were needed and {self.memory()[0]:,} are free; "
                "use a smaller capacity or batch"
            ) from error
        return np.ndarray(dims, made, room, -native().address(room) % ALIGNMENT)

    def asarray(self, data: Any, dtype: DTypeLike | None = None) -> np.ndarray:
        if type(data) is np.ndarray and dtype is None and data.flags.c_contiguous:
            return data
        require_host(data)
        reject_nulls(data)
        if not isinstance(data, np.ndarray) and hasattr(data, "__dlpack__"):
            data = np.from_dlpack(data)
        return np.ascontiguousarray(data, dtype=dtype) if np.ndim(data) else np.asarray(data, dtype)

    def from_host(self, data: Any) -> np.ndarray:
        return self.asarray(data)

    def to_host(self, data: Any) -> np.ndarray:
        return np.asarray(data)

    def pointer(self, data: Any) -> int:
        if data is None or data.size == 0:
            return 0
        return int(native().address(data))

    def stable_order(self, keys: Any) -> np.ndarray:
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)

    def synchronize(self) -> None:
        """Return at once: a launch returns when its work is done."""

    def memory(self) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        total = page * os.sysconf("SC_PHYS_PAGES")
        meminfo = Path("/proc/meminfo")
        if meminfo.exists():
            for line in meminfo.read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024, total
        return page * os.sysconf("SC_AVPHYS_PAGES"), total

    def cache_nbytes(self) -> int:
        known = "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names
        return (os.sysconf("SC_LEVEL3_CACHE_SIZE") if known else 0) or _CACHE_NBYTES

    def device_name(self) -> str:
        return f"{_processor()} ({native().threads()} threads)"


@functools.cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
