"""The extension module: the kernels on the CPU, and what is known of each kernel."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from dgpuhash.errors import CompileError

__all__ = ["REBUILD", "native"]

REBUILD = "the extension is probably older than the Python code, so rebuild it with 'pip install .'"


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
        return importlib.import_module("dgpuhash._native")
    except ImportError as error:
        raise CompileError(
            f"the CPU kernels (dgpuhash._native) cannot be loaded: {error}; install a wheel with "
            "'pip install dgpuhash', or build from source with a C++20 compiler by 'pip install .'"
        ) from error
