"""Compilation of kernel sources to cubins by NVRTC.

Needs neither a GPU nor a driver.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dgpuhash.errors import CompileError, install_command

# Targets of `make compile`; other GPUs get the nearest older one of their generation.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

# kernels/grid/shared_memory.cuh encodes a block's bytes of shared memory in a symbol's name.
_SHARING = "grid/shared_memory.cuh"
_SHARED_NBYTES = "&dg::named_number<dg::shared_nbytes({})>"
_NAMED_NUMBER = re.compile(r"named_numberILy(\d+)E")


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of some kernel instances.

    Parameters
    ----------
    image : bytes
        The ELF image.
    names : dict
        From C++ name expression to the symbol in `image`.
    shared_nbytes : dict
        From C++ name expression to the bytes of shared memory that a launch gives each block.
    log : str
        Output of NVRTC and ptxas (warnings, registers and spills).
    """

    image: bytes
    names: dict[str, str]
    shared_nbytes: dict[str, int]
    log: str


@functools.cache
def kernel_folder() -> Path:
    """Return the folder of the kernel sources.

    It is inside the installed package, or beside the package in a checkout.

    Raises
    ------
    CompileError
        When neither folder exists.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "kernels", package.parent / "kernels"):
        if (folder / "launch").is_dir():
            return folder
    raise CompileError(
        f"the kernel sources are neither in {package / 'kernels'} nor in "
        f"{package.parent / 'kernels'}; install dgpuhash again from a wheel"
    )


def folder_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files in `folder`.

    Includes files in subfolders, but no hidden ones. CuPy's own cache key ignores the contents of
    included headers; this digest does not.
    """
    digest = hashlib.blake2b(digest_size=20)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in name.parts):
            content = path.read_bytes()
            digest.update(f"{name.as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


@functools.cache
def _nvrtc() -> ModuleType:
    try:
        from cuda.bindings import nvrtc

        _check(nvrtc, nvrtc.nvrtcVersion())
    except CompileError:
        raise
    except Exception as error:
        # cuda-pathfinder and the loader raise several unrelated kinds if libnvrtc is missing.
        raise CompileError(
            f"NVRTC, CUDA's run-time compiler, cannot be loaded ({type(error).__name__}: {error}); "
            f"{install_command('cu13')} (CUDA 12: cu12)"
        ) from error
    return nvrtc


def _check(nvrtc: ModuleType, answer: tuple[Any, ...]) -> Any:
    status, *rest = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC refused: {status.name}")
    if not rest:
        return None
    return rest[0] if len(rest) == 1 else tuple(rest)


def nvrtc_version() -> tuple[int, int]:
    """Return the major and minor version of NVRTC.

    Raises
    ------
    CompileError
        When NVRTC is missing.
    """
    nvrtc = _nvrtc()
    major, minor = _check(nvrtc, nvrtc.nvrtcVersion())
    return int(major), int(minor)


def architecture_for(capability: int) -> int:
    """Return the newest architecture that both NVRTC and the GPU support.

    `capability` is the GPU's compute capability, 90 for 9.0.

    Raises
    ------
    CompileError
        When NVRTC knows no architecture of the GPU's generation.
    """
    nvrtc = _nvrtc()
    known = [int(arch) for arch in _check(nvrtc, nvrtc.nvrtcGetSupportedArchs())]
    fitting = [arch for arch in known if arch // 10 == capability // 10 and arch <= capability]
    if not fitting:
        major, minor = nvrtc_version()
        raise CompileError(
            f"NVRTC {major}.{minor} compiles for sm_{min(known)} to sm_{max(known)} and the GPU is "
            f"sm_{capability}; install an NVRTC of the GPU's CUDA release"
        )
    return max(fitting)


def options_for(arch: int) -> tuple[str, ...]:
    """Return NVRTC's options for `arch`.

    The include folder is left out because it depends on the machine.
    """
    return (
        f"--gpu-architecture=sm_{arch}",
        "--std=c++20",
        "--device-as-default-execution-space",
        "--ptxas-options=-v",
    )


def compile_kernels(
    files: Sequence[str],
    expressions: Sequence[str],
    arch: int,
    folder: Path | None = None,
    *,
    code: str = "",
) -> Cubin:
    """Compile the kernel instances `expressions` of the headers `files`.

    Parameters
    ----------
    files : sequence of str
        Headers below `folder`, e.g. ``["launch/open.cuh"]``.
    expressions : sequence of str
        C++ name expressions, e.g. ``["dg::open_insert<dg::u32,dg::u32,4>"]``.
    arch : int
        90 for sm_90.
    folder : Path, optional
        The kernel sources; by default the sources of this installation.
    code : str
        C++ behind the headers.

    Raises
    ------
    CompileError
        When NVRTC is missing or the code does not compile; the message holds NVRTC's log.
    """
    nvrtc = _nvrtc()
    root = kernel_folder() if folder is None else folder
    source = "".join(f'#include "{file}"\n' for file in (_SHARING, *files)) + code
    options = [option.encode() for option in (*options_for(arch), f"--include-path={root}")]
    program = _check(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"dgpuhash.cu", 0, [], []))
    try:
        numbers = {each: _SHARED_NBYTES.format(each) for each in expressions}
        for expression in (*expressions, *numbers.values()):
            _check(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _log(nvrtc, program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if code:
                raise CompileError(f"the given code did not compile for sm_{arch}:\n{log}")
            raise CompileError(
                f"{', '.join(files)} did not compile for sm_{arch} ({status.name}); if the kernels "
                f"are unchanged, report this with the log:\n{log}"
            )
        names = {each: _lowered_name(nvrtc, program, each) for each in expressions}
        shared_nbytes = {
            each: _read_number(_lowered_name(nvrtc, program, name))
            for each, name in numbers.items()
        }
        image = bytes(_check(nvrtc, nvrtc.nvrtcGetCUBINSize(program)))
        _check(nvrtc, nvrtc.nvrtcGetCUBIN(program, image))
        return Cubin(image, names, shared_nbytes, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _lowered_name(nvrtc: ModuleType, program: Any, expression: str) -> str:
    name: bytes = _check(nvrtc, nvrtc.nvrtcGetLoweredName(program, expression.encode()))
    return name.decode()


def _read_number(symbol: str) -> int:
    found = _NAMED_NUMBER.search(symbol)
    assert found is not None, f"{symbol} is no number of {_SHARING}"
    return int(found[1])


def _log(nvrtc: ModuleType, program: Any) -> str:
    text = bytes(_check(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
    _check(nvrtc, nvrtc.nvrtcGetProgramLog(program, text))
    return text.decode(errors="replace").rstrip("\0\n ")
