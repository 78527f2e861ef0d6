"""Manifest of a saved index: JSON, verified before any file is read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from dgpuhash import config
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, SavedRevision
from dgpuhash.distributed.storage.arrow_files import REMEDY, RowsFile, check_sizes
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import ExistsError, FormatError
from dgpuhash.frames import KeyEncoder, frames_named, frames_of
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.tables.arguments.checksums import (
    from_checked_json,
    table_of_text,
    text_of_table,
    to_checked_json,
)

Made = TypeVar("Made")

MANIFEST = "manifest.json"
LONGEST = 1 << 26


class SavedShards(ABC):
    """Base of manifests: find a save in a folder, and check whether another may replace it.

    Attributes
    ----------
    what : str
        What was saved, as in messages.
    versions : tuple of int
        Oldest and newest version of the format that is read.
    uid : str
        Identifier of the index or table that was saved.
    shards : tuple of RowsFile
        A file for each shard.
    """

    __slots__ = ()
    what: ClassVar[str]
    versions: ClassVar[tuple[int, int]]
    uid: str
    shards: tuple[RowsFile, ...]

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Return the manifest that `to_bytes` wrote.

        Raises
        ------
        FormatError
            When the manifest is foreign, newer than this program, or damaged.
        """
        oldest, newest = cls.versions
        return from_checked_json(cls.what, newest, data, where, cls._from_body, oldest=oldest)

    @classmethod
    @abstractmethod
    def _from_body(cls, body: dict[str, Any]) -> Self:
        """Return the manifest from a body with a verified checksum."""

    @classmethod
    def found_in(cls, folder: Folder) -> Self:
        """Return the manifest in a folder, and check the sizes of its files.

        Raises
        ------
        FormatError
            When the folder holds no such save, or a damaged one.
        """
        nbytes = folder.size(MANIFEST)
        if nbytes is None:
            raise FormatError(
                f"{folder.url} contains no saved {cls.what} (no {MANIFEST}); pass the folder "
                f"that {cls.what}.save wrote"
            )
        if nbytes > LONGEST:
            raise FormatError(f"{folder.url} is damaged: its manifest has {nbytes:,} bytes")
        found = cls.read_in(folder)
        check_sizes(folder, found.shards)
        return found

    @classmethod
    def read_in(cls, folder: Folder) -> Self:
        """Return the manifest in a folder without checking its files."""
        return cls.from_bytes(folder.read(MANIFEST), f"{folder.url}/{MANIFEST}")

    @classmethod
    def replaced_in(cls, folder: Folder) -> Self | None:
        """Return the manifest that a save will replace, or None.

        None when the folder is empty or does not exist.

        Raises
        ------
        ExistsError
            When the folder holds something else, or the manifest is damaged.
        """
        if folder.has(MANIFEST):
            try:
                return cls.read_in(folder)
            except FormatError as error:
                raise ExistsError(
                    f"{folder.url} holds no saved {cls.what} that can be replaced; choose another "
                    f"place ({error})"
                ) from error
        if folder.names() or (folder.exists() and not folder.system.isdir(folder.path)):
            raise ExistsError(
                f"{folder.url} exists and holds no saved {cls.what}; choose another place"
            )
        return None

    def check_replaceable(
        self, folder: Folder, uid: str | None, saved: SavedRevision | None, *, overwrite: bool
    ) -> None:
        """Raise ExistsError if the save belongs to another index than `uid`, unless `overwrite`.

        `saved`: the last save of `uid`, or the one that it was loaded from.
        """
        own = {uid}
        if saved is not None and saved.url == folder.url:
            own.add(saved.uid)
        if self.uid not in own and not overwrite:
            raise ExistsError(
                f"{folder.url} holds another saved {self.what}; choose another place, or replace "
                "it with overwrite=True"
            )


def load_with_retry(folder: Folder, load: Callable[[], Made]) -> Made:
    """Return ``load()``, repeated if a save replaces the folder meanwhile.

    `load` reads a save in the folder, and a save removes the files that it replaces. What killed
    saves left is removed first.

    Raises
    ------
    FormatError
        When the folder holds no save, or a damaged one.
    """
    folder.sweep(MANIFEST)
    tries = config.count("retries.load")
    for _ in range(tries):
        before = _data_in(folder)
        try:
            return load()
        except FormatError:
            if _data_in(folder) == before:
                raise
    raise FormatError(
        f"{folder.url} was saved to again each of {tries} times that it was being loaded; load "
        f"it after the saves have ended"
    )


