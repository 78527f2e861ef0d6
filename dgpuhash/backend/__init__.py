"""CPU and GPU backends behind one protocol: NumPy/C++ and CuPy/NVRTC."""

from __future__ import annotations

import functools
from typing import Any

from dgpuhash.backend.base import Backend
from dgpuhash.backend.batch.multisplit import Multisplit
from dgpuhash.backend.device import device_of
from dgpuhash.backend.kernel import Kernel, kernel_named, verb_kernel
from dgpuhash.backend.layout import Layout, struct_named
from dgpuhash.backend.memory import is_out_of_memory
from dgpuhash.errors import DeviceError
from dgpuhash.typing import Device

__all__ = [
    "Backend",
    "Kernel",
    "Layout",
    "Multisplit",
    "default_device",
    "device_of",
    "get",
    "is_out_of_memory",
    "kernel_named",
    "struct_named",
    "verb_kernel",
]


def get(device: Device | None = None, *arrays: Any) -> Backend:
    """Return the backend for `device`, or for the device of `arrays`.

    Parameters
    ----------
    device : {"cpu", "cuda", None}
        None: the device of the arrays, or ``"cpu"`` if no array has one.
    *arrays
        Arrays, Series, DLPack or Arrow objects to work on; lists and scalars fit any device.

    Raises
    ------
    DeviceError
        When host and GPU arrays are mixed, arrays are not where `device` says, or there is no
        usable GPU.

    Examples
    --------
    >>> import numpy as np
    >>> get(None, np.arange(3)).name
    'cpu'
    """
    if device not in ("cpu", "cuda", None):
        raise DeviceError(f"device {device!r}; use 'cpu', 'cuda' or None (where the data is)")
    places = {place for place in map(device_of, arrays) if place is not None}
    if len(places) == 2:
        raise DeviceError(
            "host arrays and GPU arrays were mixed in one call; bring them together with "
            "cupy.asarray(x) (to the GPU) or cupy.asnumpy(x) (to the host)"
        )
    place = places.pop() if places else None
    if device is not None and place is not None and place != device:
        remedy = "cupy.asarray(x)" if device == "cuda" else "cupy.asnumpy(x)"
        raise DeviceError(
            f"device={device!r} was requested, but the arrays are on {place!r}; convert them with "
            f"{remedy}, or pass device={place!r}"
        )
    return _open(device or place or "cpu")


def default_device() -> Device:
    """Return ``"cuda"`` if CuPy and a usable GPU exist, else ``"cpu"``."""
    try:
        return get("cuda").name
    except DeviceError:
        return "cpu"


@functools.cache
def _open(device: Device) -> Backend:
    if device == "cuda":
        from dgpuhash.backend.cuda import CudaBackend

        return CudaBackend()
    from dgpuhash.backend.cpu import CpuBackend

    return CpuBackend()
