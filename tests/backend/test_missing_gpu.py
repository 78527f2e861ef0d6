"""Clear errors without CuPy, NVRTC or the extension; import needs none."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dgpuhash import backend
from dgpuhash.backend import compiler, cuda
from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.native import native
from dgpuhash.errors import CompileError, DeviceError


def test_import_touches_no_gpu() -> None:
    code = (
        "import sys, dgpuhash, dgpuhash.backend\n"
        "loaded = [name for name in ('cupy', 'cudf', 'cuda.bindings') if name in sys.modules]\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_cupy_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"needs CuPy.*'\.\[cu13\]'.*device='cpu'"):
        cuda.CudaBackend()


def test_nvrtc_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    compiler._nvrtc.cache_clear()
    with pytest.raises(CompileError, match=r"NVRTC.*cannot be loaded.*'\.\[cu13\]'"):
        compiler.nvrtc_version()


def test_extension_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgpuhash._native", None)
    native.cache_clear()
    with pytest.raises(CompileError, match=r"dgpuhash\._native.*C\+\+20 compiler"):
        backend.get("cpu").launch(Kernel("dg::any", ("launch/any.cuh",)), bytes(8), 1)


class RuntimeFailure(RuntimeError):
    pass


def fake_cupy(count: int | Exception, capability: str) -> SimpleNamespace:
    def get_device_count() -> int:
        if isinstance(count, Exception):
            raise count
        return count

    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeFailure,
        getDevice=lambda: 0,
        getDeviceCount=get_device_count,
        getDeviceProperties=lambda device: {"name": b"Test GPU"},
    )
    device = lambda index: SimpleNamespace(compute_capability=capability)  # noqa: E731
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=device))


@pytest.mark.parametrize("count", [0, RuntimeFailure("cudaErrorNoDevice: no device")])
def test_no_gpu(monkeypatch: pytest.MonkeyPatch, count: int | Exception) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(count, "90"))
    with pytest.raises(DeviceError, match=r"no usable GPU.*nvidia-smi.*device='cpu'"):
        cuda.CudaBackend()


def test_gpu_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1, "70"))
    with pytest.raises(DeviceError, match=r"Test GPU.*capability 7\.0.*7\.5"):
        cuda.CudaBackend()
