"""How many letters files have, by their sizes and first lines."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from dgpuhash.compression import compression_of
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.sequences.files import STDIN, opened

_HEAD_NBYTES = 2**18
# Files that are looked into.
_LOOKED_INTO = 32
# Letters for each byte of bzip2, xz and zstd, and of gzip where no text can be had.
_PACKED_LETTERS = 3.6


def letters_by_size(files: Sequence[str]) -> int:
    """Return about how many letters the sequences in files have.

    Raises
    ------
    SequenceError
        When one is the standard input.
    OSError
        When one is not there.
    """
    if STDIN in files:
        raise SequenceError("the standard input has no size; name files")
    sizes = {file: _nbytes_of(file) for file in files}
    some = files[:: -(-len(files) // _LOOKED_INTO)]
    looked = {file: _letters_of_byte(file) for file in some}
    weight = sum(sizes[file] for file in looked)
    usual = sum(sizes[file] * each for file, each in looked.items()) / max(weight, 1)
    return round(sum(sizes[file] * looked.get(file, usual) for file in files))


def _nbytes_of(file: str) -> int:
    if "://" not in file:
        return Path(file).stat().st_size
    import fsspec

    system, path = fsspec.url_to_fs(file)
    return int(system.size(path))


def _letters_of_byte(file: str) -> float:
    """Return the letters of a file for each of its bytes, as its beginning has them."""
    with opened(file) as stream:
        head = stream.read(_HEAD_NBYTES)
    packed, kind = len(head), compression_of(head)
    if kind == "gzip":
        reader = zlib.decompressobj(31)
        try:
            head = reader.decompress(head)
        except zlib.error:
            return _PACKED_LETTERS
        packed -= len(reader.unused_data)
    elif kind is not None:
        return _PACKED_LETTERS
    lines = head.splitlines()
    lines = lines[1::4] if head.startswith(b"@") else [line for line in lines if line[:1] != b">"]
    return sum(map(len, lines)) / max(packed, 1)
