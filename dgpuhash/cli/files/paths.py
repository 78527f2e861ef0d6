"""Resolve paths, globs, directories and URLs to files and their formats."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import fsspec
from fsspec.compression import compr
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_compression

from dgpuhash.cli.files.streams import stored_input
from dgpuhash.compression import CHUNK_NBYTES, DecompressedStream
from dgpuhash.errors import UnsupportedError

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_KINDS = {
    **dict.fromkeys((".parquet", ".pq", ".parq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".feather"), "arrow"),
}
# Kinds of text, of which files may be compressed as a whole.
_TEXTS = ("csv", "json")


class FileFormat(NamedTuple):
    """File format, given by the ending of a name.

    Attributes
    ----------
    kind : {"parquet", "csv", "json", "arrow"}
        JSON has an object in each line; Arrow's files are those of its IPC format.
    ending : str
        E.g. ``.csv.gz``.
    separator : str
        Field separator of CSV.
    compression : str or None
        fsspec's name of the compression.
    """

    kind: str
    ending: str
    separator: str
    compression: str | None


def format_of(path: str) -> FileFormat:
    """Return the file format that the ending of `path` names.

    Raises
    ------
    UnsupportedError
        When the ending is of no known format, a Parquet or Arrow file is compressed as a whole, or
        the compression is not installed.

    Examples
    --------
    >>> format_of("s3://bucket/planes-*.csv.gz").kind, format_of("out.parquet/").kind
    ('csv', 'parquet')
    >>> format_of("planes.tsv.gz").separator, format_of("planes.tsv.gz").compression
    ('\\t', 'gzip')
    """
    ending, compressed = _endings(path)
    if ending not in _KINDS:
        raise UnsupportedError(
            f"{path}: the file ending names none of the formats Parquet, CSV, JSON lines and "
            f"Arrow; use .parquet, "
            ".csv, .jsonl or .arrow"
        )
    if compressed and _KINDS[ending] not in _TEXTS:
        raise UnsupportedError(
            f"{path}: {_KINDS[ending].capitalize()} files are compressed internally; use a file "
            f"name that ends with {ending}"
        )
    compression = infer_compression(path.rstrip("/").lower()) if compressed else None
    if compressed and compression is None:
        raise UnsupportedError(
            f"{path} needs the package zstandard; install it with 'pip install zstandard'"
        )
    separator = "\t" if ending == ".tsv" else ","
    return FileFormat(_KINDS[ending], ending + compressed, separator, compression)


def _endings(path: str) -> tuple[str, str]:
    """Return the ending of a name, and the ending of its compression or ""."""
    name = path.rstrip("/").lower()
    compressed = next((ending for ending in _COMPRESSED if name.endswith(ending)), "")
    return PurePosixPath(name.removesuffix(compressed)).suffix, compressed


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path in it; existing local files come first.

    Raises
    ------
    UnsupportedError
        When no such file system is known.
    """
    if os.path.lexists(url):
        # The name may have what is the protocol of a URL, or what parts two of them.
        return LocalFileSystem(), str(Path(url).absolute())
    try:
        return fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnsupportedError(f"{url} cannot be opened: {error}") from error


def files_of(pattern: str) -> tuple[Any, list[str]]:
    """Return the file system and the sorted files that `pattern` names.

    `pattern` is a path, glob, directory or URL, or `-` for standard input. Of a directory these are
    the files of the kind that its own name says, or of all kinds if it says none; files whose names
    begin with a dot or underscore are left out.

    Raises
    ------
    FileNotFoundError
        When nothing matches.
    UnsupportedError
        When no such file system is known.
    """
    filesystem, path = filesystem_of(stored_input() if pattern == "-" else pattern)
    is_glob = any(mark in path for mark in "*?[") and not filesystem.exists(path)
    paths = sorted(filesystem.glob(path)) if is_glob else [path]
    if not paths or not all(filesystem.exists(path) for path in paths):
        raise FileNotFoundError(f"{pattern}: no such file; check the path (globs need quotes)")
    files = [
        file
        for path in paths
        for file in (_files_in(filesystem, path) if is_directory(filesystem, path) else [path])
    ]
    if not files:
        raise FileNotFoundError(
            f"{pattern}: there is no file in it that ends in .parquet, .csv, .jsonl or .arrow, "
            "or like its name"
        )
    return filesystem, files


def _files_in(filesystem: Any, directory: str) -> list[str]:
    says = _KINDS.get(_endings(directory)[0])
    alike = tuple(
        ending + compressed
        for ending, kind in _KINDS.items()
        for compressed in ("", *_COMPRESSED)
        if says in (kind, None)
    )
    shown = [
        file
        for file in filesystem.find(directory)
        if not any(part.startswith((".", "_")) for part in file[len(directory) :].split("/"))
    ]
    return sorted(file for file in shown if file.lower().endswith(alike))


def is_directory(filesystem: Any, path: str) -> bool:
    """Return whether `path` is a directory.

    `isdir` is not used because over HTTP it reads a file to look for links.
    """
    return bool(filesystem.exists(path) and filesystem.info(path)["type"] == "directory")


def canonical_path(filesystem: Any, path: str) -> str:
    """Return the canonical path of a file, with links resolved."""
    return os.path.realpath(path) if "file" in filesystem.protocol else path


@contextmanager
def open_stream(
    filesystem: Any, path: str, compression: str | None, mode: str = "rb", **options: Any
) -> Iterator[IO[bytes]]:
    """Yield a stream of the uncompressed content of a file.

    Reading raises EOFError where compressed data ends too early, and OSError where it is wrong.
    """
    with filesystem.open(path, mode, **options) as file:
        if mode == "rb" and compression is not None:
            yield io.BufferedReader(DecompressedStream(file, compression), CHUNK_NBYTES)
            return
        with compr[compression](file, mode=mode) as stream:
            yield stream
