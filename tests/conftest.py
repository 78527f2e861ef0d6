"""Fixtures: the device of a table test, the CPU and a GPU if there is one.

``-m gpu`` asks for the GPU half. Without a GPU that fails; it does not skip.
``--hypothesis-profile=search`` draws other examples, and other seeds, in each run.
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from dgpuhash import backend as backends
from dgpuhash.errors import DeviceError
from dgpuhash.seeds import VARIABLE

# Of several processes each tests on one GPU.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.removeprefix("gw")) % len(gpus)]

if find_spec("dask") is not None:
    import dask

    # Dask's profiler asks for the frames of all threads, and garbage may be collected meanwhile. If
    # hypothesis, which counts that, lets a thread run that ends, both wait for ever (CPython 3.11).
    dask.config.set({"distributed.worker.profile.enabled": False})

settings.register_profile(
    "dgpuhash",
    deadline=None,
    max_examples=20,
    derandomize=True,
    # A busy machine may be slow to draw; and what our fixtures give is the same for each example.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("search", settings.get_profile("dgpuhash"), derandomize=False)
settings.load_profile("dgpuhash")

# mypy reads them; to run them would raise.
collect_ignore_glob = ["typing/*_calls.py"]


class Device:
    """One device, and copies of host arrays to it and back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = backends.get(name)

    def array(self, host: Any, dtype: Any = None) -> Any:
        """Copy a host array to the device: dates as int64, records as bytes."""
        array = np.asarray(host, dtype)
        if self.name == "cuda":
            if array.dtype.kind in "mM":
                array = array.view(np.int64)
            elif array.dtype.kind in "SUV":
                flat = np.ascontiguousarray(array).view(np.uint8)
                array = flat.reshape(len(array), array.dtype.itemsize)
        return self.backend.from_host(array)

    def host(self, result: Any, dtype: Any) -> np.ndarray:
        """Copy a result to the host, with its logical dtype."""
        array = self.backend.to_host(result)
        if array.dtype != np.dtype(dtype):
            array = np.ascontiguousarray(array).view(dtype).reshape(len(array))
        return array


@pytest.fixture(autouse=True)
def seeds_of_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed every draw of this process, so that each run of a test is equal."""
    if settings.default.derandomize:
        monkeypatch.setenv(VARIABLE, str(zlib.crc32(request.node.nodeid.encode())))


@pytest.fixture(autouse=True)
def files_in_memory_of_the_test() -> Iterator[None]:
    """Remove the files that a test wrote to fsspec's memory://."""
    yield
    if memory := sys.modules.get("fsspec.implementations.memory"):
        memory.MemoryFileSystem.store.clear()
        memory.MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Yield each device in turn."""
    return Device(request.param)


@pytest.fixture
def host() -> Device:
    """Return the CPU, whatever the device under test is."""
    return Device("cpu")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests themselves out of garbage collections.

    There are half a million objects of them, which each full collection would read again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Search no file of tests for examples: none has any, and each would be read twice."""
    found = yield
    is_test = file_path.name.startswith("test_")
    return [each for each in found if not (is_test and isinstance(each, DoctestModule))]


# The first, for others to sort and mark only what runs.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the GPU tests if there is no GPU, unless ``-m gpu`` asks for them."""
    if "gpu" in config.option.markexpr or _gpu_present():
        return
    needing = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def _gpu_present() -> bool:
    try:
        backends.get("cuda")
    except DeviceError:
        return False
    return True