def _data_in(folder: Folder) -> bytes | None:
    try:
        return folder.read(MANIFEST)
    except OSError:
        return None


VERSION = 3
# Version 2 has no seeds in its encoder, since all indexes had the same ones.
OLDEST = 2
# Version 4 holds states of groups, which earlier programs would take for rows.
WITH_GROUPS = 4


@dataclass(frozen=True)
class Manifest(SavedShards):
    """Description of a saved index.

    Attributes
    ----------
    name : str
        Name of the index that was saved.
    encoder : KeyEncoder
    specimen : pyarrow.Table
        Empty, with the columns, types and categories of the stored rows.
    unique : bool or None
    placement : Placement
    conflict : Conflict
    shards : tuple of RowsFile
    owned : bool
        Whether each file has the rows of the keys that its shard owns.
    uid : str
        Identifier of the index that was saved here, or that writes its log here.
    revision : int
        Revision of the rows in `shards`.
    logged : bool
        Whether later changes are in a log in the same folder.
    method : KeyTableMethod
    groups : Aggregation or None
        What states of groups aggregate, where these are in the shards.
    """

    what = "index"
    versions = (OLDEST, WITH_GROUPS)

    name: str
    encoder: KeyEncoder
    specimen: pa.Table
    unique: bool | None
    placement: Placement
    conflict: Conflict
    shards: tuple[RowsFile, ...]
    owned: bool
    uid: str
    revision: int
    logged: bool
    method: KeyTableMethod = AUTO
    groups: Aggregation | None = None

    @classmethod
    def of(cls, descriptor: Descriptor, shards: Sequence[RowsFile], *, logged: bool) -> Manifest:
        """Return the manifest of an index whose shards were written."""
        groups = descriptor.groups
        meta, encoder = descriptor.meta, descriptor.encoder
        if groups is not None:
            meta = groups.saved_results
            encoder = encoder.read_as(meta)
        return cls(
            descriptor.name,
            encoder,
            frames_of(meta).to_arrow(meta),
            descriptor.unique,
            descriptor.placement,
            descriptor.conflict,
            tuple(shards),
            descriptor.owned,
            descriptor.uid,
            descriptor.revision,
            logged,
            descriptor.method,
            groups,
        )

    def owned_by(self, uid: str) -> Manifest:
        """Return a copy for another index, which continues the log."""
        return replace(self, uid=uid, logged=True)

    def meta(self, library: str) -> Any:
        """Return an empty frame with the columns and dtypes of the stored rows."""
        return frames_named(library).from_arrow(self.specimen)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, with its checksum."""
        body = {
            "name": self.name,
            "encoder": self.encoder.to_json(),
            "specimen": text_of_table(self.specimen),
            "unique": self.unique,
            "placement": self.placement.value,
            "conflict": self.conflict.value,
            "shards": [asdict(shard) for shard in self.shards],
            "owned": self.owned,
            "uid": self.uid,
            "revision": self.revision,
            "logged": self.logged,
            **self.method.to_json(),
        }
        if self.groups is None:
            return to_checked_json(self.what, VERSION, body)
        source = frames_of(self.groups.source).to_arrow(self.groups.source)
        body["groups"] = {"source": text_of_table(source), **self.groups.to_json()}
        return to_checked_json(self.what, WITH_GROUPS, body)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Return the manifest that `to_bytes` wrote; see `SavedShards.from_bytes`."""
        found = super().from_bytes(data, where)
        if found.groups is None and json.loads(data)["version"] == WITH_GROUPS:
            raise FormatError(f"{where} is damaged: it does not describe its groups; {REMEDY}")
        return found

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> Self:
        kinds = {"name": str, "uid": str, "revision": int, "owned": bool, "logged": bool}
        right = all(type(body[field]) is kind for field, kind in kinds.items())
        if not right or body["unique"] not in (True, False, None):
            raise ValueError("it is malformed")
        return cls(
            body["name"],
            KeyEncoder.from_json(body["encoder"]),
            table_of_text(body["specimen"]),
            body["unique"],
            Placement(body["placement"]),
            Conflict(body["conflict"]),
            tuple(RowsFile.from_json(entry) for entry in body["shards"]),
            body["owned"],
            body["uid"],
            body["revision"],
            body["logged"],
            KeyTableMethod.from_json(body, "its method"),
            _groups_in(body.get("groups")),
        )


def _groups_in(body: dict[str, Any] | None) -> Aggregation | None:
    if body is None:
        return None
    source = frames_named("pandas").from_arrow(table_of_text(body["source"]))
    return Aggregation.from_json(source, body)
