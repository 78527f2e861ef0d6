"""Import the extension module: kernels for the CPU and the list of all kernels."""

from __future__ import annotations

import functools
import importlib
import os
import platform
from pathlib import Path
from types import ModuleType

from dgpuhash import config
from dgpuhash.errors import CompileError, DeviceError

REBUILD = "the extension is probably older than the Python code, so rebuild it with 'pip install .'"


_CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def native() -> ModuleType:
    """Return the extension module.

    Raises
    ------
    CompileError
        When it was not built.

    Examples
    --------
    >>> native().threads() > 0
    True
    """
    try:
        module = importlib.import_module("dgpuhash._native")
    except ImportError as error:
        raise CompileError(
            f"the CPU kernels (dgpuhash._native) cannot be loaded: {error}; install a wheel by "
            "'pip install FILE.whl', or in a checkout, with a C++20 compiler, 'pip install .'"
        ) from error
    # A setting of Dask's configuration, which the extension does not read.
    if "DGPUHASH_NUM_THREADS" not in os.environ and (threads := config.threads()):
        module.set_threads(threads)
    return module


@functools.cache
def require_wide_swap() -> None:
    """Raise unless this CPU can compare and swap 16 bytes, as tables with keys of 16 bytes do.

    Every CPU of 64 bits does but the first ones for x86-64.

    Raises
    ------
    DeviceError
        When it does not.

    Examples
    --------
    >>> require_wide_swap()
    """
    if platform.machine() != "x86_64" or not _CPUINFO.exists():
        return
    for line in _CPUINFO.read_text().splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            if "cx16" not in flags.split():
                raise DeviceError(
                    "this CPU lacks the instruction cmpxchg16b, which tables with keys of 16 "
                    "bytes need; run on another machine, use device='cuda', or index the fields "
                    "of the "
                    "keys as columns with dgpuhash.FrameIndex"
                )
            return
