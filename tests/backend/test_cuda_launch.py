"""Calls of the CUDA backend to CuPy, recorded by a stand-in."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgpuhash.backend import cuda, kernel_named
from dgpuhash.backend.constants import BLOCK_THREADS
from dgpuhash.errors import DeviceError, OutOfMemoryError

OWNER_OF = kernel_named("owner_of")

PROCESSORS, BLOCKS_EACH, STREAM = 4, 3, 11


class DriverError(RuntimeError):
    pass


class Recorder:
    """Stand-in for CuPy with the interface that a launch needs."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, Any, int]] = []
        self.shared: list[int] = []
        self.contexts = 0
        self.attributes: list[tuple[int, int, int]] = []
        self.loads = 0
        self.failure: Exception | None = None
        recorder = self

        class Module:
            def load(self, image: bytes) -> None:
                assert image.startswith(b"\x7fELF")
                recorder.loads += 1

            def get_function(self, name: str) -> Any:
                return SimpleNamespace(ptr=7)

        def memory() -> tuple[int, int]:
            recorder.contexts += 1
            return 1000, 5000

        def launch_kernel(function: int, *given: int) -> None:
            shared, stream, parameters, extra = given[6:]
            assert (function, stream, extra) == (7, STREAM, 0)
            assert recorder.contexts
            if recorder.failure is not None:
                raise recorder.failure
            (argument,) = (ctypes.c_void_p * 1).from_address(parameters)
            recorder.launches.append((given[:3], given[3:6], argument))
            recorder.shared.append(shared)

        device = SimpleNamespace(
            compute_capability="90", attributes={"MultiProcessorCount": PROCESSORS}
        )
        self.cuda = SimpleNamespace(
            Device=lambda index: device,
            driver=SimpleNamespace(
                CUDADriverError=DriverError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda *given: recorder.attributes.append(given),
                launchKernel=launch_kernel,
                occupancyMaxActiveBlocksPerMultiprocessor=lambda ptr, size, memory: BLOCKS_EACH,
            ),
            function=SimpleNamespace(Module=Module),
            get_current_stream=lambda: SimpleNamespace(ptr=STREAM),
            runtime=SimpleNamespace(
                CUDARuntimeError=RuntimeError,
                getDevice=lambda: 0,
                getDeviceCount=lambda: 1,
                getDeviceProperties=lambda index: {"name": b"Stand-in"},
                memGetInfo=memory,
            ),
        )

    class ndarray:  # noqa: N801
        def __init__(self, shape: Any, dtype: Any) -> None:
            raise MemoryError("out of memory")

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_bytes=lambda: 234)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """Install the stand-in for CuPy and an empty kernel cache."""
    made = Recorder()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path))
    return made


@pytest.mark.parametrize(
    ("rows", "tile", "blocks"),
    [(1, 1, 1), (256, 1, 1), (257, 1, 2), (64, 4, 1), (65, 4, 2), (10**9, 32, 12)],
)
def test_grid_fills_the_device_at_most(
    recorder: Recorder, rows: int, tile: int, blocks: int
) -> None:
    kernel = dataclasses.replace(OWNER_OF, tile=tile)
    cuda.CudaBackend().launch(kernel, bytes(OWNER_OF.args.nbytes), rows)
    ((grid, block, _),) = recorder.launches
    assert grid == (blocks, 1, 1)
    assert block == (256, 1, 1)


def test_struct_is_passed_by_value_and_the_kernel_loaded_once(recorder: Recorder) -> None:
    gpu = cuda.CudaBackend()
    passed = []
    for parts in (3, 4):
        gpu.run(OWNER_OF, 10, parts=parts)
        raw = ctypes.string_at(recorder.launches[-1][2], OWNER_OF.args.nbytes)
        passed.append(int(np.frombuffer(raw, OWNER_OF.args.dtype)["parts"].item()))
    assert passed == [3, 4]
    assert recorder.loads == 1


