"""Decompress gzip, BGZF, bzip2, xz and zstd streams; truncated data raises."""

from __future__ import annotations

import bz2
import importlib
import io
import lzma
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dgpuhash.errors import UnsupportedError

zlib: Any
try:
    # It takes half the time of Python's.
    zlib = importlib.import_module("isal.isal_zlib")
except ImportError:
    zlib = importlib.import_module("zlib")

# Of text, and of compressed data.
CHUNK_NBYTES = 2**20
_PACKED_NBYTES = 2**16
_STARTS = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
}
# Of a gzip header: fixed fields, the flag of extra fields, and where their size and they are.
_FLAGS, _HAS_EXTRA, _EXTRA_SIZE, _EXTRA = 3, 4, slice(10, 12), 12
_UNMARKED = (
    "the empty block that ends BGZF is missing (if the file never had one, unpack it by gzip -dc)"
)


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file by its first bytes `head`, None for a plain file.

    Examples
    --------
    >>> compression_of(b"BZh91AY"), compression_of(b">one\\nACGT\\n")
    ('bz2', None)
    """
    return next((kind for kind, start in _STARTS.items() if head.startswith(start)), None)


def decompress(stream: BinaryIO, kind: str, chunk_nbytes: int = CHUNK_NBYTES) -> Iterator[bytes]:
    """Yield the content of all frames or members of a compressed file, a block at a time.

    Zeros between and behind frames are padding. A file that was cut between two frames cannot be
    told from a whole one, except in BGZF, whose last block is empty.

    Parameters
    ----------
    stream : file of bytes
    kind : {"gzip", "bz2", "xz", "zstd"}
    chunk_nbytes : int
        Most bytes at a time; those of zstd have no bound.

    Raises
    ------
    EOFError
        When the data ends within a frame, or the last block of BGZF is not empty.
    OSError
        When the data is wrong, without an ``errno``; or the stream cannot be read.
    UnsupportedError
        When zstandard is needed and not installed.

    Examples
    --------
    >>> import gzip, io
    >>> b"".join(decompress(io.BytesIO(gzip.compress(b"AC") + gzip.compress(b"GT")), "gzip"))
    b'ACGT'
    """
    new, faults = _frames_of(kind)
    frame: Any = None
    packed, is_open = b"", False
    while True:
        packed = packed.lstrip(b"\0")
        while len(packed) < _head_nbytes(packed) and (more := stream.read(_PACKED_NBYTES)):
            packed = (packed + more).lstrip(b"\0")
        is_block = kind == "gzip" and _is_block(packed)
        if is_open and not is_block:
            raise EOFError(_UNMARKED)
        if not packed and frame is not None:
            return
        if kind == "gzip" and not packed.startswith(_STARTS[kind][: len(packed)]):
            raise OSError("other bytes follow a member of gzip")
        frame, nbytes = new(), 0
        while not frame.eof:
            if frame.needs_input:
                packed = packed or stream.read(_PACKED_NBYTES)
                if not packed:
                    raise EOFError("its compressed data ends too early")
            try:
                text = frame.decompress(packed if frame.needs_input else b"", chunk_nbytes)
            except faults as error:
                raise OSError(str(error) or "its compressed data is wrong") from error
            packed = b""
            nbytes += len(text)
            if text:
                yield text
        packed = frame.unused_data
        is_open = is_block and nbytes > 0


def _head_nbytes(head: bytes) -> int:
    """Return the bytes of a gzip header up to the end of its extra fields."""
    if head[_FLAGS : _FLAGS + 1] and head[_FLAGS] & _HAS_EXTRA:
        return _EXTRA + int.from_bytes(head[_EXTRA_SIZE], "little")
    return _EXTRA


def _is_block(head: bytes) -> bool:
    """Return whether a gzip member is a block of BGZF, by its extra field BC."""
    end = _head_nbytes(head)
    at = _EXTRA
    while head.startswith(_STARTS["gzip"]) and at < min(end, len(head)):
        if head[at : at + 4] == b"BC\x02\0":
            return True
        at += 4 + int.from_bytes(head[at + 2 : at + 4], "little")
    return False


def _frames_of(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Return the factory of a frame's decompressor, and its error types."""
    if kind == "gzip":
        return (lambda: _Zlib(zlib.decompressobj(31))), (zlib.error,)
    if kind == "bz2":
        return bz2.BZ2Decompressor, (OSError, ValueError)
    if kind == "xz":
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise UnsupportedError(
            "zstd files need the package zstandard; install it with 'pip install zstandard'"
        ) from error
    return (lambda: _Zstd(zstandard.ZstdDecompressor().decompressobj())), (zstandard.ZstdError,)


class _Decompressor:
    """Base of decompressors with the attributes of those of bz2 and lzma."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return bool(self._reader.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._reader.unused_data)


class _Zlib(_Decompressor):
    """Decompressor of zlib."""

    _left = b""

    def decompress(self, data: bytes, most: int) -> bytes:
        text: bytes = self._reader.decompress(self._left + data, most)
        self._left = self._reader.unconsumed_tail
        # Some of the text may be left without any of the data.
        self.needs_input = not self._left and len(text) < most
        return text


class _Zstd(_Decompressor):
    """Decompressor of zstandard, with unbounded output."""

    def decompress(self, data: bytes, most: int) -> bytes:
        return bytes(self._reader.decompress(data))


class DecompressedStream(io.RawIOBase):
    """Readable stream of the content of a compressed file.

    Parameters
    ----------
    stream, kind
        As those of `decompress`.

    Examples
    --------
    >>> import bz2
    >>> with DecompressedStream(io.BytesIO(bz2.compress(b"k,v\\n1,2\\n")), "bz2") as text:
    ...     io.BufferedReader(text).readline()
    b'k,v\\n'
    """

    def __init__(self, stream: BinaryIO, kind: str) -> None:
        self._texts = decompress(stream, kind)
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        if not self._text:
            self._text = memoryview(next(self._texts, b""))
        n = min(len(room), len(self._text))
        room[:n] = self._text[:n]
        self._text = self._text[n:]
        return n
