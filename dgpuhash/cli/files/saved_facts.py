"""Describe a saved index or table from its manifest or header, without reading rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dgpuhash.cli.files.paths import filesystem_of
from dgpuhash.errors import FormatError
from dgpuhash.tables.arguments.checksums import from_checked_json, table_of_text
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.serialization import header_of
from dgpuhash.tables.stats import format_bytes

_RECORD = re.compile(r"log-\d{12}\.record")
# The newest versions that there are, as the modules that write them say.
_NEWEST = {"index": 4, "table": 2}


def facts_of(url: str) -> list[tuple[str, str]]:
    """Return the keys, columns, rows and bytes of a saved index or table, as pairs of text.

    Raises
    ------
    FormatError
        When it is no save of dgpuhash, or a damaged one.
    FileNotFoundError
        When there is nothing.
    """
    filesystem, path = filesystem_of(url)
    manifest = f"{path.rstrip('/')}/manifest.json"
    if filesystem.exists(manifest):
        names = [str(name).rpartition("/")[2] for name in filesystem.ls(path, detail=False)]
        return list(_of_folder(filesystem.cat_file(manifest), f"{url}/manifest.json", names))
    if filesystem.isdir(path):
        raise FormatError(
            f"{url} contains no saved index or table (no manifest.json); pass a saved folder "
            "or file"
        )
    if not filesystem.exists(path):
        raise FileNotFoundError(f"{url}: no such save; check the path")
    header = header_of(url)
    with interpreting(url):
        return [*_of_header(header), ("bytes", format_bytes(filesystem.size(path)))]


def _of_folder(data: bytes, where: str, names: list[str]) -> Iterator[tuple[str, str]]:
    try:
        said = json.loads(data)
        what, version = str(said["format"]).removeprefix("dgpuhash "), said["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        what, version = "index", None
    if what not in _NEWEST:
        raise FormatError(
            f"{where} was not saved by this library: it is of {what!r}; pass a saved folder or file"
        )
    facts = _of_index if what == "index" else _of_table
    yield "what", f"distributed {what}, form {version}"
    yield from from_checked_json(what, _NEWEST[what], data, where, facts, oldest=1)
    if logged := sum(bool(_RECORD.fullmatch(name)) for name in names):
        yield "log", f"{logged:,} changes, which are not among the rows above"


def _of_index(body: Any) -> list[tuple[str, str]]:
    specimen = table_of_text(body["specimen"])
    states = " of states of groups" if body.get("groups") else ""
    unique = {True: "yes", False: "no", None: "not said"}[body["unique"]]
    return [
        ("name", body["name"]),
        ("keys", ", ".join(map(str, body["encoder"]["names"]))),
        ("columns", ", ".join(f"{field.name}: {_type_of(field)}" for field in specimen.schema)),
        ("unique", unique),
        ("placement", body["placement"]),
        ("conflict", body["conflict"]),
        *_of_parts(body["shards"], states),
    ]


def _type_of(field: Any) -> str:
    """Return the type of a column; those of Python's objects are in the files alone."""
    return "object" if str(field.type) == "null" else str(field.type)


def _of_table(body: Any) -> list[tuple[str, str]]:
    return [
        *_of_spec(json.loads(body["spec"])),
        ("entries", f"{body['size']:,}"),
        *_of_parts(body["parts"], ""),
    ]


def _of_parts(parts: list[dict[str, Any]], states: str) -> list[tuple[str, str]]:
    rows = sum(sum(part["batches"]) for part in parts)
    size = format_bytes(sum(part["nbytes"] for part in parts))
    return [
        ("rows", f"{rows:,}{states} in {len(parts)} file{'s' * (len(parts) != 1)}"),
        ("bytes", size),
    ]


def _of_header(header: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "what", str(header.get("kind", "table")).replace("_", " ")
    for name, value in header.items():
        if name == "spec":
            yield from _of_spec(json.loads(value))
        elif name == "encoder":
            yield "keys", ", ".join(map(str, value["names"]))
        elif name != "kind" and value is not None:
            yield name, f"{value:,}" if type(value) is int else str(value)


def _of_spec(spec: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in spec.items() if value not in (None, [])]
