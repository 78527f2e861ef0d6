"""Compiler options and header folder for user kernels."""

from __future__ import annotations

import functools

from dgpuhash.backend.compiler import folder_digest, kernel_folder


def get_include() -> str:
    """Return the folder of the C++ headers for user kernels.

    Raises
    ------
    CompileError
        When the installation lacks them.

    Examples
    --------
    >>> import pathlib
    >>> (pathlib.Path(get_include()) / "device" / "view.cuh").is_file()
    True
    """
    return str(kernel_folder())


@functools.cache
def kernel_options() -> tuple[str, ...]:
    """Return the NVRTC options for kernels that include the headers.

    One is a digest of the headers: CuPy keeps compiled kernels by their own text and options, and
    would not notice that a header has changed. The architecture is left to CuPy.

    Raises
    ------
    CompileError
        When the installation lacks the headers.

    Examples
    --------
    >>> kernel_options()[0]
    '--std=c++20'
    """
    return (
        "--std=c++20",
        "--device-as-default-execution-space",
        f"--include-path={get_include()}",
        f"--define-macro=DGPUHASH_HEADERS=_{folder_digest(kernel_folder())}",
    )
