"""Adds a method from a folder of its own: kernel file, rows, recipe."""

from __future__ import annotations

import ast
import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dgpuhash.tables.methods
from dgpuhash.backend import cpu, kernel, layout

HERE = Path(__file__).resolve().parent / "toy"
KERNELS = HERE.parents[3] / "kernels"


def add(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write the toy into `folder`, compile it, and make the package see it until `patch` ends."""
    for name, to in {"toy.cuh": "table", "methods.inc": "host", "toy.py": "recipes"}.items():
        (folder / to).mkdir(exist_ok=True)
        shutil.copy(HERE / name, folder / to)
    _write_instances(folder)
    library = folder / "toy.so"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-g0", "-w", "-fPIC", "-shared", f"-I{folder}", f"-I{KERNELS}",
         HERE / "host.cpp", "-o", library],
        check=True, timeout=120,
    )  # fmt: skip
    made = Kernels(cpu.native(), ctypes.CDLL(str(library)))
    for module in (cpu, kernel, layout):
        patch.setattr(module, "native", lambda: made)
    for cache in (kernel._rows, kernel.kernel_named, kernel.verb_kernel, layout.struct_named):
        cache.cache_clear()
    patch.setattr(
        dgpuhash.tables.methods,
        "__path__",
        [*dgpuhash.tables.methods.__path__, str(folder / "recipes")],
    )


def _write_instances(folder: Path) -> None:
    """Write a table of instances that has only the methods' rows."""
    text = (KERNELS / "host" / "instances.inc").read_text()
    head = text.partition("#if DG_PART == 0 || DG_PART == 1")[0]
    tail = text[text.index("// The verbs of methods") :]
    before = '#define DG_FILE "launch/verbs.cuh"\n#include DG_FILE\n#undef DG_FILE\n'
    (folder / "host" / "instances.inc").write_text(head + before + tail)


class Kernels:
    """The extension, and beside it a library with the kernels of further methods."""

    def __init__(self, native: Any, library: ctypes.CDLL) -> None:
        self._native, self._library = native, library
        library.describe.restype = ctypes.c_char_p
        self._rows, self._structs = ast.literal_eval(library.describe().decode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def instances(self) -> list[Any]:
        return [*self._native.instances(), *self._rows]

    def struct_layout(self, name: str) -> Any:
        return self._structs.get(name) or self._native.struct_layout(name)

    def launch(self, expression: str, args: bytes, n: int) -> None:
        if "Toy" not in expression:
            self._native.launch(expression, args, n)
        elif n and self._library.launch(expression.encode(), args) != 0:
            raise KeyError(f"no kernel {expression}")
