"""Save tables to files: magic, JSON manifest, buffers, no pickle.

::

    0   8 bytes   b"dgpuhash"
    8   u32       format version: 2, or 1 in older files; 3 where 2 has no such buffers
    12  u32       length of the manifest in bytes
    16  16 bytes  BLAKE2b of the manifest
    32  manifest  JSON: {"header": {...}, "buffers": [{"name", "nbytes", "crc32"}, ...]}
        buffers   one after the other, each at the next multiple of 64; the last one ends the file

The checksum of a buffer is BLAKE2b of the CRC-32 sums of each MiB; in version 1 it is called
``blake2b``, and is that of all bytes. Every size in the manifest is checked against the file's
length before memory is allocated. A file is written under a temporary name, and renamed when it is
complete and on disk. The rename fails if the final name exists, unless `overwrite` is set. What a
killed program leaves under a temporary name is removed by the next save or load of the final one.
"""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dgpuhash.errors import ExistsError, FormatError, SpecError, UnsupportedError
from dgpuhash.tables.arguments.checksums import Pieces, pieces_of, with_digests
from dgpuhash.tables.arguments.file_layout import (
    VERSION,
    buffer_entry,
    damage_error,
    head_of,
    places_of,
    read_head,
)
from dgpuhash.tables.arguments.temporary import locked_part, sweep_parts

_PIECE = 1 << 24


def check_no_pattern(url: str, system: Any) -> None:
    """Raise SpecError if fsspec would interpret a part of `url` as a pattern.

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
        f"{name} cannot be written: its file system is read-only; choose another place"
    )


def exists_error(name: str | os.PathLike[str]) -> ExistsError:
    """Return the error for a path that exists and must not be replaced."""
    return ExistsError(
        f"{os.fspath(name)} exists already; choose another name, or replace it with overwrite=True"
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
    buffers: Mapping[str, np.ndarray | Pieces],
    *,
    overwrite: bool = False,
    version: int = VERSION,
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
    entries = [
        buffer_entry(name, array.nbytes, made)
        for name, (array, made) in zip(buffers, with_digests(buffers.values()), strict=True)
    ]
    head = head_of(header, entries, version)
    with complete_file(path, overwrite) as file:
        file.write(head)
        position = len(head)
        places = places_of(position, [each["nbytes"] for each in entries])
        for place, array in zip(places, buffers.values(), strict=False):
            file.write(bytes(place - position))
            position = place
            for data in pieces_of(array):
                position += len(data)
                for start in range(0, len(data), _PIECE):
                    file.write(data[start : start + _PIECE])
            assert position == place + array.nbytes


def file_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file at a path or fsspec URL."""
    name = os.fspath(path)
    if "://" not in name:
        return Path(name).is_file()
    import fsspec

    system, inner = fsspec.core.url_to_fs(name)
    return bool(system.isfile(inner))


def header_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a saved file.

    Does not read the buffers.

    Raises
    ------
    FormatError, FileNotFoundError
        As for `read_file`; damaged buffers are not detected.
    """
    name = os.fspath(path)
    with _existing(name) as (file, nbytes):
        return read_head(file, nbytes, name)[0]


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the buffers of a saved file.

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
    path: str | os.PathLike[str], wanted: Callable[[str], bool] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray], mmap.mmap | None]:
    """Return header, memory-mapped buffers of a local file, and the map or None.

    `wanted` says which buffers are read, by their names.
    """
    return _read(os.fspath(path), is_mapped="://" not in os.fspath(path), wanted=wanted)


def _read(
    name: str, *, is_mapped: bool, wanted: Callable[[str], bool] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray], mmap.mmap | None]:
    if "://" not in name:
        sweep_parts(name)
    with _existing(name) as (file, nbytes):
        header, entries, position, (checksum, digest) = read_head(file, nbytes, name)
        places = places_of(position, [entry["nbytes"] for entry in entries])
        each = zip(entries, places, strict=False)
        chosen = [pair for pair in each if wanted is None or wanted(pair[0]["name"])]
        # Private: what is written to it stays in memory.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if is_mapped else None
        found = {}

        def arrays() -> Iterator[np.ndarray]:
            for entry, position in chosen:
                if mapped is None or not entry["nbytes"]:
                    file.seek(position)
                    array = np.empty(entry["nbytes"], np.uint8)
                    if _fill(file, array) != len(array):
                        raise damage_error(name, f"buffer {entry['name']!r} is cut short")
                else:
                    mapped.madvise(mmap.MADV_DONTNEED)
                    array = np.frombuffer(mapped, np.uint8, entry["nbytes"], position)
                yield array

        for (entry, _), (array, made) in zip(chosen, with_digests(arrays(), digest), strict=True):
            if made != entry[checksum]:
                raise damage_error(name, f"the checksum of buffer {entry['name']!r} is wrong")
            found[entry["name"]] = array
    return header, found, mapped


@contextmanager
def complete_file(path: str | os.PathLike[str], overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file, renamed to `path` after a block without error, else removed."""
    system, name = _place(os.fspath(path))
    if system is not None:
        part = f"{name}.{uuid.uuid4().hex}.part"
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
    with locked_part(name, lambda part: Path(part).open("xb").close()) as part:
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
    """Return the file system and path of a file to write.

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


class Buffers:
    """Buffers of a saved table, each checked for its length when read."""

    def __init__(self, path: str, buffers: dict[str, np.ndarray]) -> None:
        self._path = path
        self._buffers = buffers

    def has(self, name: str) -> bool:
        """Return whether there is a buffer `name`."""
        return name in self._buffers

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
