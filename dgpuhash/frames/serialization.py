"""The saved form of an index: its rows as an Arrow stream, a description, checksums."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from dgpuhash.errors import FormatError
from dgpuhash.frames.arrow_stream import frame_from_bytes, frame_to_bytes
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.tables.serialization import check_absent, read_file, write_file

__all__ = ["read_index", "write_index"]

KIND = "frame_index"


def write_index(
    path: str | os.PathLike[str],
    frame: Callable[[], Any],
    encoder: KeyEncoder,
    unique: bool | None,
    *,
    overwrite: bool,
) -> None:
    """Write the rows of `frame()` and how they are indexed to one file, whole or not at all."""
    check_absent(path, overwrite=overwrite)
    rows = frame()
    header = {"kind": KIND, "encoder": encoder.to_json(), "unique": unique, "rows": len(rows)}
    buffers = {"rows": np.frombuffer(frame_to_bytes(rows), np.uint8)}
    write_file(path, header, buffers, overwrite=overwrite)


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
        raise FormatError(f"{os.fspath(path)} holds no frame index; use dgpuhash.load for any kind")
    encoder = KeyEncoder.from_json(header.get("encoder", {}))
    try:
        rows = frame_from_bytes(buffers["rows"], library)
    except FormatError as error:
        raise FormatError(
            f"{os.fspath(path)} is damaged: {error}; restore it from a backup or save it again"
        ) from error
    missing = [name for name in encoder.names if name not in list(rows.columns)]
    if len(rows) != header.get("rows") or missing:
        raise FormatError(
            f"{os.fspath(path)} is damaged: {len(rows):,} rows of {header.get('rows')!r}, and key "
            f"columns {missing!r} are missing; save the index again"
        )
    return rows, encoder.read_as(rows.iloc[:0]), header.get("unique")
