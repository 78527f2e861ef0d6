"""JSON of plain values with a format, a version and a checksum: the manifests of saves."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from dgpuhash.errors import DgpuhashError, FormatError
from dgpuhash.tables.arguments.checksums import digest_of

Made = TypeVar("Made")


def to_checked_json(what: str, version: int, body: Any) -> bytes:
    """Return JSON of `body`, with format, version and checksum.

    `body` has plain values only, and `what` says what was saved.
    """
    whole = {
        "format": f"dgpuhash {what}",
        "version": version,
        "blake2b": body_digest(body),
        what: body,
    }
    return json.dumps(whole, indent=1).encode()


def from_checked_json(
    what: str,
    version: int,
    data: bytes,
    where: str,
    made_of: Callable[[Any], Made],
    *,
    oldest: int | None = None,
) -> Made:
    """Return ``made_of(body)`` of the JSON that `to_checked_json` wrote.

    Its version is `version`, or any from `oldest` on.

    Raises
    ------
    FormatError
        When the JSON is foreign, newer than this program, or damaged.
    """
    try:
        whole = json.loads(data)
        found = whole["version"] if whole["format"] == f"dgpuhash {what}" else None
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if found is None:
        raise FormatError(
            f"{where} is foreign or damaged: no manifest of a saved {what}; pass the directory "
            f"that {what}.save wrote"
        )
    first = version if oldest is None else oldest
    if found not in range(first, version + 1):
        read = f"version {version}" if first == version else f"versions {first} to {version}"
        raise FormatError(
            f"{where} has format version {found} and this dgpuhash reads {read}; "
            "load it with the release that saved it"
        )
    try:
        body = whole[what]
        if body_digest(body) != whole["blake2b"]:
            raise ValueError("its checksum is wrong")
        return made_of(body)
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        if isinstance(error, DgpuhashError) and not isinstance(error, FormatError):
            raise
        raise FormatError(f"{where} is damaged: {error}") from error


def body_digest(body: Any) -> str:
    """Return the checksum of plain values."""
    return digest_of(json.dumps(body, sort_keys=True).encode()).hex()


def text_of_table(table: pa.Table) -> str:
    """Return an Arrow table without rows as text: its columns, types and categories."""
    sink = pa.BufferOutputStream()
    columns = [column.combine_chunks() for column in table.columns]
    with pa.ipc.new_stream(sink, table.schema) as writer:
        # A batch, even without rows, carries the categories, which the schema does not.
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def table_of_text(text: str) -> pa.Table:
    """Return the table that `text_of_table` wrote.

    Raises ValueError for another text.
    """
    try:
        stream = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text, validate=True)))
        table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        # Arrow raises OSError for a stream that is cut off, too.
        raise ValueError(f"its specimen is no Arrow stream ({error})") from error
    if table.num_rows:
        raise ValueError("its specimen has rows")
    return table
