"""NVRTC without a GPU, and the digest that names its results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dgpuhash.backend import compiler
from dgpuhash.errors import CompileError

SOURCE = """#pragma once
#include "core/number.cuh"
namespace dg {
template <class Word> __global__ void put(Word* out) { out[0] = number; }
}
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Return a folder with one kernel and one header that it includes."""
    shutil.copytree(compiler.kernel_folder() / "core", tmp_path / "core")
    (tmp_path / "grid").mkdir()
    shutil.copy(compiler.kernel_folder() / "grid/shared_memory.cuh", tmp_path / "grid")
    (tmp_path / "core/number.cuh").write_text("namespace dg { constexpr int number = 7; }\n")
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch/put.cuh").write_text(SOURCE)
    return tmp_path


def test_compile(kernels: Path) -> None:
    made = compiler.compile_kernels(
        ["launch/put.cuh"], ["dg::put<int>", "dg::put<char>"], 90, kernels
    )
    assert made.image.startswith(b"\x7fELF")
    assert len(set(made.names.values())) == 2
    assert "registers" in made.log
    assert made.shared_nbytes == {"dg::put<int>": 0, "dg::put<char>": 0}


def test_shared_memory_is_told(kernels: Path) -> None:
    (kernels / "launch/put.cuh").write_text("""
        #include "grid/shared_memory.cuh"
        namespace dg {
        template <class Block> struct Rows { u64 of[10 * Block::threads]; u8 last; };
        struct PutArgs { u64* out; };
        template <class Word, u32 Threads>
        __global__ void put(Sharing<PutArgs, Threads, Rows>) {}
        }""")
    made = compiler.compile_kernels(["launch/put.cuh"], ["dg::put<char,1024>"], 75, kernels)
    assert made.shared_nbytes == {"dg::put<char,1024>": 81928}


def test_compile_error_shows_the_log(kernels: Path) -> None:
    (kernels / "core/number.cuh").write_text("namespace dg { constexpr int nummer = 7; }\n")
    with pytest.raises(CompileError, match=r'launch/put\.cuh.*sm_90(.|\n)*"number" is undefined'):
        compiler.compile_kernels(["launch/put.cuh"], ["dg::put<int>"], 90, kernels)


def test_digest_sees_every_file(kernels: Path) -> None:
    seen = {compiler.folder_digest(kernels)}
    files = sorted(kernels.rglob("*.cuh"))
    for path in files:
        path.write_text(path.read_text() + "\n")
        seen.add(compiler.folder_digest(kernels))
    (kernels / "core/number.cuh").rename(kernels / "core/figure.cuh")
    seen.add(compiler.folder_digest(kernels))
    assert len(seen) == 2 + len(files)
    (kernels / ".hidden").write_text("swap file")
    assert compiler.folder_digest(kernels) in seen


@pytest.mark.parametrize(("capability", "arch"), [(75, 75), (86, 86), (90, 90), (91, 90)])
def test_architecture(capability: int, arch: int) -> None:
    assert compiler.architecture_for(capability) == arch


def test_architecture_unknown_to_nvrtc() -> None:
    with pytest.raises(CompileError, match="sm_55"):
        compiler.architecture_for(55)
