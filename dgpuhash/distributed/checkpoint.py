"""Saved indexes: a directory with one Arrow file for each shard, and a manifest. No pickle."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import fsspec
import pyarrow as pa
from distributed import Client
from fsspec.implementations.local import LocalFileSystem

from dgpuhash.distributed.descriptor import Descriptor
from dgpuhash.distributed.manifest import MANIFEST, Manifest, SavedShard
from dgpuhash.distributed.phase import on_workers
from dgpuhash.distributed.plugin import ShardHost
from dgpuhash.errors import FormatError
from dgpuhash.frames import frames_named, frames_of

__all__ = ["absolute", "read_manifest", "save", "saved_partitions"]

BATCH_NBYTES = 32 << 20
_PIECE = 1 << 22


def save(client: Client, descriptor: Descriptor, url: str) -> str:
    """Write all shards and then the manifest, which makes them a saved index; its full URL.

    A new local directory appears under its name when it is complete. Elsewhere, and where `url`
    holds a saved index already, files with new names are written beside the old ones, the
    manifest is replaced, and the old ones go.

    Raises
    ------
    FormatError
        When there is something else under `url`.
    OSError
        When it cannot be written; what was there is as it was.
    """
    system, target = fsspec.core.url_to_fs(url)
    replaced = _replaced(system, target)
    token = uuid.uuid4().hex[:12]
    local = isinstance(system, LocalFileSystem)
    folder = f"{target}.{token}.part" if local and not replaced else target
    names = [f"shard-{part:05}-{token}.arrow" for part in range(len(descriptor.whole))]
    system.makedirs(folder, exist_ok=True)
    try:
        shards = on_workers(
            client,
            descriptor.whole,
            write_shard,
            descriptor,
            system.unstrip_protocol(folder),
            names,
        )
        manifest = Manifest.of(descriptor, shards, frames_of(descriptor.meta))
        if replaced:
            # Another index may have been saved here meanwhile.
            replaced = _replaced(system, target)
        _write_whole(system, f"{folder}/{MANIFEST}", manifest.to_bytes())
        if folder != target:
            # Replaces an empty directory, and fails on one that was filled meanwhile.
            Path(folder).rename(target)
    except BaseException:
        if folder != target:
            system.rm(folder, recursive=True)
        else:
            _remove(system, folder, names)
        raise
    _remove(system, target, replaced)
    return system.unstrip_protocol(target)


def absolute(url: str) -> str:
    """`url` as workers with other working folders understand it."""
    system, target = fsspec.core.url_to_fs(url)
    return system.unstrip_protocol(target) if isinstance(system, LocalFileSystem) else url


def read_manifest(url: str) -> Manifest:
    """What is saved under `url`; sizes of all files are compared with what it claims.

    Raises
    ------
    FormatError
        When that is no saved index, or a damaged one.
    """
    system, target = fsspec.core.url_to_fs(url)
    name = f"{target}/{MANIFEST}"
    if not system.isfile(name):
        raise FormatError(f"{url} holds no saved index (no {MANIFEST}); pass what index.save wrote")
    if system.size(name) > Manifest.LONGEST:
        raise FormatError(f"{url} is damaged: its manifest has {system.size(name):,} bytes")
    manifest = Manifest.from_bytes(system.cat_file(name), name)
    for shard in manifest.shards:
        file = f"{target}/{shard.file}"
        there = system.size(file) if system.isfile(file) else None
        if there != shard.nbytes:
            raise FormatError(
                f"{url} is damaged: {shard.file} has {there} of {shard.nbytes} bytes; restore it "
                "from a backup, or save the index again"
            )
    return manifest


def saved_partitions(url: str, shards: Sequence[SavedShard], library: str) -> list[Any]:
    """The saved rows as Delayed frames, read after their file's checksum has been found right."""
    check, read = dask.delayed(check_shard, pure=False), dask.delayed(read_batch, pure=False)
    found = []
    for shard in shards:
        checked = check(url, shard)
        found += [read(checked, url, shard, batch, library) for batch in range(len(shard.batches))]
    return found


def write_shard(
    host: ShardHost, descriptor: Descriptor, folder: str, names: Sequence[str]
) -> SavedShard:
    """Runs on a worker: writes its shard."""
    part = descriptor.workers.index(host.worker.address)
    shard = descriptor.shards[part]
    frame = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation).frame()
    table = frames_of(frame).to_arrow(frame).combine_chunks().unify_dictionaries()
    step = max(1, len(frame) * BATCH_NBYTES // max(1, table.nbytes))
    batches = table.to_batches(max_chunksize=step)
    system, path = fsspec.core.url_to_fs(f"{folder}/{names[part]}")
    with system.open(path, "wb") as file:
        sink = _Digesting(file)
        with pa.ipc.new_file(pa.PythonFile(sink, "w"), table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        if isinstance(system, LocalFileSystem):
            os.fsync(file.fileno())
    rows = tuple(batch.num_rows for batch in batches)
    return SavedShard(names[part], sink.nbytes, sink.digest.hexdigest(), rows)


def check_shard(url: str, shard: SavedShard) -> None:
    """Runs as a Dask task: compares a file with its checksum."""
    digest = _Digesting.new()
    with fsspec.open(f"{url.rstrip('/')}/{shard.file}", "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    if digest.hexdigest() != shard.blake2b:
        raise FormatError(
            f"{url} is damaged: the checksum of {shard.file} is wrong; restore it from a backup, "
            "or save the index again"
        )


def read_batch(checked: None, url: str, shard: SavedShard, batch: int, library: str) -> Any:
    """Runs as a Dask task: one batch of rows of a checked file."""
    try:
        with fsspec.open(f"{url.rstrip('/')}/{shard.file}", "rb") as file:
            reader = pa.ipc.open_file(pa.PythonFile(file, "r"))
            rows = reader.get_batch(batch)
        rows.validate(full=True)
        if rows.num_rows != shard.batches[batch]:
            raise ValueError(f"{rows.num_rows} rows instead of {shard.batches[batch]}")
        return frames_named(library).from_arrow(pa.Table.from_batches([rows]))
    except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError) as error:
        raise FormatError(f"{url} is damaged: {shard.file} cannot be read ({error})") from error


class _Digesting:
    """A file that counts and digests what is written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = self.new()
        self.nbytes = 0
        self.closed = False

    @staticmethod
    def new() -> Any:
        return hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.nbytes += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.nbytes


def _replaced(system: Any, target: str) -> list[str]:
    """The files of the saved index under `target`, which a new one takes the place of."""
    if not system.exists(target) or (system.isdir(target) and not system.ls(target)):
        return []
    name = f"{target}/{MANIFEST}"
    if not system.isfile(name):
        raise FormatError(f"{target} exists and holds no saved index; choose another place")
    return [shard.file for shard in Manifest.from_bytes(system.cat_file(name), name).shards]


def _write_whole(system: Any, path: str, data: bytes) -> None:
    part = f"{path}.{uuid.uuid4().hex}.part"
    try:
        with system.open(part, "wb") as file:
            file.write(data)
            file.flush()
            if isinstance(system, LocalFileSystem):
                os.fsync(file.fileno())
        if isinstance(system, LocalFileSystem):
            Path(part).replace(path)
        else:
            system.mv(part, path)
    except BaseException:
        if system.exists(part):
            system.rm_file(part)
        raise


def _remove(system: Any, folder: str, names: Sequence[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")
