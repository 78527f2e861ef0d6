"""Kernel cache: hits, invalidation by any change, concurrent writes."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest

from dgpuhash.backend import cache
from dgpuhash.backend.compiler import Cubin, kernel_folder
from dgpuhash.backend.kernel import Kernel

KERNEL = Kernel("dg::put<int>", ("launch/put.cuh",))


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one kernel; the cache is beside it."""
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "kernels"
    shutil.copytree(kernel_folder() / "core", folder / "core")
    (folder / "grid").mkdir()
    shutil.copy(kernel_folder() / "grid/shared_memory.cuh", folder / "grid")
    (folder / "launch").mkdir()
    (folder / "launch/put.cuh").write_text(
        "namespace dg { template <class Word> __global__ void put(Word* out) { out[0] = 7; } }\n"
    )
    return folder


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every call of the compiler."""
    calls: list[Any] = []
    compile_kernels = cache.compile_kernels

    def counted(*args: Any, **options: Any) -> Cubin:
        calls.append(args)
        return compile_kernels(*args, **options)

    monkeypatch.setattr(cache, "compile_kernels", counted)
    return calls


def test_second_use_compiles_nothing(kernels: Path, compilations: list[Any]) -> None:
    first = cache.load_or_compile(KERNEL, 90, kernels)
    second = cache.load_or_compile(KERNEL, 90, kernels)
    assert len(compilations) == 1
    assert (first.image, first.names) == (second.image, second.names)
    assert cache.info().files == 1


def test_any_change_compiles_again(
    kernels: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.load_or_compile(KERNEL, 90, kernels)
    cache.load_or_compile(KERNEL, 80, kernels)
    cache.load_or_compile(Kernel("dg::put<char>", KERNEL.files), 90, kernels)
    (kernels / "unrelated.cuh").write_text("\n")
    cache.load_or_compile(KERNEL, 90, kernels)
    monkeypatch.setattr(cache, "nvrtc_version", lambda: (99, 0))
    cache.load_or_compile(KERNEL, 90, kernels)
    assert len(compilations) == 5
    assert cache.info().files == 5


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 5000])
def test_damaged_file_is_compiled_again(
    kernels: Path, compilations: list[Any], damage: bytes
) -> None:
    made = cache.load_or_compile(KERNEL, 90, kernels)
    (path,) = cache.cache_folder().glob("*.cubin")
    path.write_bytes(damage)
    assert cache.load_or_compile(KERNEL, 90, kernels).image == made.image
    assert len(compilations) == 2


def test_flipped_bit_is_noticed(kernels: Path, compilations: list[Any]) -> None:
    made = cache.load_or_compile(KERNEL, 90, kernels)
    (path,) = cache.cache_folder().glob("*.cubin")
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    assert cache.load_or_compile(KERNEL, 90, kernels).image == made.image
    assert len(compilations) == 2


def test_clear(kernels: Path) -> None:
    cache.load_or_compile(KERNEL, 90, kernels)
    removed = cache.clear()
    assert removed.files == 1
    assert removed.nbytes > 0
    assert cache.info().files == 0


def test_unusable_folder_still_compiles(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert cache.load_or_compile(KERNEL, 90, kernels).image


def _fill(kernels: Path, start: Any, rounds: int) -> None:
    start.wait()
    for _ in range(rounds):
        cubin = cache.load_or_compile(KERNEL, 90, kernels)
        assert cubin.image.startswith(b"\x7fELF")
        cache.clear()


def test_two_processes_at_once(kernels: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    processes = [context.Process(target=_fill, args=(kernels, start, 8)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(90)
    assert [process.exitcode for process in processes] == [0, 0]
    cache.load_or_compile(KERNEL, 90, kernels)
    assert cache.info().files == 1
    assert not list(cache.cache_folder().glob("*.partial"))
