"""File format of saved tables: magic, JSON manifest, buffers, no pickle.

::

    0   8 bytes   b"dgpuhash"
    8   u32       format version
    12  u32       length of the manifest in bytes
    16  16 bytes  BLAKE2b of the manifest
    32  manifest  JSON: {"header": {...}, "buffers": [{"name", "nbytes", "blake2b"}, ...]}
        buffers   one after the other, each at the next multiple of 64; the last one ends the file

Every size in the manifest is checked against the file's length before memory is allocated. A file
is written under a temporary name, and renamed when it is complete and on disk. The rename fails if
the final name exists, unless `overwrite` is set.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dgpuhash.errors import ExistsError, FormatError, SpecError, UnsupportedError
from dgpuhash.tables.arguments.checksums import as_bytes, digest_of, with_digests

__all__ = [
    "Buffers",
    "check_absent",
    "check_no_pattern",
    "complete_file",
    "exists_error",
    "file_exists",
    "header_of",
    "map_file",
    "read_file",
    "read_only_error",
    "rename_into_place",
    "write_file",
]

MAGIC = b"dgpuhash"
VERSION = 1
_PREFIX = struct.Struct("<8sII16s")
_ALIGNMENT = 64
_LONGEST_MANIFEST = 1 << 24
_PIECE = 1 << 24


def check_no_pattern(url: str, system: Any) -> None:
    """Raise SpecError if fsspec would read a part of `url` as a pattern.

    Local file systems do not; others match patterns when a file is renamed.
    """
    from fsspec.implementations.local import LocalFileSystem

    marks = sorted(set(url) & set("*?["))
    if marks and not isinstance(system, LocalFileSystem):
        raise SpecError(
            f"{url} has {' '.join(marks)}, which fsspec takes for a pattern; choose a name without"
        )


def read_only_error(name: str) -> UnsupportedError:
    """Return the error for a path on a read-only file system, such as HTTP."""
    return UnsupportedError(
        f"{name} cannot be written: its file system only reads; choose another place"
    )


def exists_error(name: str | os.PathLike[str]) -> ExistsError:
    """Return the error for a path that exists and must not be replaced."""
    return ExistsError(
        f"{os.fspath(name)} is there already; choose another name, or replace it with "
        "overwrite=True"
    )


def check_absent(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise ExistsError if a path or fsspec URL exists, before any work.

    Parameters
    ----------
    path : path or fsspec URL
    overwrite : bool
        Whether an existing file may be replaced; a folder never is.

    Raises
    ------
    ExistsError
        When the path exists and must not be replaced.
    SpecError
        When a URL has a pattern.
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
        raise exists_error(path)


def rename_into_place(part: Path, name: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Rename a complete local file to its final name.

    If several programs publish the same name at once without `overwrite`, one succeeds and the
    others fail.

    Raises
    ------
    ExistsError
        When the name exists by now; `part` is kept.
    """
    if overwrite:
        part.replace(name)
        return
    try:
        os.link(part, name)
    except FileExistsError:
        raise exists_error(name) from None
    except OSError:
        # Some file systems have no links. After any other error the following calls fail as well.
        try:
            Path(name).open("xb").close()
        except FileExistsError:
            raise exists_error(name) from None
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
    """Write `header` (JSON) and `buffers` atomically to a path or URL.

    The file is complete or not written at all. On a local file system one of several concurrent
    writers succeeds; on others, writers at the same moment are not detected.

    Raises
    ------
    ExistsError
        When `path` exists before or after the write, and `overwrite` is False.
    OSError
        When the disk is full or not writable; nothing new is left at `path`, and an existing file
        is untouched.
    UnsupportedError
        When the file system is read-only, such as HTTP.
    """
    check_absent(path, overwrite=overwrite)
    # Of a mapping that reads its arrays as it is asked, two are there at a time.
    described = [
        {"name": name, "nbytes": array.nbytes, "blake2b": made}
        for name, (array, made) in zip(buffers, with_digests(buffers.values()), strict=True)
    ]
    manifest = json.dumps({"header": header, "buffers": described}, sort_keys=True).encode()
    with complete_file(path, overwrite) as file:
        file.write(_PREFIX.pack(MAGIC, VERSION, len(manifest), digest_of(manifest)))
        file.write(manifest)
        position = _PREFIX.size + len(manifest)
        for data in map(as_bytes, buffers.values()):
            file.write(bytes(-position % _ALIGNMENT))
            position += -position % _ALIGNMENT + len(data)
            for start in range(0, len(data), _PIECE):
                file.write(data[start : start + _PIECE])


