"""File layout of saved tables: header, manifest and buffer offsets."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from dgpuhash.errors import DgpuhashError, FormatError, ShapeError, SpecError
from dgpuhash.tables.arguments.checksums import digest_of, sums_digest_of

MAGIC = b"dgpuhash"
VERSION, LATER_VERSION = 2, 3
"""That of most files, and of those whose buffers releases before do not know."""
_LONGEST_MANIFEST = 1 << 24

Checksums = tuple[str, Callable[[memoryview], bytes]]
CHECKSUMS: dict[int, Checksums] = {
    1: ("blake2b", digest_of),
    VERSION: ("crc32", sums_digest_of),
    LATER_VERSION: ("crc32", sums_digest_of),
}
"""By the version of a file, the name that a manifest has for checksums, and what makes them."""
PREFIX = struct.Struct("<8sII16s")
ALIGNMENT = 64


def buffer_entry(name: str, nbytes: int, digest: str) -> dict[str, Any]:
    """Return the manifest entry of a buffer with a digest from `with_digests`."""
    return {"name": name, "nbytes": nbytes, CHECKSUMS[VERSION][0]: digest}


def head_of(
    header: Mapping[str, Any], buffers: Sequence[Mapping[str, Any]], version: int = VERSION
) -> bytes:
    """Return the bytes before the buffers: magic, version, manifest and checksum.

    Parameters
    ----------
    header : mapping
        What JSON can hold.
    buffers : sequence of mappings
        As `buffer_entry` returns them.
    version : int
        `VERSION` or `LATER_VERSION`.
    """
    manifest = json.dumps({"header": header, "buffers": buffers}, sort_keys=True).encode()
    return PREFIX.pack(MAGIC, version, len(manifest), digest_of(manifest)) + manifest


def places_of(start: int, sizes: Sequence[int]) -> list[int]:
    """Return the offsets of buffers with these sizes, and the end of the last one.

    Examples
    --------
    >>> places_of(70, [3, 0, 64])
    [128, 192, 192, 256]
    """
    places = []
    for nbytes in sizes:
        start += -start % ALIGNMENT
        places.append(start)
        start += nbytes
    return [*places, start]


def read_head(
    file: BinaryIO, nbytes: int, name: str
) -> tuple[dict[str, Any], list[dict[str, Any]], int, Checksums]:
    """Return a file's header, and the sizes, offsets and checksums of its buffers.

    Raises
    ------
    FormatError
        When it is another file, of another version, or damaged.
    """
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise FormatError(f"{name} was not saved by dgpuhash; pass a file that table.save() wrote")
    _, version, length, digest = PREFIX.unpack(prefix)
    if version not in CHECKSUMS:
        raise FormatError(
            f"{name} has format version {version} and this dgpuhash reads version {LATER_VERSION}; "
            "load it with the release that saved it"
        )
    checksums = CHECKSUMS[version]
    if length > min(_LONGEST_MANIFEST, nbytes - PREFIX.size):
        raise damage_error(name, f"a manifest of {length:,} bytes cannot be in {nbytes:,} bytes")
    text = file.read(length)
    if digest_of(text) != digest:
        raise damage_error(name, "the checksum of its manifest is wrong")
    try:
        manifest = json.loads(text)
        header, entries = manifest["header"], manifest["buffers"]
        sizes = [(entry["name"], entry["nbytes"], entry[checksums[0]]) for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damage_error(name, f"its manifest cannot be read ({error!r})") from error
    if not isinstance(header, dict) or len({str(name) for name, _, _ in sizes}) != len(sizes):
        raise damage_error(name, "its manifest is malformed")
    position = PREFIX.size + length
    for buffer, size, checksum in sizes:
        if type(buffer) is not str or type(size) is not int or type(checksum) is not str:
            raise damage_error(name, "its manifest is malformed")
        if not 0 <= size <= nbytes:
            raise damage_error(name, f"buffer {buffer!r} claims {size:,} of {nbytes:,} bytes")
    end = places_of(position, [size for _, size, _ in sizes])[-1]
    if end != nbytes:
        raise damage_error(name, f"it should be {end:,} bytes long and is {nbytes:,}")
    return header, entries, position, checksums


@contextmanager
def interpreting(
    path: str | os.PathLike[str], own: tuple[type[DgpuhashError], ...] = (ShapeError, SpecError)
) -> Iterator[None]:
    """Turn errors of a block into FormatError: checksums match, but the content is invalid.

    Errors of the file system, of memory and of devices pass unchanged.

    Parameters
    ----------
    path : path or fsspec URL
    own : tuple of type
        The errors of this library that content may raise.

    Examples
    --------
    >>> with interpreting("counts"):
    ...     {}["k"]
    Traceback (most recent call last):
        ...
    dgpuhash.errors.FormatError: counts is damaged: its content cannot be read (KeyError('k'))...
    """
    try:
        yield
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        if isinstance(error, DgpuhashError) and not isinstance(error, own):
            raise
        name = os.fspath(path)
        raise damage_error(name, f"its content cannot be read ({error!r})") from error


def damage_error(name: str, why: str) -> FormatError:
    """Return the error for a damaged file."""
    return FormatError(f"{name} is damaged: {why}; save the table again or restore a backup")
