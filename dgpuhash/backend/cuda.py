"""CUDA backend: CuPy's arrays, streams and allocator.

Kernels are compiled at their first use.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.base import Backend, Shape
from dgpuhash.backend.cache import load_or_compile
from dgpuhash.backend.compiler import architecture_for
from dgpuhash.backend.constants import (
    PART_ROWS,
    REGION_SHIFT,
    SMALL_PART_ROWS,
    SMALL_REGION_SHIFT,
    block_threads,
)
from dgpuhash.backend.device import device_of, reject_nulls, require_gpu
from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.launch_buffer import LaunchArgument, LaunchBuffer
from dgpuhash.backend.launches import Step
from dgpuhash.backend.memory import is_out_of_memory
from dgpuhash.errors import DeviceError, OutOfMemoryError, install_command
from dgpuhash.typing import Device

OLDEST_CAPABILITY = 75
# From this capability on, a block may have more than 64 KiB of shared memory.
ROOMY_CAPABILITY = 80


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A kernel loaded on a device."""

    function: Any
    resident_blocks: int
    """Blocks that fill the device."""
    shared_nbytes: int
    """Dynamic shared memory of each block."""

    def blocks(self, kernel: Kernel, n: int) -> int:
        """Return the number of blocks to launch for `n` rows."""
        wanted = -(-n * kernel.tile // kernel.threads)
        return wanted if kernel.in_order else min(wanted, self.resident_blocks)


class CudaBackend(Backend):
    """Backend with arrays and kernels on CuPy's current device and stream.

    Raises
    ------
    DeviceError
        When CuPy or a GPU of compute capability 7.5 or newer is missing. In a process that was
        forked from a process that uses a GPU: also from every use of memory or kernels.
    """

    name: Device = "cuda"
    # Whether this process was forked from a process that has made a backend.
    _forked: ClassVar[bool] = False

    def __init__(self) -> None:
        if CudaBackend._forked:
            _refuse_forked()
        self._cupy = _import_cupy()
        self._loaded: dict[tuple[int, str, int], _Loaded] = {}
        self._attributes: dict[int, Any] = {}
        self._passed = LaunchBuffer()
        _require_gpu_machine(self._cupy)
        self._capability(self._device())
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """Make every use of CUDA raise DeviceError in a forked child.

        CUDA's own failures there are hard to understand.
        """
        CudaBackend._forked = True
        # Replace hot methods, so that they need no check per call.
        vars(self).update(dict.fromkeys(("_device", "empty", "to_host", "memory"), _refuse_forked))

    @property
    def xp(self) -> ModuleType:
        return self._cupy

    @property
    def region_shift(self) -> int:
        return REGION_SHIFT if self._roomy() else SMALL_REGION_SHIFT

    def check_device(self) -> Callable[[], None]:
        home = self._device()

        def require_home() -> None:
            if (current := self._device()) != home:
                raise DeviceError(
                    f"a table on GPU {home} was used while GPU {current} is current; copy arrays "
                    f"to GPU {home} "
                    f"with cupy.asarray(x), and use the table inside 'with "
                    f"cupy.cuda.Device({home})'"
                )

        return require_home

    @property
    def swaps_pairs(self) -> bool:
        return architecture_for(self._capability(self._device())) >= 90

    @property
    def partition_threads(self) -> int:
        return block_threads(self._capability(self._device()))

    @property
    def partition_blocks(self) -> int:
        return self._attribute("MultiProcessorCount", self._device())

    @property
    def max_part_rows(self) -> int:
        return PART_ROWS if self._roomy() else SMALL_PART_ROWS

    def launch(self, kernel: Kernel, args: bytes, n: int) -> None:
        if n == 0:
            return
        device = self._device()
        try:
            loaded = self._load(kernel, device)
            blocks = loaded.blocks(kernel, n)
            passed, cuda = self._passed, self._cupy.cuda
            if device not in passed.devices:
                self._enter(device)
            passed.put(args)
            # CuPy's own call of a function takes 2 µs longer, to inspect its arguments.
            cuda.driver.launchKernel(
                loaded.function.ptr, blocks, 1, 1, kernel.threads, 1, 1,
                loaded.shared_nbytes, cuda.get_current_stream().ptr, passed.parameters, 0,
            )  # fmt: skip
        except self._cuda_errors() as error:
            raise DeviceError(
                f"{kernel.expression} over {n:,} rows failed on {self.device_name()}: {error}; "
                "rerun with CUDA_LAUNCH_BLOCKING=1 to find the call that broke the device"
            ) from error

    def prepare(self, kernel: Kernel, args: bytes, n: int) -> functools.partial[Any]:
        if n == 0:
            return functools.partial(bool)
        device, cuda = self._device(), self._cupy.cuda
        self.load(kernel)
        loaded = self._load(kernel, device)
        if device not in self._passed.devices:
            self._enter(device)
        argument = LaunchArgument(args)
        step: functools.partial[Any] = functools.partial(
            cuda.driver.launchKernel,
            loaded.function.ptr, loaded.blocks(kernel, n), 1, 1, kernel.threads, 1, 1,
            loaded.shared_nbytes, cuda.get_current_stream().ptr, argument.parameters, 0,
        )  # fmt: skip
        # Keeps the argument alive as long as the step.
        step.argument = argument  # type: ignore[attr-defined]
        return step

    def in_one_call(self, steps: Iterable[Step]) -> None:
        try:
            super().in_one_call(steps)
        except self._cuda_errors() as error:
            raise DeviceError(
                f"a change of a table failed on {self.device_name()}: {error}; rerun with "
                "CUDA_LAUNCH_BLOCKING=1 to find the call that broke the device"
            ) from error

    def load(self, *kernels: Kernel) -> None:
        for kernel in kernels:
            try:
                self._load(kernel, self._device())
            except self._cuda_errors() as error:
                raise DeviceError(
                    f"{kernel.expression} cannot be loaded on {self.device_name()}: {error}; free "
                    "memory there, or restart the process"
                ) from error

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        try:
            return self._cupy.ndarray(shape, dtype)
        except self._memory_errors() as error:
            if not is_out_of_memory(error):
                raise
            raise self._out_of_memory(shape, np.dtype(dtype)) from error

    def fill_ones(self, words: Any) -> None:
        words.data.memset_async(0xFF, words.nbytes)

    def asarray(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        if (
            type(data) is self._cupy.ndarray
            and dtype is None
            and data.flags.c_contiguous
            and data.data.device_id == self._device()
        ):
            return data
        require_gpu(data)
        reject_nulls(data)
        if device_of(data) == "cuda":
            data = self._as_cupy(data)
            if data.device.id != self._device():
                raise DeviceError(
                    f"an array is on GPU {data.device.id} and the current GPU is {self._device()}; "
                    f"copy the array there with cupy.asarray(x), or do all inside 'with "
                    f"cupy.cuda.Device({data.device.id})'"
                )
        try:
            array = self._cupy.asarray(data, dtype=dtype)
            return array if array.flags.c_contiguous else self._cupy.ascontiguousarray(array)
        except self._memory_errors() as error:
            if not is_out_of_memory(error):
                raise
            made = np.dtype(dtype) if dtype is not None else data.dtype
            raise self._out_of_memory(np.shape(data), made) from error

    def from_host(self, data: Any) -> Any:
        host = np.asarray(data)
        made = self.empty(host.shape, host.dtype)
        made.set(np.ascontiguousarray(host))
        return made

    def to_host(self, data: Any) -> np.ndarray:
        return np.asarray(self._cupy.asnumpy(data))

    def fetch(self, data: Any) -> Callable[[], np.ndarray]:
        # A copy to pageable memory would block.
        pinned = self._cupy.cuda.alloc_pinned_memory(data.nbytes)
        host = np.frombuffer(pinned, data.dtype, data.size).reshape(data.shape)
        data.get(out=host, blocking=False)
        copied = self.mark()

        def wait() -> np.ndarray:
            copied.synchronize()
            return host

        return wait

    def mark(self) -> Any:
        made = self._cupy.cuda.Event(disable_timing=True)
        made.record()
        return made

    def pointer(self, data: Any) -> int:
        if data is None or data.size == 0:
            return 0
        return int(data.data.ptr)

    def stable_order(self, keys: Any) -> Any:
        return self._cupy.argsort(keys, kind="stable").astype(np.int64, copy=False)

    def synchronize(self) -> None:
        try:
            self._cupy.cuda.get_current_stream().synchronize()
        except self._cuda_errors() as error:
            raise DeviceError(
                f"earlier work failed on {self.device_name()}: {error}; the process must be "
                "restarted; rerun with CUDA_LAUNCH_BLOCKING=1 to find the call"
            ) from error

    def memory(self) -> tuple[int, int]:
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes()), int(total)

    def cache_nbytes(self) -> int:
        return self._attribute("L2CacheSize", self._device())

    def device_name(self) -> str:
        return _device_name(self._cupy, self._device())

    def _as_cupy(self, data: Any) -> Any:
        """Return an array in device memory as a CuPy array.

        The current stream waits for the stream of the array's producer.
        """
        if isinstance(data, self._cupy.ndarray):
            return data
        interface = getattr(data, "__cuda_array_interface__", None)
        # PyTorch's interface names no stream; through DLPack it makes the current stream wait.
        if interface is None or (interface.get("stream") is None and hasattr(data, "__dlpack__")):
            return self._cupy.from_dlpack(data)
        return self._cupy.asarray(data)

    def _device(self) -> int:
        return int(self._cupy.cuda.runtime.getDevice())

    def _cuda_errors(self) -> tuple[type[Exception], ...]:
        cuda = self._cupy.cuda
        return (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError)

    def _memory_errors(self) -> tuple[type[Exception], ...]:
        return (MemoryError, *self._cuda_errors())

    def _enter(self, device: int) -> None:
        # Any runtime call that needs a context makes the device's context current in this thread.
        self._cupy.cuda.runtime.memGetInfo()
        self._passed.devices.add(device)

    def _capability(self, device: int) -> int:
        capability = int(self._cupy.cuda.Device(device).compute_capability)
        if capability < OLDEST_CAPABILITY:
            raise DeviceError(
                f"{_device_name(self._cupy, device)} has compute capability {capability / 10}; "
                f"dgpuhash needs {OLDEST_CAPABILITY / 10} (Turing) or newer; use device='cpu'"
            )
        return capability

    def _roomy(self) -> bool:
        return self._capability(self._device()) >= ROOMY_CAPABILITY

    def _attribute(self, name: str, device: int) -> int:
        # Cached, because CuPy queries all attributes at once.
        if device not in self._attributes:
            self._attributes[device] = self._cupy.cuda.Device(device).attributes
        return int(self._attributes[device][name])

    def _load(self, kernel: Kernel, device: int) -> _Loaded:
        # A string caches its hash, a dataclass does not.
        key = device, kernel.expression, kernel.threads
        found = self._loaded.get(key)
        if found is None:
            cubin = load_or_compile(kernel, architecture_for(self._capability(device)))
            module = self._cupy.cuda.function.Module()
            module.load(cubin.image)
            function = module.get_function(cubin.names[kernel.expression])
            driver, shared_nbytes = self._cupy.cuda.driver, cubin.shared_nbytes[kernel.expression]
            driver.funcSetAttribute(
                function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_nbytes
            )
            per_processor = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                function.ptr, kernel.threads, shared_nbytes
            )
            resident = max(1, per_processor) * self._attribute("MultiProcessorCount", device)
            # Of two threads that load it one is first: CUDA unloads the other's function.
            found = self._loaded.setdefault(key, _Loaded(function, resident, shared_nbytes))
        return found

    def _out_of_memory(self, shape: Shape, dtype: np.dtype[Any]) -> OutOfMemoryError:
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        free, total = self.memory()
        return OutOfMemoryError(
            f"{math.prod(dims) * dtype.itemsize:,} bytes of device memory were needed, {free:,} of "
            f"{total:,} are free on {self.device_name()}; use a smaller capacity or batch, or free "
            "arrays and call cupy.get_default_memory_pool().free_all_blocks()"
        )


