"""One file per saved table: a magic number, a JSON manifest, raw buffers. No pickle anywhere.

::

    0   8 bytes   b"dgpuhash"
    8   u32       format version
    12  u32       length of the manifest in bytes
    16  16 bytes  BLAKE2b of the manifest
    32  manifest  JSON: {"header": {...}, "buffers": [{"name", "nbytes", "blake2b"}, ...]}
        buffers   one after the other, each from the next multiple of 64; the last one ends the file

Everything that the manifest claims is checked against the file's length before memory is
allocated. A file is written under a temporary name and gets its own when it is complete and on
disk, and only where nothing has that name, unless it is to be replaced.
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

from dgpuhash.errors import ExistsError, FormatError, SpecError, UnsupportedError

__all__ = [
    "Buffers",
    "check_absent",
    "check_plain",
    "header_of",
    "is_there",
    "only_reads",
    "publish",
    "read_file",
    "taken",
    "write_file",
]

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


def taken(name: str | os.PathLike[str]) -> ExistsError:
    """The error of a name that something else has, which may be replaced if the caller says so."""
    return ExistsError(
        f"{os.fspath(name)} is there already; choose another name, or replace it with "
        "overwrite=True"
    )


def check_absent(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse a path or fsspec URL that something is under, before any work is done.

    Parameters
    ----------
    path : path or fsspec URL
    overwrite : bool
        Whether a file that is there may be replaced; a folder never is.

    Raises
    ------
    ExistsError
    SpecError
        When a URL is a pattern.
    """
    system, name = _place(os.fspath(path))
    if system is None:
        there, folder = os.path.lexists(name), Path(name).is_dir()
    else:
        there = False if overwrite else bool(system.exists(name))
        folder = False
    if folder:
        raise ExistsError(f"{os.fspath(path)} is a directory; choose another name for the file")
    if there and not overwrite:
        raise taken(path)


def publish(part: Path, name: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Give a local file that is complete its name.

    Of several programs that do so at once without `overwrite`, one is first and the others fail.

    Raises
    ------
    ExistsError
        When something has that name by now; `part` is still there then.
    """
    if overwrite:
        part.replace(name)
        return
    try:
        os.link(part, name)
    except FileExistsError:
        raise taken(name) from None
    except OSError:
        # Not all file systems have links. Where this is not why, what follows fails as well.
        try:
            Path(name).open("xb").close()
        except FileExistsError:
            raise taken(name) from None
        try:
            part.replace(name)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    else:
        part.unlink()


def write_file(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    buffers: Mapping[str, np.ndarray],
    *,
    overwrite: bool = False,
) -> None:
    """Write `header` (JSON) and `buffers` to a path or fsspec URL, whole or not at all.

    On a local file system one of several writers is first; on others, those that begin at the same
    moment are not told apart.

    Raises
    ------
    ExistsError
        When something is under `path`, also by the time that all is written, and `overwrite` does
        not say to replace it.
    OSError
        When the disk is full or may not be written; nothing is left under `path` then, and what
        was there before is untouched.
    UnsupportedError
        When the file system only reads, as that of HTTP.
    """
    check_absent(path, overwrite=overwrite)
    raw = {name: _as_bytes(array) for name, array in buffers.items()}
    described = [
        {"name": name, "nbytes": len(data), "blake2b": _digest(data).hex()}
        for name, data in raw.items()
    ]
    manifest = json.dumps({"header": header, "buffers": described}, sort_keys=True).encode()
    with _complete(path, overwrite) as file:
        file.write(_PREFIX.pack(MAGIC, VERSION, len(manifest), _digest(manifest)))
        file.write(manifest)
        position = _PREFIX.size + len(manifest)
        for data in raw.values():
            file.write(bytes(-position % _ALIGNMENT))
            position += -position % _ALIGNMENT + len(data)
            for start in range(0, len(data), _PIECE):
                file.write(data[start : start + _PIECE])


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file under a path or fsspec URL."""
    name = os.fspath(path)
    if "://" not in name:
        return Path(name).is_file()
    import fsspec

    system, inner = fsspec.core.url_to_fs(name)
    return bool(system.isfile(inner))


def header_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a file that `write_file` wrote; its buffers are not read.

    Raises
    ------
    FormatError, FileNotFoundError
        As `read_file`, as far as these are not damaged.
    """
    name = os.fspath(path)
    with _existing(name) as (file, nbytes):
        return _manifest(file, nbytes, name)[0]


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
def _complete(path: str | os.PathLike[str], overwrite: bool) -> Iterator[BinaryIO]:
    """A file to write to, which appears under `path` only when the block ends without an error."""
    system, name = _place(os.fspath(path))
    part = f"{name}.{uuid.uuid4().hex}.part"
    if system is not None:
        try:
            with system.open(part, "wb") as file:
                yield file
            check_absent(path, overwrite=overwrite)
            system.mv(part, name)
        except NotImplementedError as error:
            raise only_reads(os.fspath(path)) from error
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
        publish(Path(part), name, overwrite=overwrite)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(Path(name).absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _place(name: str) -> tuple[Any, str]:
    """The file system, None for a local one, and the path in it, of a file to be written."""
    if "://" not in name:
        return None, name
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    system, path = fsspec.core.url_to_fs(name)
    check_plain(name, system)
    return None if isinstance(system, LocalFileSystem) else system, path


@contextmanager
def _existing(name: str) -> Iterator[tuple[BinaryIO, int]]:
    if "://" in name:
        import fsspec

        system, inner = fsspec.core.url_to_fs(name)
        with system.open(inner, "rb") as file:
            yield file, int(system.size(inner))
    else:
        if Path(name).is_dir():
            raise FormatError(
                f"{name} is a directory; pass a file, or what an index or table of a cluster was "
                "saved to, which dgpuhash.load opens"
            )
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


class Buffers:
    """Buffers of a saved table, each checked for its length when it is read."""

    def __init__(self, path: str, buffers: dict[str, np.ndarray]) -> None:
        self._path = path
        self._buffers = buffers

    def get(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> np.ndarray:
        """Buffer `name` as `length` elements of `dtype`.

        Raises
        ------
        FormatError
            When it is missing or has another length.
        """
        raw = self._buffers.get(name)
        self.check(raw is not None, f"buffer {name!r} is missing")
        assert raw is not None
        self.check(len(raw) % dtype.itemsize == 0, f"buffer {name!r} ends inside an element")
        found = raw.view(dtype)
        self.check(
            length in (None, len(found)), f"it has {len(found):,} instead of {length} {name}"
        )
        return found

    def check(self, sound: bool, otherwise: str) -> None:
        """Raise FormatError, saying `otherwise`, unless the file is `sound`."""
        if not sound:
            raise FormatError(f"{self._path} is damaged: {otherwise}; save the table again")
