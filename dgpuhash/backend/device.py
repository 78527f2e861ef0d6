"""Find out whether data is in host or GPU memory, without importing a library."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.errors import DeviceError, ShapeError
from dgpuhash.typing import Device

_GPU_PACKAGES = frozenset({"cudf", "cupy", "dask_cudf", "pylibcudf", "rmm"})
_HOST_PACKAGES = frozenset({"numpy", "pandas", "polars", "pyarrow"})
# DLPack device types: CPU and CUDA-pinned host memory; CUDA and managed memory.
_DLPACK_HOST = frozenset({1, 3})
_DLPACK_GPU = frozenset({2, 13})


def device_of(data: Any) -> Device | None:
    """Return ``"cpu"`` or ``"cuda"``, the device on which `data` lives.

    None for lists, scalars and other objects that fit any device.

    Raises
    ------
    DeviceError
        For memory that is neither host nor CUDA memory.

    Examples
    --------
    >>> device_of(np.arange(3)), device_of([1, 2, 3])
    ('cpu', None)
    """
    if data is None or isinstance(data, (np.generic, list, tuple, range, int, float, str, bytes)):
        return None
    package = type(data).__module__.partition(".")[0]
    if package in _GPU_PACKAGES:
        return "cuda"
    if package in _HOST_PACKAGES:
        return "cpu"
    if hasattr(data, "__cuda_array_interface__"):
        return "cuda"
    if hasattr(data, "__dlpack_device__"):
        kind = int(data.__dlpack_device__()[0])
        if kind in _DLPACK_GPU:
            return "cuda"
        if kind not in _DLPACK_HOST:
            raise DeviceError(
                f"a {type(data).__name__} lives on DLPack device type {kind}, neither host "
                "memory nor a CUDA GPU; copy it to host memory first"
            )
        return "cpu"
    if hasattr(data, "__array_interface__") or hasattr(data, "__arrow_c_array__"):
        return "cpu"
    return "cpu" if hasattr(data, "__array__") else None


def require_host(data: Any) -> None:
    """Raise DeviceError when `data` is in GPU memory."""
    if device_of(data) == "cuda":
        raise DeviceError(
            f"a {type(data).__name__} in GPU memory was mixed with a table or array on the CPU; "
            f"bring it over "
            "with cupy.asnumpy(x) (cuDF: .to_pandas()), or put the table on the GPU with "
            "device='cuda'"
        )


def require_gpu(data: Any) -> None:
    """Raise DeviceError when `data` is in host memory."""
    if device_of(data) == "cpu":
        raise DeviceError(
            f"a {type(data).__name__} in host memory was mixed with a table or array on the GPU; "
            f"bring it "
            "over with cupy.asarray(x) (pandas: cudf.from_pandas(x)), or put the table on the CPU "
            "with device='cpu'"
        )


def reject_nulls(data: Any) -> None:
    """Raise ShapeError when `data` has masked elements or nulls.

    A plain array cannot hold them.
    """
    if isinstance(data, np.ma.MaskedArray):
        missing = int(np.ma.count_masked(data))
    else:
        count = getattr(data, "null_count", 0)
        missing = int(count() if callable(count) else count)
    if missing:
        raise ShapeError(
            f"{missing:,} of {len(data):,} elements are null or masked, and tables store none; "
            "fill them (x.fill_null(…), x.filled(…)) or index the column with dgpuhash.FrameIndex"
        )
