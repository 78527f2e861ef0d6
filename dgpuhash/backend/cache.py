"""Disk cache of compiled kernels, one file per kernel instance.

A file is named by a digest of everything that the machine code depends on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from dgpuhash import config
from dgpuhash.backend.compiler import (
    Cubin,
    compile_kernels,
    folder_digest,
    kernel_folder,
    nvrtc_version,
    options_for,
)
from dgpuhash.backend.kernel import Kernel

_log = logging.getLogger("dgpuhash.cache")
_MAGIC = b"dgpuhash-cubin-1\n"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Folder, number of files and size of the kernel cache."""

    folder: Path
    files: int
    nbytes: int


def cache_folder() -> Path:
    """Return ``$DGPUHASH_CACHE_DIR``, the setting ``cache-folder``, or the user's cache folder."""
    named = os.environ.get("DGPUHASH_CACHE_DIR") or config.cache_folder()
    return Path(named or platformdirs.user_cache_dir("dgpuhash"))


def info() -> CacheInfo:
    """Return the cache's folder, number of compiled kernels and size.

    Examples
    --------
    >>> info().files >= 0
    True
    """
    sizes = []
    for path in cache_folder().glob("*.cubin"):
        # Another process may clear the cache at the same time.
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return CacheInfo(cache_folder(), len(sizes), sum(sizes))


def clear() -> CacheInfo:
    """Delete the compiled kernels; return what was deleted.

    Loaded kernels keep running.
    """
    before = info()
    for pattern in ("*.cubin", "*.partial"):
        for path in before.folder.glob(pattern):
            path.unlink(missing_ok=True)
    return before


@functools.cache
def _installed_digest() -> str:
    # Reading the sources takes some ms; a process keeps the kernels that it started with.
    return folder_digest(kernel_folder())


def load_or_compile(kernel: Kernel, arch: int, root: Path | None = None) -> Cubin:
    """Return `kernel` compiled for `arch`, from the cache if possible.

    A damaged or missing cache file is compiled and written again.

    Raises
    ------
    CompileError
        When the kernel must be compiled and cannot be.
    """
    sources = kernel_folder() if root is None else root
    digest = _installed_digest() if root is None else folder_digest(root)
    path = cache_folder() / f"{_key(kernel, arch, digest)}.cubin"
    found = _read(path)
    if found is not None:
        return found
    _log.info("compiling %s for sm_%d", kernel.expression, arch)
    made = compile_kernels(kernel.files, [kernel.expression], arch, sources, code=kernel.code)
    _write(path, made)
    return made


def _key(kernel: Kernel, arch: int, sources_digest: str) -> str:
    parts = (
        sources_digest,
        *options_for(arch),
        *(str(number) for number in nvrtc_version()),
        *kernel.files,
        kernel.expression,
        *filter(None, [kernel.code]),
    )
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _read(path: Path) -> Cubin | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("the kernel cache cannot be read, so kernels are compiled again: %s", error)
        return None
    try:
        magic, rest = content[: len(_MAGIC)], content[len(_MAGIC) :]
        header_line, _, image = rest.partition(b"\n")
        header = json.loads(header_line)
        if magic == _MAGIC and header.pop("checksum") == _checksum(header, image):
            return Cubin(image, header["names"], header["shared_nbytes"], "")
    except (ValueError, KeyError, TypeError):
        pass
    _log.warning("%s is damaged and is compiled again", path)
    return None


def _write(path: Path, cubin: Cubin) -> None:
    told = {"names": cubin.names, "shared_nbytes": cubin.shared_nbytes}
    header = {"checksum": _checksum(told, cubin.image), **told}
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, suffix=".partial", delete=False
        ) as stream:
            partial = Path(stream.name)
            stream.write(_MAGIC + json.dumps(header).encode() + b"\n" + cubin.image)
        # Another process may write the same file at once: each replaces it whole.
        partial.replace(path)
    except OSError as error:
        _log.warning("a compiled kernel could not be stored in %s: %s", path.parent, error)
        if partial is not None:
            partial.unlink(missing_ok=True)


def _checksum(told: dict[str, Any], image: bytes) -> str:
    digest = hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=20)
    digest.update(image)
    return digest.hexdigest()
