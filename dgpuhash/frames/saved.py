"""The saved form of an index: its rows as an Arrow stream, a description, checksums."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.errors import FormatError
from dgpuhash.frames.dataframes import frames_named, frames_of
from dgpuhash.frames.keys import KeyEncoder
from dgpuhash.tables.persist import read_file, write_file

__all__ = ["read_index", "write_index"]

KIND = "frame_index"


def write_index(
    path: str | os.PathLike[str], rows: Any, encoder: KeyEncoder, unique: bool | None
) -> None:
    """Write rows and how they are indexed to one file, whole or not at all."""
    table = frames_of(rows).to_arrow(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    header = {"kind": KIND, "encoder": encoder.to_json(), "unique": unique, "rows": len(rows)}
    write_file(path, header, {"rows": np.frombuffer(sink.getvalue(), np.uint8)})


def read_index(
    path: str | os.PathLike[str], library: str = "pandas"
) -> tuple[Any, KeyEncoder, bool | None]:
    """The rows, the encoder and the uniqueness that `write_index` was given.

    Raises
    ------
    FormatError
        When the file is foreign, truncated or damaged, or holds something else.
    """
    header, buffers = read_file(path)
    if header.get("kind") != KIND or "rows" not in buffers:
        raise FormatError(f"{os.fspath(path)} holds no saved index; dgpuhash.load reads tables")
    encoder = KeyEncoder.from_json(header.get("encoder", {}))
    try:
        table = pa.ipc.open_stream(pa.py_buffer(buffers["rows"])).read_all()
        table.validate(full=True)
        rows = frames_named(library).from_arrow(table)
    except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise FormatError(
            f"{os.fspath(path)} is damaged: its rows cannot be read ({error}); save the index again"
        ) from error
    missing = [name for name in encoder.names if name not in list(rows.columns)]
    if len(rows) != header.get("rows") or missing:
        raise FormatError(
            f"{os.fspath(path)} is damaged: {len(rows):,} rows of {header.get('rows')!r}, and key "
            f"columns {missing!r} are missing; save the index again"
        )
    return rows, encoder, header.get("unique")
