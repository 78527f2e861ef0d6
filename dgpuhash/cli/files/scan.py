"""Find the rows of a few keys by scanning a saved index with Arrow alone, without loading it."""

from __future__ import annotations

import json
import mmap
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import FormatError
from dgpuhash.tables.arguments.checksums import digest_of, from_checked_json, table_of_text
from dgpuhash.tables.arguments.file_layout import interpreting

# Versions of the manifest whose files have the rows of the index as they are.
_OLDEST, _NEWEST = 2, 3
# Of more keys each is found faster in an index.
MOST_KEYS = 16
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ")


def find_rows(
    url: str, keys: Sequence[str], parts_of: Callable[[str, int], list[str]]
) -> tuple[pa.Table, list[bool]] | None:
    """Return the rows of some keys in order of the keys, and a mask of the keys found.

    ``parts_of(key, columns)`` are the parts of a key. None where it takes an index: of many keys,
    of keys that are not text, integers, truths or instants such as 2013-01-01T06:00:00Z, of files
    that are not local, of objects whose types differ from file to file, and where changes are in a
    log or rows are resolved as an index answers. A key that is none of its type gives None, too.

    Raises
    ------
    FormatError
        When a file is missing or damaged.
    """
    folder = Path(url)
    if len(keys) > MOST_KEYS or not (folder / "manifest.json").is_file():
        return None
    data = (folder / "manifest.json").read_bytes()
    try:
        if json.loads(data)["version"] not in range(_OLDEST, _NEWEST + 1):
            return None
    except (ValueError, TypeError, KeyError, RecursionError):
        # Whoever loads it says what is wrong.
        return None
    with interpreting(url):
        return _scan(folder, data, keys, parts_of)


def _scan(
    folder: Path, data: bytes, keys: Sequence[str], parts_of: Callable[[str, int], list[str]]
) -> tuple[pa.Table, list[bool]] | None:
    where = f"{folder}/manifest.json"
    body, specimen = from_checked_json("index", _NEWEST, data, where, _read_body, oldest=_OLDEST)
    names = body["encoder"]["names"]
    if body["logged"] or body["conflict"] != "error" or _labels(specimen) != specimen.column_names:
        return None
    types = [_plain(specimen.schema.field(name).type) for name in names]
    parts = [parts_of(key, len(names)) for key in keys]
    if any(len(each) != len(names) for each in parts):
        return None
    wanted = [[_value(*each) for each in zip(key, types, strict=True)] for key in parts]
    if any(value is None for key in wanted for value in key):
        return None
    tables = [_rows_in(folder, entry, specimen.schema) for entry in body["shards"]]
    try:
        schema = pa.unify_schemas([specimen.schema, *(table.schema for table in tables)])
    except pa.ArrowException:
        # Objects of one column have other types in another file.
        return None
    specimen, *tables = (table.cast(schema) for table in (specimen, *tables))
    found = [_matching([specimen, *tables], names, key) for key in wanted]
    # As an index answers, with the keys first.
    columns = dict.fromkeys([*names, *specimen.column_names])
    rows = pa.concat_tables([specimen, *found]).select(list(columns))
    return rows, [bool(each.num_rows) for each in found]


def _read_body(body: Any) -> tuple[dict[str, Any], pa.Table]:
    return body, table_of_text(body["specimen"])


def _labels(specimen: pa.Table) -> list[Any]:
    """Return the labels that the columns have in pandas."""
    return list(json.loads((specimen.schema.metadata or {})[b"dgpuhash"])["labels"])


def _plain(dtype: pa.DataType) -> pa.DataType:
    """Return the type of a column's values; for a dictionary, that of its values."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _value(text: str, dtype: pa.DataType) -> pa.Scalar | None:
    """Return the value that a text stands for, or None."""
    try:
        if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
            return _scalar(text).cast(dtype)
        if pa.types.is_integer(dtype) and _INTEGER.fullmatch(text):
            return _scalar(str(int(text))).cast(dtype)
        if pa.types.is_boolean(dtype) and text.lower() in ("true", "false"):
            return _scalar(text.lower()).cast(dtype)
        if pa.types.is_timestamp(dtype) and dtype.tz == "UTC" and _INSTANT.fullmatch(text):
            return _scalar(text).cast(dtype)
    except (pa.ArrowException, OverflowError, UnicodeError):
        pass
    return None


def _scalar(text: str) -> pa.Scalar:
    """Return a text as an Arrow scalar, without `pyarrow.scalar`, which imports pandas."""
    data = text.encode()
    offsets = struct.pack("=ii", 0, len(data))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def _rows_in(folder: Path, entry: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """Return the rows of a file, whose checksum is verified, in mapped memory."""
    path = folder / str(entry["file"])
    try:
        if path.parent != folder or path.stat().st_size != entry["nbytes"]:
            raise ValueError("it has another size")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if digest_of(memoryview(mapped)).hex() != entry["blake2b"]:
            raise ValueError("its checksum is wrong")
        table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
        if not _fits(table.schema, schema) or table.num_rows != sum(entry["batches"]):
            raise ValueError("it has other columns or rows")
        return table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FormatError(
            f"{folder} is damaged: {path.name} cannot be read ({error}); restore it from a backup, "
            "or save again"
        ) from error


def _fits(schema: pa.Schema, specimen: pa.Schema) -> bool:
    """Return whether a file has the columns of a specimen; object columns match any type."""
    return schema.names == specimen.names and all(
        pa.types.is_null(known.type) or own.type == known.type
        for own, known in zip(schema, specimen, strict=True)
    )


def _matching(tables: Sequence[pa.Table], names: Sequence[str], key: Sequence[Any]) -> pa.Table:
    """Return the rows of a key."""
    found = []
    for table in tables:
        for name, value in zip(names, key, strict=True):
            column = table.column(name)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            table = table.filter(pc.equal(column, value))
        found.append(table)
    return pa.concat_tables(found)
