"""Describe the hardware and software versions of a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from dgpuhash.backend import Backend

_PACKAGES = (
    "dgpuhash", "numpy", "pandas", "dask", "distributed", "cupy-cuda13x", "cupy-cuda12x",
    "nvidia-cuda-nvrtc", "rmm-cu13", "rmm-cu12", "cudf-cu13", "dask-cuda", "distributed-ucxx-cu13",
    "distributed-ucxx-cu12",
)  # fmt: skip


def describe(backend: Backend) -> dict[str, str]:
    """Return the device, driver, package versions and commit by name."""
    found = {
        "device": backend.device_name(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if backend.name == "cuda":
        runtime = backend.xp.cuda.runtime
        found["driver supports"] = _cuda_version(runtime.driverGetVersion())
        found["cuda runtime"] = _cuda_version(runtime.runtimeGetVersion())
    return found


def _cuda_version(number: int) -> str:
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _commit() -> str:
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
