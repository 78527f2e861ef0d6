"""Find sequence files by names, globs, folders and URLs, and decompress their text."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from dgpuhash.compression import compression_of, decompress
from dgpuhash.errors import SequenceError, UnsupportedError
from dgpuhash.kmer.sequences.ahead import ahead, threads_of_a_generator

STDIN = "-"
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

CHUNK_NBYTES = 2**20
_HEAD_NBYTES = 6
_ENDINGS = tuple(
    f".{kind}{packed}"
    for kind in ("fa", "fas", "fasta", "fna", "ffn", "frn", "fq", "fastq")
    for packed in ("", ".gz", ".bgz", ".bz2", ".xz", ".zst")
)


def files_of(paths: Paths) -> list[str]:
    """Return the files of paths, globs, folders and URLs, sorted by name.

    Several arguments keep their own order. Of a folder these are the files, also of folders in
    it, that end as FASTA or FASTQ does, compressed or not; ``"-"`` is the standard input.

    Raises
    ------
    FileNotFoundError
        When nothing is there.

    Examples
    --------
    >>> files_of("-")
    ['-']
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise FileNotFoundError("no file was given; name a file, a glob, a folder, a URL or -")
    return [file for path in given for file in _files_named(os.fspath(path))]


def _files_named(name: str) -> list[str]:
    if name == STDIN:
        return [name]
    if "://" in name:
        return _files_at(name)
    if Path(name).is_dir():
        inside = (path for path in Path(name).rglob("*") if path.is_file())
        return _sequence_files(name, map(str, inside))
    if Path(name).exists():
        return [name]
    anchor = Path(name).anchor
    pattern = name[len(anchor) :]
    matches = Path(anchor).glob(pattern) if set(name) & set("*?[") else ()
    shown = (path for path in matches if path.is_file() and not path.name.startswith("."))
    found = sorted(map(str, shown), key=os.fsencode)
    if not found:
        raise FileNotFoundError(f"{name}: no such file; check the path (globs need quotes)")
    return found


def _files_at(url: str) -> list[str]:
    import fsspec

    try:
        system, path = fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnsupportedError(f"{url} cannot be opened: {error}") from error
    if system.isdir(path):
        found = _sequence_files(url, system.find(path))
    elif system.exists(path):
        return [url]
    else:
        found = sorted(system.glob(path) if set(path) & set("*?[") else [], key=os.fsencode)
    if not found:
        raise FileNotFoundError(f"{url}: no such file; check the address")
    return [system.unstrip_protocol(file) for file in found]


def _sequence_files(folder: str, files: Iterable[str]) -> list[str]:
    found = [
        file
        for file in files
        if file.lower().endswith(_ENDINGS) and not Path(file).name.startswith(".")
    ]
    if not found:
        raise FileNotFoundError(
            f"{folder}: no file in it ends as FASTA or FASTQ does, e.g. .fna.gz; name the files"
        )
    return sorted(found, key=os.fsencode)


def text_of(
    name: str,
    consumed: Callable[[int], object] | None = None,
    summed: Callable[[str], object] | None = None,
) -> Iterator[bytes]:
    """Yield the text of a file in blocks, decompressed by its content.

    Parameters
    ----------
    name : str
    consumed : callable, optional
        Is told how many bytes of the file were read, compressed as they are.
    summed : callable, optional
        Is told, at the end, the SHA-256 sum of the file's bytes, as ``sha256sum`` prints it.

    Raises
    ------
    SequenceError
        When compressed data is cut short or damaged. A file that was cut between two members of
        gzip, or frames of another compression, cannot be told from a whole one; BGZF can.
    UnsupportedError
        When zstandard is needed and not installed.
    OSError
        When the file cannot be read.
    """
    with ExitStack() as stack:
        file = stack.enter_context(byte_opener(name))
        head, stream = _head_of(file)
        if summed is not None:
            thread = stack.enter_context(threads_of_a_generator(1, "dgpuhash-sum"))
            stream = cast(BinaryIO, _Summed(stream, thread))
        done = place = 0
        try:
            for text in _chunks(name, head, stream):
                done += len(text)
                if consumed is not None and file.seekable():
                    before, place = place, file.tell()
                    consumed(place - before)
                yield text
            if summed is not None:
                summed(cast(_Summed, stream).hexdigest())
        except UnsupportedError as error:
            raise UnsupportedError(f"{name}: {error}") from error
        except EOFError as error:
            raise SequenceError(
                f"{name} is cut short: {error}, after {done:,} bytes of text; copy or download it "
                "again"
            ) from error
        except OSError as error:
            # Of the file itself, and not of what is in it.
            if error.errno is not None:
                raise
            raise SequenceError(
                f"{name} is damaged: {error}, after {done:,} bytes of text; copy or download it "
                "again"
            ) from error


def byte_opener(name: str) -> Any:
    """Return a function that opens the bytes of a file, a URL or standard input."""
    if name == STDIN:
        return nullcontext(sys.stdin.buffer)
    if "://" in name:
        import fsspec

        return fsspec.open(name, "rb")
    return Path(name).open("rb")


class _Prefixed(io.RawIOBase):
    """Stream with some already read bytes put back in front."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        piece = self._head[: len(room)] or self._stream.read(len(room))
        self._head = self._head[len(room) :]
        room[: len(piece)] = piece
        return len(piece)


class _Summed(io.RawIOBase):
    """Stream that computes a checksum on another thread as it is read."""

    def __init__(self, stream: BinaryIO, thread: Executor) -> None:
        self._stream, self._thread = stream, thread
        self._sum = hashlib.sha256()
        self._adding: Future[None] | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        if self._adding is not None:
            self._adding.result()
        self._adding = self._thread.submit(self._sum.update, piece)
        return piece

    def readinto(self, room: Any) -> int:
        piece = self.read(len(room))
        room[: len(piece)] = piece
        return len(piece)

    def hexdigest(self) -> str:
        """Return the checksum of all bytes, reading the rest of the stream."""
        while self.read(CHUNK_NBYTES):
            pass
        if self._adding is not None:
            self._adding.result()
        return self._sum.hexdigest()


def _head_of(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """Return the first bytes of a stream, and the stream with them put back."""
    head = b""
    while len(head) < _HEAD_NBYTES and (more := stream.read(_HEAD_NBYTES - len(head))):
        head += more
    if stream.seekable():
        stream.seek(0)
        return head, stream
    return head, cast(BinaryIO, io.BufferedReader(_Prefixed(head, stream), CHUNK_NBYTES))


def _chunks(name: str, head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    kind = compression_of(head)
    if kind == "gzip":
        yield from ahead(decompress(stream, kind, CHUNK_NBYTES), "dgpuhash-gzip")
    elif kind is not None:
        yield from decompress(stream, kind, CHUNK_NBYTES)
    else:
        while chunk := stream.read(CHUNK_NBYTES):
            yield chunk