def test_prepared_launches_are_done_later_and_together(recorder: Recorder) -> None:
    gpu, done = cuda.CudaBackend(), []
    steps: list[Any] = [gpu.prepared(OWNER_OF, rows, parts=rows + 1) for rows in (10, 0, 300)]
    # Others come between, and each step keeps its own argument.
    gpu.run(OWNER_OF, 10, parts=99)
    assert (recorder.loads, len(recorder.launches)) == (1, 1)
    gpu.in_one_call([*steps, functools.partial(done.append, 5)])
    passed = [
        np.frombuffer(ctypes.string_at(each[2], OWNER_OF.args.nbytes), OWNER_OF.args.dtype)
        for each in recorder.launches[1:]
    ]
    assert [int(each["parts"].item()) for each in passed] == [11, 301]
    assert [each[0] for each in recorder.launches[1:]] == [(1, 1, 1), (2, 1, 1)]
    recorder.failure = DriverError("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match=r"Stand-in.*ILLEGAL_ADDRESS"):
        gpu.in_one_call([*steps, functools.partial(done.append, 6)])
    assert done == [5]


def test_a_kernel_can_be_loaded_before_it_is_launched(recorder: Recorder) -> None:
    gpu = cuda.CudaBackend()
    gpu.load(OWNER_OF)
    assert (recorder.loads, recorder.launches) == (1, [])
    gpu.run(OWNER_OF, 10, parts=3)
    assert (recorder.loads, len(recorder.launches)) == (1, 1)


def test_threads_that_load_a_kernel_at_once_launch_the_same_function(recorder: Recorder) -> None:
    met = threading.Barrier(2, timeout=20)

    class Module:
        def load(self, image: bytes) -> None:
            met.wait()

        def get_function(self, name: str) -> Any:
            return SimpleNamespace(ptr=id(self))

    recorder.cuda.function.Module = Module
    gpu = cuda.CudaBackend()
    with ThreadPoolExecutor(2) as pool:
        steps: list[Any] = list(
            pool.map(lambda rows: gpu.prepared(OWNER_OF, rows, parts=3), (10, 20))
        )
    kept: Any = gpu.prepared(OWNER_OF, 30, parts=3)
    assert len({each.args[0] for each in (*steps, kept)}) == 1


def test_a_device_that_does_not_take_a_kernel(recorder: Recorder) -> None:
    def refuse(*given: Any) -> None:
        raise DriverError("CUDA_ERROR_OUT_OF_MEMORY")

    recorder.cuda.driver.funcSetAttribute = refuse
    with pytest.raises(DeviceError, match=r"owner_of .*Stand-in.*: CUDA_ERROR_OUT_OF_MEM.*; free"):
        cuda.CudaBackend().load(OWNER_OF)


def test_each_thread_passes_memory_of_its_own_and_has_a_context(recorder: Recorder) -> None:
    gpu = cuda.CudaBackend()

    def launch(together: threading.Barrier) -> None:
        for _ in range(2):
            gpu.launch(OWNER_OF, bytes(OWNER_OF.args.nbytes), 10)
        together.wait(10)

    with ThreadPoolExecutor(2) as pool:
        together = threading.Barrier(2)
        for done in [pool.submit(launch, together) for _ in range(2)]:
            done.result()
    assert len({argument for _, _, argument in recorder.launches}) == 2
    assert recorder.contexts == 2


def test_what_is_too_long_to_pass_is_refused(recorder: Recorder) -> None:
    with pytest.raises(BufferError):
        cuda.CudaBackend().launch(OWNER_OF, bytes(5000), 10)


def test_blocks_get_the_shared_memory_that_they_ask_for(recorder: Recorder) -> None:
    backend = cuda.CudaBackend()
    kernel = kernel_named("partition_scatter", "u4", "u4", width=backend.partition_threads)
    backend.launch(kernel, bytes(kernel.args.nbytes), 5)
    backend.launch(OWNER_OF, bytes(OWNER_OF.args.nbytes), 5)
    scatter, none = recorder.shared
    assert scatter > BLOCK_THREADS
    assert none == 0
    assert recorder.attributes == [(7, 8, scatter), (7, 8, 0)]


def test_no_rows_no_launch(recorder: Recorder) -> None:
    cuda.CudaBackend().launch(OWNER_OF, bytes(OWNER_OF.args.nbytes), 0)
    assert not recorder.launches


def test_failed_launch_is_explained(recorder: Recorder) -> None:
    recorder.failure = DriverError("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match=r"dg::owner_of over 10 rows.*Stand-in.*ILLEGAL_ADDRESS"):
        cuda.CudaBackend().launch(OWNER_OF, bytes(OWNER_OF.args.nbytes), 10)


def test_out_of_memory_says_needed_and_free(recorder: Recorder) -> None:
    message = r"8,000 bytes of device memory were needed, 1,234 of 5,000 are free on Stand-in"
    with pytest.raises(OutOfMemoryError, match=message):
        cuda.CudaBackend().empty((10, 100), "u8")