def _refuse_forked(*_: Any, **__: Any) -> NoReturn:
    raise DeviceError(
        "this process was forked from one that uses a GPU, and cannot use that process's GPU "
        "memory or kernels; start processes by 'spawn' (multiprocessing.get_context('spawn')), "
        "and make or load "
        "tables there, or use device='cpu' in this one"
    )


def _import_cupy() -> ModuleType:
    try:
        import cupy
    except Exception as error:
        # A CuPy of the wrong CUDA release fails with several unrelated kinds.
        raise DeviceError(
            f"device='cuda' needs CuPy, whose import fails ({type(error).__name__}: {error}); "
            f"{install_command('cu13')} (CUDA 12: cu12), or use device='cpu'"
        ) from error
    return cupy


def _require_gpu_machine(cupy: ModuleType) -> None:
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
        reason = "the driver sees none"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, reason = 0, str(error)
    if count == 0:
        raise DeviceError(
            f"device='cuda' was requested, but there is no usable GPU ({reason}); check nvidia-smi "
            "and CUDA_VISIBLE_DEVICES, or use device='cpu'"
        )


def _device_name(cupy: ModuleType, device: int) -> str:
    name = cupy.cuda.runtime.getDeviceProperties(device)["name"]
    return f"{name.decode()} (GPU {device})"
