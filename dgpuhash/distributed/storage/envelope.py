"""Manifests of saved things: plain JSON, with what it is, a version and a checksum. No pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from dgpuhash.distributed.storage.arrow_files import digest_of
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import DgpuhashError, ExistsError, FormatError

__all__ = [
    "MANIFEST",
    "body_digest",
    "holds_another",
    "loaded_from",
    "manifest_in",
    "opened",
    "required_manifest",
    "sealed",
]

Made = TypeVar("Made")

MANIFEST = "manifest.json"
LONGEST = 1 << 26
# How often a load begins anew as another program has saved to the same place.
TRIES = 20


def sealed(what: str, version: int, body: Any) -> bytes:
    """JSON of plain values that say `what` was saved, with a checksum of themselves."""
    whole = {
        "format": f"dgpuhash {what}",
        "version": version,
        "blake2b": body_digest(body),
        what: body,
    }
    return json.dumps(whole, indent=1).encode()


def opened(
    what: str,
    version: int,
    data: bytes,
    where: str,
    made_of: Callable[[Any], Made],
    *,
    oldest: int | None = None,
) -> Made:
    """``made_of(body)`` of what `sealed` wrote, in this version or one from the `oldest` on.

    Raises
    ------
    FormatError
        When it is foreign, newer than this program, or damaged.
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
    except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
        if isinstance(error, DgpuhashError) and not isinstance(error, FormatError):
            raise
        raise FormatError(f"{where} is damaged: {error}") from error


def required_manifest(folder: Folder, what: str, made_of: Callable[[bytes, str], Made]) -> Made:
    """``made_of(data, where)`` of the manifest in a folder that must have one.

    Raises
    ------
    FormatError
        When there is none, or it is damaged.
    """
    nbytes = folder.size(MANIFEST)
    if nbytes is None:
        raise FormatError(
            f"{folder.url} holds no saved {what} (no {MANIFEST}); pass what {what}.save wrote"
        )
    if nbytes > LONGEST:
        raise FormatError(f"{folder.url} is damaged: its manifest has {nbytes:,} bytes")
    return made_of(folder.read(MANIFEST), f"{folder.url}/{MANIFEST}")


def manifest_in(folder: Folder, what: str, made_of: Callable[[bytes, str], Made]) -> Made | None:
    """As `required_manifest`, of what is to be replaced.

    None when the folder is empty, or is not there.

    Raises
    ------
    ExistsError
        When there is something else, or it is damaged.
    """
    if folder.has(MANIFEST):
        try:
            return made_of(folder.read(MANIFEST), f"{folder.url}/{MANIFEST}")
        except FormatError as error:
            raise ExistsError(
                f"{folder.url} holds no saved {what} that can be replaced; choose another place "
                f"({error})"
            ) from error
    if folder.names() or (folder.exists() and not folder.system.isdir(folder.path)):
        raise ExistsError(f"{folder.url} exists and holds no saved {what}; choose another place")
    return None


def holds_another(folder: Folder, what: str) -> ExistsError:
    """The error of a folder with a save that a save of another `what` would replace."""
    return ExistsError(
        f"{folder.url} holds another saved {what}; choose another place, or replace it with "
        "overwrite=True"
    )


def loaded_from(folder: Folder, load: Callable[[], Made]) -> Made:
    """``load()``, which reads what is saved in a folder, and once more after each save meanwhile.

    A save removes the files that it replaces.

    Raises
    ------
    FormatError
        When there is nothing, or what there is, is damaged.
    """
    for _ in range(TRIES):
        before = _data_in(folder)
        try:
            return load()
        except FormatError:
            if _data_in(folder) == before:
                raise
    raise FormatError(
        f"{folder.url} was saved to again each of {TRIES} times that it was being loaded; load it "
        "when that has ended"
    )


def _data_in(folder: Folder) -> bytes | None:
    try:
        return folder.read(MANIFEST)
    except OSError:
        return None


def body_digest(body: Any) -> str:
    """The checksum of plain values."""
    return str(digest_of(json.dumps(body, sort_keys=True).encode()).hexdigest())
