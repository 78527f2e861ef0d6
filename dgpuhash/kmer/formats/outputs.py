"""Write output files atomically, and format columns of text with Arrow."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np

from dgpuhash.kmer.sequences.arrow_arrays import bytes_array, numbers_of
from dgpuhash.kmer.sequences.files import STDIN
from dgpuhash.tables.serialization import check_absent, complete_file

STDOUT = STDIN
_GZIP_LEVEL = 4
_ISAL_LEVEL = 1
# Items that are written or wait for it while the next one is made.
_WAITING = 2

Item = TypeVar("Item")


def check_output(target: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise before any work if a target cannot be written.

    Raises
    ------
    ExistsError
        When a file is there and `overwrite` is False, or a folder is.
    FileNotFoundError
        When the folder for it is not there.
    """
    name = os.fspath(target)
    if _is_stream(name):
        return
    check_absent(name, overwrite=overwrite)
    folder = Path(name).absolute().parent
    if "://" not in name and not folder.is_dir():
        raise FileNotFoundError(f"{name}: there is no folder {folder}; make it first")


@contextmanager
def opened_output(target: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Any]:
    """Yield a binary stream to a file, renamed to its target after a block without error.

    ``"-"`` is the standard output; pipes and devices are written as they are. What ends with .gz
    is compressed.

    Raises
    ------
    ExistsError
        When the file is there and `overwrite` is False.
    OSError
        When it cannot be written; nothing is left of it then.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "one.txt")
    >>> with opened_output(path) as stream:
    ...     _ = stream.write(b"text")
    >>> path.read_text()
    'text'
    """
    name = os.fspath(target)
    if name == STDOUT:
        stdout = _NamedErrors("the standard output", sys.stdout.buffer)
        yield stdout
        stdout.flush()
        return
    is_of_block = False
    try:
        with Path(name).open("wb") if _is_stream(name) else complete_file(name, overwrite) as file:
            told = _NamedErrors(name, file)
            try:
                with _compressor(told) if name.endswith(".gz") else nullcontext(told) as stream:
                    yield stream
            except BaseException:
                is_of_block = True
                raise
    except OSError as error:
        if is_of_block or error.strerror is None or isinstance(error, FileExistsError):
            raise
        raise _error_with_name(name, error) from error


def write_lines(
    target: str | os.PathLike[str], lines: Iterable[str], *, overwrite: bool = False
) -> None:
    """Write lines to a file, as `opened_output` does."""
    with opened_output(target, overwrite=overwrite) as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())


def write_beside(items: Iterable[Item], write: Callable[[Item], None]) -> None:
    """Write items in order, on another thread than their producer's."""
    waiting: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, "dgpuhash-write") as thread:
        for item in items:
            waiting.append(thread.submit(write, item))
            if len(waiting) > _WAITING:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()


class _NamedErrors(io.RawIOBase):
    """File whose errors name it."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name, self._file = name, file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        with self._naming():
            return self._file.write(data)

    def flush(self) -> None:
        # Python flushes once more when the object goes.
        if not self._file.closed:
            with self._naming():
                self._file.flush()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _error_with_name(self._name, error) from error


def _error_with_name(name: str, error: OSError) -> OSError:
    remedy = "make room there, or choose a place that you may write to"
    return OSError(f"{name} cannot be written: {error.strerror}; {remedy}")


def _is_stream(name: str) -> bool:
    """Return whether a name is standard output, a pipe or a device."""
    path = Path(name)
    return name == STDOUT or ("://" not in name and path.exists() and not _is_plain(path))


def _is_plain(path: Path) -> bool:
    return path.is_file() or path.is_dir()


def _compressor(file: Any) -> Any:
    if importlib.util.find_spec("isal") is None:
        return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL)
    module = importlib.import_module("isal.igzip")
    return cast(Any, module).IGzipFile(fileobj=file, mode="wb", compresslevel=_ISAL_LEVEL)


def texts_of(numbers: np.ndarray) -> Any:
    """Return integers as an Arrow array of bytes, formatting repeated values once.

    Examples
    --------
    >>> texts_of(np.array([562, -3, 562])).to_pylist()
    [b'562', b'-3', b'562']
    """
    import pyarrow as pa

    encoded = numbers_of(numbers).dictionary_encode()
    distinct = encoded.dictionary.cast(pa.large_string()).cast(pa.large_binary())
    return distinct.take(encoded.indices)


def take_text(texts: Sequence[str | bytes], places: np.ndarray) -> Any:
    """Return the text at each index as an Arrow array of bytes.

    Examples
    --------
    >>> take_text(["U", "C"], np.array([1, 0])).to_pylist()
    [b'C', b'U']
    """
    return at_places(bytes_array(texts), places)


def at_places(texts: Any, places: np.ndarray) -> Any:
    """Return the text of an Arrow array at each index."""
    return texts.take(numbers_of(places))


def join_text(columns: Sequence[Any], separator: bytes = b"\t") -> Any:
    """Return the texts of each row with a separator between them.

    Examples
    --------
    >>> columns = [take_text(["a", "b"], np.arange(2)), texts_of(np.array([7, 8]))]
    >>> join_text(columns, b":").to_pylist()
    [b'a:7', b'b:8']
    """
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, text_scalar(separator))


def in_lists(texts: Any, offsets: np.ndarray, separator: bytes) -> Any:
    """Return the texts from each offset to the next, with a separator between them.

    Examples
    --------
    >>> texts = take_text(["a", "b"], np.array([0, 1, 1]))
    >>> in_lists(texts, np.array([0, 2, 2, 3]), b" ").to_pylist()
    [b'a b', b'', b'b']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pa.LargeListArray.from_arrays(numbers_of(offsets), texts)
    return pc.binary_join(lists, text_scalar(separator))


def bytes_of(lines: Any) -> memoryview:
    """Return all texts of an Arrow array concatenated.

    Examples
    --------
    >>> bytes(bytes_of(take_text(["a", "b"], np.array([0, 1, 1]))))
    b'abb'
    """
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(text)[ends[0] : ends[-1]] if text is not None else memoryview(b"")


def text_scalar(text: bytes) -> Any:
    """Return a text as an Arrow scalar of bytes, without importing pandas."""
    return bytes_array([text])[0]
