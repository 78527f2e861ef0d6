"""One file per saved table: a magic number, a JSON manifest, raw buffers. No pickle anywhere.

::

    0   8 bytes   b"dgpuhash"
    8   u32       format version
    12  u32       length of the manifest in bytes
    16  16 bytes  BLAKE2b of the manifest
    32  manifest  JSON: {"header": {...}, "buffers": [{"name", "nbytes", "blake2b"}, ...]}
        buffers   one after the other, each from the next multiple of 64; the last one ends the file

Everything that the manifest claims is checked against the file's length before memory is
allocated. A file is written under a temporary name and renamed when it is complete and on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dgpuhash.errors import FormatError, SpecError, UnsupportedError

__all__ = ["check_plain", "only_reads", "read_file", "write_file"]

MAGIC = b"dgpuhash"
VERSION = 1
_PREFIX = struct.Struct("<8sII16s")
_ALIGNMENT = 64
_LONGEST_MANIFEST = 1 << 24
_PIECE = 1 << 24


def check_plain(url: str, system: Any) -> None:
    """Raise SpecError when `system`, of fsspec, would take a part of `url` for a pattern.

    Local ones do not; others look for what matches when a file is renamed.
    """
    from fsspec.implementations.local import LocalFileSystem

    marks = sorted(set(url) & set("*?["))
    if marks and not isinstance(system, LocalFileSystem):
        raise SpecError(
            f"{url} has {' '.join(marks)}, which fsspec takes for a pattern; choose a name without"
        )


def only_reads(name: str) -> UnsupportedError:
    """The error of a place whose file system, as that of HTTP, refuses to write."""
    return UnsupportedError(
        f"{name} cannot be written: its file system only reads; choose another place"
    )


def write_file(
    path: str | os.PathLike[str], header: Mapping[str, Any], buffers: Mapping[str, np.ndarray]
) -> None:
    """Write `header` (JSON) and `buffers` to a path or fsspec URL, whole or not at all.

    Raises
    ------
    OSError
        When the disk is full or may not be written; nothing is left under `path` then, and what
        was there before is untouched.
    UnsupportedError
        When the file system only reads, as that of HTTP.
    """
    raw = {name: _as_bytes(array) for name, array in buffers.items()}
    described = [
        {"name": name, "nbytes": len(data), "blake2b": _digest(data).hex()}
        for name, data in raw.items()
    ]
    manifest = json.dumps({"header": header, "buffers": described}, sort_keys=True).encode()
    with _complete(path) as file:
        file.write(_PREFIX.pack(MAGIC, VERSION, len(manifest), _digest(manifest)))
        file.write(manifest)
        position = _PREFIX.size + len(manifest)
        for data in raw.values():
            file.write(bytes(-position % _ALIGNMENT))
            position += -position % _ALIGNMENT + len(data)
            for start in range(0, len(data), _PIECE):
                file.write(data[start : start + _PIECE])


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the buffers (as uint8 arrays) of a file that `write_file` wrote.

    Raises
    ------
    FormatError
        When the file is foreign, of a newer version, truncated or damaged.
    FileNotFoundError
        When there is no such file.
    """
    name = os.fspath(path)
    with _existing(name) as (file, nbytes):
        header, described, position = _manifest(file, nbytes, name)
        found = {}
        for entry in described:
            position += -position % _ALIGNMENT
            file.seek(position)
            array = np.empty(entry["nbytes"], np.uint8)
            if _fill(file, array) != len(array):
                raise _damaged(name, f"buffer {entry['name']!r} is cut short")
            if _digest(array.data).hex() != entry["blake2b"]:
                raise _damaged(name, f"the checksum of buffer {entry['name']!r} is wrong")
            position += len(array)
            found[entry["name"]] = array
    return header, found


def _manifest(
    file: BinaryIO, nbytes: int, name: str
) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise FormatError(f"{name} was not saved by dgpuhash; pass a file that table.save() wrote")
    _, version, length, digest = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise FormatError(
            f"{name} has format version {version} and this dgpuhash reads version {VERSION}; "
            "load it with the release that saved it"
        )
    if length > min(_LONGEST_MANIFEST, nbytes - _PREFIX.size):
        raise _damaged(name, f"a manifest of {length:,} bytes cannot be in {nbytes:,} bytes")
    text = file.read(length)
    if _digest(text) != digest:
        raise _damaged(name, "the checksum of its manifest is wrong")
    try:
        manifest = json.loads(text)
        header, described = manifest["header"], manifest["buffers"]
        sizes = [(entry["name"], entry["nbytes"], entry["blake2b"]) for entry in described]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(name, f"its manifest cannot be read ({error!r})") from error
    if not isinstance(header, dict) or len({str(name) for name, _, _ in sizes}) != len(sizes):
        raise _damaged(name, "its manifest is malformed")
    position = end = _PREFIX.size + length
    for buffer, size, checksum in sizes:
        if type(buffer) is not str or type(size) is not int or type(checksum) is not str:
            raise _damaged(name, "its manifest is malformed")
        if not 0 <= size <= nbytes:
            raise _damaged(name, f"buffer {buffer!r} claims {size:,} of {nbytes:,} bytes")
        end += -end % _ALIGNMENT + size
    if end != nbytes:
        raise _damaged(name, f"it should be {end:,} bytes long and is {nbytes:,}")
    return header, described, position


@contextmanager
def _complete(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which appears under `path` only when the block ends without an error."""
    name = os.fspath(path)
    part = f"{name}.{uuid.uuid4().hex}.part"
    if "://" in name:
        import fsspec

        system, final = fsspec.core.url_to_fs(name)
        check_plain(name, system)
        _, part = fsspec.core.url_to_fs(part)
        try:
            with system.open(part, "wb") as file:
                yield file
            system.mv(part, final)
        except NotImplementedError as error:
            raise only_reads(name) from error
        except BaseException:
            if system.exists(part):
                system.rm(part)
            raise
        return
    try:
        with Path(part).open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(name)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(Path(name).absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _existing(name: str) -> Iterator[tuple[BinaryIO, int]]:
    if "://" in name:
        import fsspec

        system, inner = fsspec.core.url_to_fs(name)
        with system.open(inner, "rb") as file:
            yield file, int(system.size(inner))
    else:
        with Path(name).open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size


def _fill(file: BinaryIO, array: np.ndarray) -> int:
    filled = 0
    while filled < len(array):
        piece = file.read(min(_PIECE, len(array) - filled))
        if not piece:
            break
        array[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    return filled


def _as_bytes(array: np.ndarray) -> memoryview:
    flat = np.ascontiguousarray(array)
    return flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _damaged(name: str, why: str) -> FormatError:
    return FormatError(f"{name} is damaged: {why}; save the table again or take a backup")
