"""Frames as bytes and back, for files: an Arrow IPC stream, never pickle."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dgpuhash.errors import FormatError
from dgpuhash.frames.dataframes import frames_named, frames_of

__all__ = ["frame_from_bytes", "frame_to_bytes"]


def frame_to_bytes(frame: Any) -> memoryview:
    """A pandas or cuDF frame as an Arrow IPC stream; the index is not kept.

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
            # An empty table writes no batch, and categories travel with batches.
            arrays = [_first_chunk(column) for column in table.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=table.schema))
    return memoryview(sink.getvalue())


def frame_from_bytes(data: Any, library: str = "pandas") -> Any:
    """The frame that `frame_to_bytes` was given, as a frame of `library`.

    Raises
    ------
    FormatError
        When `data` is no such stream.
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