def file_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file at a path or fsspec URL."""
    name = os.fspath(path)
    if "://" not in name:
        return Path(name).is_file()
    import fsspec

    system, inner = fsspec.core.url_to_fs(name)
    return bool(system.isfile(inner))


def header_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a file that `write_file` wrote.

    Does not read the buffers.

    Raises
    ------
    FormatError, FileNotFoundError
        As for `read_file`; damaged buffers are not detected.
    """
    name = os.fspath(path)
    with _existing(name) as (file, nbytes):
        return _manifest(file, nbytes, name)[0]


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the buffers of a file that `write_file` wrote.

    Each buffer is a uint8 array.

    Raises
    ------
    FormatError
        When dgpuhash did not write the file, or it has another version, is truncated or damaged.
    FileNotFoundError
        When the file does not exist.
    """
    return _read(os.fspath(path), is_mapped=False)[:2]


def map_file(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, np.ndarray], mmap.mmap | None]:
    """Return as `read_file` does, but buffers in the map of a local file; and the map, or None."""
    return _read(os.fspath(path), is_mapped="://" not in os.fspath(path))


def _read(
    name: str, *, is_mapped: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray], mmap.mmap | None]:
    with _existing(name) as (file, nbytes):
        header, described, position = _manifest(file, nbytes, name)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_mapped else None
        found = {}

        def arrays(position: int) -> Iterator[np.ndarray]:
            for entry in described:
                position += -position % _ALIGNMENT
                if mapped is None or not entry["nbytes"]:
                    file.seek(position)
                    array = np.empty(entry["nbytes"], np.uint8)
                    if _fill(file, array) != len(array):
                        raise _damaged(name, f"buffer {entry['name']!r} is cut short")
                else:
                    mapped.madvise(mmap.MADV_DONTNEED)
                    array = np.frombuffer(mapped, np.uint8, entry["nbytes"], position)
                position += len(array)
                yield array

        for entry, (array, made) in zip(described, with_digests(arrays(position)), strict=True):
            if made != entry["blake2b"]:
                raise _damaged(name, f"the checksum of buffer {entry['name']!r} is wrong")
            found[entry["name"]] = array
    return header, found, mapped


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
    if digest_of(text) != digest:
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
def complete_file(path: str | os.PathLike[str], overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file that is renamed to `path` when the block ends without an error, else removed."""
    system, name = _place(os.fspath(path))
    part = f"{name}.{uuid.uuid4().hex}.part"
    if system is not None:
        try:
            with system.open(part, "wb") as file:
                yield file
            check_absent(path, overwrite=overwrite)
            system.mv(part, name)
        except NotImplementedError as error:
            raise read_only_error(os.fspath(path)) from error
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
        rename_into_place(Path(part), name, overwrite=overwrite)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(Path(name).absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _place(name: str) -> tuple[Any, str]:
    """Return the file system of a file to write, and the path in it.

    The file system is None for a local one.
    """
    if "://" not in name:
        return None, name
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    system, path = fsspec.core.url_to_fs(name)
    check_no_pattern(name, system)
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


def _damaged(name: str, why: str) -> FormatError:
    return FormatError(f"{name} is damaged: {why}; save the table again or take a backup")


class Buffers:
    """Buffers of a saved table, each checked for its length when read."""

    def __init__(self, path: str, buffers: dict[str, np.ndarray]) -> None:
        self._path = path
        self._buffers = buffers

    def get(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> np.ndarray:
        """Return buffer `name` as `length` elements of `dtype`.

        Raises
        ------
        FormatError
            When the buffer is missing or has another length.
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
        """Raise FormatError unless the file is `sound`.

        The message says `otherwise`.
        """
        if not sound:
            raise FormatError(f"{self._path} is damaged: {otherwise}; save the table again")
