"""Save an index as one file: JSON header, Arrow stream of rows, checksums."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.errors import FormatError
from dgpuhash.frames.dataframes import frames_named, frames_of
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.keys.table import KeyTableMethod
from dgpuhash.tables.serialization import check_absent, read_file, write_file


def frame_to_bytes(frame: Any) -> memoryview:
    """Return a pandas or cuDF frame as an Arrow IPC stream, without its index.

    Raises
    ------
    UnsupportedError
        When a column cannot be written as Arrow.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"k": pd.Categorical(["a", None])})
    >>> frame_from_bytes(frame_to_bytes(frame)).equals(frame)
    True
    """
    table = frames_of(frame).to_arrow(frame).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        if len(table):
            writer.write_table(table)
        else:
            # An empty table writes no batch, but categories are stored in batches.
            arrays = [_first_chunk(column) for column in table.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=table.schema))
    return memoryview(sink.getvalue())


def frame_from_bytes(data: Any, library: str = "pandas") -> Any:
    """Return the frame that `frame_to_bytes` wrote, as a frame of `library`.

    Raises
    ------
    FormatError
        When `data` is not an Arrow stream of rows.
    """
    frames = frames_named(library)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        return frames.from_arrow(table)
    except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise FormatError(f"not an Arrow stream of rows ({error})") from error


def _first_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


KIND = "frame_index"


def write_index(
    path: str | os.PathLike[str],
    frame: Callable[[], Any],
    encoder: KeyEncoder,
    unique: bool | None,
    method: KeyTableMethod,
    *,
    overwrite: bool,
) -> None:
    """Write rows and their key encoding to one file, atomically.

    `frame` is called for the rows once `path` is known to be free.
    """
    check_absent(path, overwrite=overwrite)
    rows = frame()
    header = {"kind": KIND, "encoder": encoder.to_json(), "unique": unique, "rows": len(rows)}
    header |= method.to_json()
    buffers = {"rows": np.frombuffer(frame_to_bytes(rows), np.uint8)}
    write_file(path, header, buffers, overwrite=overwrite)


def read_index(path: str | os.PathLike[str], library: str = "pandas") -> tuple[Any, dict[str, Any]]:
    """Return the rows, encoder, uniqueness and method of a file from `write_index`.

    Raises
    ------
    FormatError
        When the file is foreign, truncated or damaged, or holds no frame index.
    """
    header, buffers = read_file(path)
    if header.get("kind") != KIND or "rows" not in buffers:
        raise FormatError(f"{os.fspath(path)} has no frame index; use dgpuhash.load for any kind")
    encoder = KeyEncoder.from_json(header.get("encoder", {}))
    try:
        rows = frame_from_bytes(buffers["rows"], library)
    except FormatError as error:
        raise FormatError(
            f"{os.fspath(path)} is damaged: {error}; restore it from a backup or save it again"
        ) from error
    unique = header.get("unique")
    missing = [name for name in encoder.names if name not in list(rows.columns)]
    if len(rows) != header.get("rows") or missing or not isinstance(unique, bool | None):
        raise FormatError(
            f"{os.fspath(path)} is damaged: {len(rows):,} rows of {header.get('rows')!r}, and key "
            f"columns {missing!r} are missing, unique={unique!r}; save the index again"
        )
    method = KeyTableMethod.from_json(header, os.fspath(path))
    encoder = encoder.read_as(rows.iloc[:0])
    return rows, {"encoder": encoder, "unique": unique, "method": method}
