"""Write and read rows as Arrow files without pickle, verified by checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import pyarrow as pa

from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import FormatError, UnsupportedError
from dgpuhash.frames import frames_named, frames_of
from dgpuhash.tables.arguments.interop import has_common_unit

NAMES = ("key", "value")


def to_arrow(columns: Sequence[np.ndarray], dtypes: Sequence[np.dtype[Any]]) -> pa.Table:
    """Return an Arrow table with columns ``"key"`` and ``"value"``.

    Numbers and times have Arrow's own types. Times of units that Arrow has not, or of multiples of
    a unit, are int64, and all other values are fixed-size binary.

    Examples
    --------
    >>> keys, values = np.array([7, 8]), np.array([b"a", b"b"])
    >>> to_arrow([keys, values], [keys.dtype, values.dtype]).schema
    key: int64
    value: fixed_size_binary[1]
    """
    arrays = []
    for column, dtype in zip(columns, dtypes, strict=True):
        if dtype.kind == "b":
            arrays.append(pa.array(column.view(bool)))
            continue
        data = pa.py_buffer(np.ascontiguousarray(column).reshape(-1).view(np.uint8))
        arrays.append(pa.Array.from_buffers(type_of(dtype), len(column), [None, data]))
    return pa.table(arrays, names=NAMES[: len(arrays)])


def to_numpy(table: pa.Table, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray]:
    """Return the columns of a table that `to_arrow` wrote.

    Raises ValueError for a table that `to_arrow` has not made.
    """
    if not any(
        table.schema == pa.schema(zip(NAMES, map(of, dtypes), strict=False))
        for of in (type_of, _type_once)
    ):
        raise ValueError(f"its columns are {table.schema}")
    found = []
    for column, dtype in zip(table.combine_chunks().columns, dtypes, strict=True):
        if column.null_count:
            raise ValueError("it has nulls")
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if dtype.kind == "b":
            found.append(array.to_numpy(zero_copy_only=False))
            continue
        data = np.frombuffer(array.buffers()[1], np.uint8)
        first = array.offset * dtype.itemsize
        found.append(data[first : first + len(array) * dtype.itemsize].view(dtype))
    return found


def type_of(dtype: np.dtype[Any]) -> pa.DataType:
    """Return the Arrow type of a column of this dtype."""
    if dtype.kind in "mM":
        return pa.from_numpy_dtype(dtype) if has_common_unit(dtype) else pa.int64()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(dtype)
    return pa.binary(dtype.itemsize)


def _type_once(dtype: np.dtype[Any]) -> pa.DataType:
    """Return the Arrow type of a column of this dtype in older files.

    There, times in multiples of a unit have the type of the unit.
    """
    if dtype.kind in "mM":
        dtype = np.dtype(f"{dtype.kind}8[{np.datetime_data(dtype)[0]}]")
    return type_of(dtype)


BATCH_NBYTES = 32 << 20
_PIECE = 1 << 22
REMEDY = "restore it from a backup, or save again"


@dataclass(frozen=True, slots=True)
class RowsFile:
    """Name, size, checksum and rows of each batch of one Arrow file."""

    file: str
    nbytes: int
    blake2b: str
    batches: tuple[int, ...]

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> RowsFile:
        """Return the RowsFile that `dataclasses.asdict` made into `entry`.

        Raises ValueError when its name leads to another folder.
        """
        batches = entry["batches"]
        numbers = [entry["nbytes"], *batches]
        plain = isinstance(entry["file"], str) and not set(entry["file"]) & set("/\\:?#*")
        if not plain or entry["file"].startswith(".") or not isinstance(entry["blake2b"], str):
            raise ValueError(f"a file of rows is called {entry['file']!r}")
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"sizes of {entry['file']} are no natural numbers")
        return cls(entry["file"], entry["nbytes"], entry["blake2b"], tuple(batches))


def write_rows(frame: Any, folder: Folder, name: str) -> RowsFile:
    """Write `frame` to a new file, and remove the file when that fails."""
    table = frames_of(frame).to_arrow(frame).combine_chunks().unify_dictionaries()
    return write_table(table, folder, name)


def write_table(table: pa.Table, folder: Folder, name: str) -> RowsFile:
    """Write an Arrow table to a new file, as `write_rows` does."""
    step = max(1, table.num_rows * BATCH_NBYTES // max(1, table.nbytes))
    batches = table.to_batches(max_chunksize=step)
    with folder.writing(name) as file:
        sink = _Digesting(file)
        with pa.ipc.new_file(pa.PythonFile(sink, "w"), table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    rows = tuple(batch.num_rows for batch in batches)
    return RowsFile(name, sink.nbytes, sink.digest.hexdigest(), rows)


def check_sizes(folder: Folder, files: Iterable[RowsFile]) -> None:
    """Compare the sizes of files with the recorded sizes.

    Raises
    ------
    FormatError
        When a file is missing, or has another size.
    """
    for rows in files:
        there = folder.size(rows.file)
        if there != rows.nbytes:
            said = "is missing" if there is None else f"has {there} of {rows.nbytes} bytes"
            raise FormatError(f"{folder.url} is damaged: {rows.file} {said}; {REMEDY}")


def check_shared(folder: Folder, files: Iterable[RowsFile]) -> None:
    """Check that the client sees the files of the workers.

    Raises
    ------
    UnsupportedError
        When a file is missing, or has another size.
    """
    for rows in files:
        if folder.size(rows.file) != rows.nbytes:
            raise UnsupportedError(
                f"workers wrote {rows.file}, which this program does not see under its URL; save "
                "to a place that all of them share, as a network file system or an object store"
            )


def delayed_frames(url: str, files: Iterable[RowsFile], library: str) -> list[Any]:
    """Return the rows of files as Delayed frames, one for each batch.

    A file is read after its checksum was verified.
    """
    return delayed_batches(url, files, read_frame, library)


def delayed_batches(
    url: str, files: Iterable[RowsFile], form: Callable[..., Any], *args: Any
) -> list[Any]:
    """Return ``form(table, *args)`` of each batch of files, as Delayed.

    A file is read after its checksum was verified.
    """
    check, read = dask.delayed(check_file, pure=False), dask.delayed(read_batch, pure=False)
    found = []
    for rows in files:
        checked = check(url, rows)
        found += [read(checked, url, rows, batch, form, args) for batch in range(len(rows.batches))]
    return found


def check_file(url: str, rows: RowsFile) -> None:
    """Verify the checksum of a file; runs as a Dask task."""
    digest = digest_of()
    try:
        with Folder(url).reading(rows.file) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except FileNotFoundError as error:
        raise FormatError(f"{url} is damaged: {rows.file} is missing; {REMEDY}") from error
    if digest.hexdigest() != rows.blake2b:
        raise FormatError(f"{url} is damaged: the checksum of {rows.file} is wrong; {REMEDY}")


def read_frame(table: pa.Table, library: str) -> Any:
    """Return the rows as a frame."""
    return frames_named(library).from_arrow(table)


def read_batch(
    checked: None,
    url: str,
    rows: RowsFile,
    batch: int,
    form: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    """Return one batch of rows of a verified file; runs as a Dask task."""
    try:
        with Folder(url).reading(rows.file) as file:
            reader = pa.ipc.open_file(pa.PythonFile(file, "r"))
            found = reader.get_batch(batch)
        found.validate(full=True)
        if found.num_rows != rows.batches[batch]:
            raise ValueError(f"{found.num_rows} rows instead of {rows.batches[batch]}")
        return form(pa.Table.from_batches([found]), *args)
    except FormatError:
        raise
    except (
        pa.ArrowException, ValueError, LookupError, TypeError, AttributeError, OSError,
    ) as error:  # fmt: skip
        # Arrow's own OSErrors, of what is no Arrow file, have no number.
        if isinstance(error, OSError) and error.errno and not isinstance(error, FileNotFoundError):
            raise
        raise FormatError(f"{url} is damaged: {rows.file} cannot be read ({error})") from error


def digest_of(data: bytes = b"") -> Any:
    """Return the hash object of `data`, which `update` extends.

    It makes the checksums of all files of this project.
    """
    return hashlib.blake2b(data, digest_size=16)


class _Digesting:
    """Writable file that counts and hashes what is written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = digest_of()
        self.nbytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.nbytes += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.nbytes
