"""Saved indexes: a folder with one Arrow file for each shard, and a manifest. No pickle."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distributed import Client

from dgpuhash.distributed.cluster.survivors import seen_through
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Descriptor, Saved
from dgpuhash.distributed.storage.arrow_files import RowsFile, check_shared, check_sizes, write_rows
from dgpuhash.distributed.storage.change_log import (
    Continued,
    Outdated,
    Record,
    fence,
    gone_on,
    last_revision,
    records,
    replaced_by,
    take_over,
)
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import (
    MANIFEST,
    WHAT,
    Manifest,
    holds_another,
    manifest_in,
    required_manifest,
)
from dgpuhash.errors import ExistsError, FormatError
from dgpuhash.frames import frames_of

if TYPE_CHECKING:
    from dgpuhash.distributed.shards.plugin import ShardHost

__all__ = [
    "Batch",
    "batches_of",
    "begin",
    "changes_in",
    "check_free",
    "check_target",
    "fenced",
    "forget",
    "read_manifest",
    "save",
]


@dataclass(frozen=True, slots=True)
class Batch:
    """Saved rows of one verb, by the part that had them; None where there were none.

    `owned`: whether each part had the rows of the keys that it owns.
    """

    verb: str
    files: tuple[RowsFile | None, ...]
    owned: bool


def fenced(descriptor: Descriptor, url: str, outdated: Outdated) -> Descriptor:
    """What `save` is given; where it makes the log short, the next revision, with its record.

    A change that nobody saw, as its client died, gives its place to that, and is not seen later.

    Raises
    ------
    IndexLost
        When another index goes on with the log, or another client has changed this one.
    """
    folder = Folder(url)
    if folder.url != descriptor.log or not folder.has(MANIFEST):
        return descriptor
    end = replace(descriptor, revision=descriptor.revision + 1)
    fence(folder, end, outdated)
    return end


def save(client: Client, descriptor: Descriptor, url: str, *, overwrite: bool) -> Descriptor:
    """Write all shards and then the manifest, which makes them a saved index.

    A new local folder appears under its name when it is complete. Elsewhere, and where `url`
    holds a saved index already, files with new names are written beside the old ones, the
    manifest is replaced, and the old ones go; in the folder of the index's log, its records too.
    So does what a client that was killed while it saved this index there has left.

    Returns
    -------
    Descriptor
        Which knows of the save.

    Raises
    ------
    ExistsError
        When there is something else under `url`, as the log of another index, or a save of another
        one without `overwrite`.
    IndexLost
        When another index goes on with the log there, or a worker is lost.
    OSError
        When it cannot be written; what was there is as it was.
    """
    folder, revision = Folder(url), descriptor.revision
    logged = folder.url == descriptor.log
    there = _replaced_in(folder, descriptor, overwrite)
    written, replaced = _write(client, descriptor, folder, there, None, logged, overwrite)
    names = folder.names()
    if logged and last_revision(names) > revision:
        # Another index may put the manifest back that it has read.
        raise gone_on(folder)
    # What clients that were killed left behind goes, too; other indexes may be saved here just now.
    mark = "" if logged else _mark(descriptor)
    left = f"shard-{mark}", f"{MANIFEST}.{mark}"
    stale = {rows.file for rows in replaced}
    stale |= {name for name in names if name.startswith(left)}
    if logged:
        stale |= replaced_by(names, revision)
    folder.remove(stale - {rows.file for rows in written})
    folder.clear_parts(_mark(descriptor))
    return replace(descriptor, saved=Saved(folder.url, descriptor.uid, revision))


def begin(
    client: Client, descriptor: Descriptor, change: Change, continued: Continued | None
) -> None:
    """Let the index's log begin with what the shards have prepared, or go on after `continued`."""
    if descriptor.log is None:
        return
    if continued is not None:
        take_over(Folder(descriptor.log), continued, descriptor.uid, descriptor.revision)
        return
    check_free(descriptor)
    _write(client, descriptor, Folder(descriptor.log), None, change, logged=True)


def check_free(descriptor: Descriptor) -> None:
    """Raise ExistsError when something is where the index's log shall begin."""
    if descriptor.log is None:
        return
    folder = Folder(descriptor.log)
    if _manifest_in(folder) is not None:
        raise ExistsError(
            f"{folder.url} holds a saved index; choose another place for the log, or go on with "
            "that index by DistributedIndex.load(url, durable=url)"
        )


def check_target(url: str, *, overwrite: bool) -> None:
    """Refuse a place to which a new index could not be saved, before there is one.

    Raises
    ------
    ExistsError
        As for `save`.
    """
    folder = Folder(url)
    there = _manifest_in(folder)
    if there is not None:
        _check_replaceable(folder, there, frozenset(), overwrite)


def forget(descriptor: Descriptor) -> None:
    """Remove what `begin` wrote for a new index."""
    if descriptor.log is None:
        return
    folder = Folder(descriptor.log)
    manifest = _manifest_in(folder)
    if manifest is not None and manifest.uid == descriptor.uid:
        folder.remove([MANIFEST, *(rows.file for rows in manifest.shards)])


def read_manifest(folder: Folder) -> Manifest:
    """What is saved in a folder; sizes of all files are compared with what it claims.

    Raises
    ------
    FormatError
        When that is no saved index, or a damaged one.
    """
    manifest = required_manifest(folder, WHAT, Manifest.from_bytes)
    check_sizes(folder, manifest.shards)
    return manifest


def changes_in(folder: Folder, manifest: Manifest) -> list[Record]:
    """Those since a manifest, where a log stands beside it."""
    return records(folder, manifest.revision) if manifest.logged else []


def batches_of(saved: Saved) -> list[Batch]:
    """What has to be built, inserted and erased to have the saved rows.

    Raises
    ------
    FormatError
        When they are no longer there, or damaged.
    """
    folder = Folder(saved.url)
    manifest = read_manifest(folder)
    batches = [Batch("build", manifest.shards, manifest.owned)]
    revision, transaction = manifest.revision, None
    for record in records(folder, revision) if revision < saved.revision else ():
        if record.revision <= saved.revision:
            batches.append(Batch(record.verb, record.files, record.owned))
            check_sizes(folder, filter(None, record.files))
            revision, transaction = record.revision, record.transaction
    replaced = saved.transaction not in (None, transaction)
    if manifest.uid != saved.uid or revision != saved.revision or replaced:
        raise FormatError(
            f"{saved.url} holds another state than revision {saved.revision} of this index: it was "
            "replaced, or is damaged; load it if it is wanted, or build the index again"
        )
    return [batch for batch in batches if batch.files]


def write_shard(
    host: ShardHost, descriptor: Descriptor, change: Change | None, url: str, names: Sequence[str]
) -> RowsFile:
    """Runs on a worker: writes its shard, or the one that is prepared for `change`."""
    part = descriptor.workers.index(host.worker.address)
    shard = descriptor.shards[part]
    if change is None:
        rows = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation).frame()
    else:
        rows = host.shards.prepared(change.uid, change.transaction)
    return write_rows(rows, Folder(url), names[part])


def _write(
    client: Client,
    descriptor: Descriptor,
    target: Folder,
    there: Manifest | None,
    change: Change | None,
    logged: bool,
    overwrite: bool = False,
) -> tuple[Sequence[RowsFile], Sequence[RowsFile]]:
    """The files that were written, and those that a manifest named before."""
    mark = _mark(descriptor)
    token = f"{mark}{uuid.uuid4().hex[:12]}"
    names = [f"shard-{token}-{part:05}.arrow" for part in range(len(descriptor.whole))]
    files: Sequence[RowsFile] = ()

    def write(folder: Folder) -> bytes:
        nonlocal files, there
        files = seen_through(
            client, descriptor.whole, write_shard, descriptor, change, folder.url, names
        )
        check_shared(folder, files)
        if there is not None:
            # Another index may have been saved here meanwhile, or go on with the log.
            there = _replaced_in(folder, descriptor, overwrite)
        return Manifest.of(descriptor, files, frames_of(descriptor.meta), logged=logged).to_bytes()

    target.fill(names, MANIFEST, write, fresh=there is None, mark=mark)
    return files, there.shards if there else ()


def _mark(descriptor: Descriptor) -> str:
    """By which an index knows its files: one client at a time saves it."""
    return f"{descriptor.uid[:12]}-"


def _replaced_in(folder: Folder, descriptor: Descriptor, overwrite: bool) -> Manifest | None:
    """Of the saved index that a save of `descriptor` replaces; None where there is none."""
    there = _manifest_in(folder)
    if there is None:
        return None
    if folder.url == descriptor.log:
        last = max(there.revision + 1, last_revision(folder.names()))
        if there.uid != descriptor.uid or last > descriptor.revision:
            raise gone_on(folder)
        return there
    own = {descriptor.uid}
    if descriptor.saved is not None and descriptor.saved.url == folder.url:
        # What it was loaded from.
        own.add(descriptor.saved.uid)
    _check_replaceable(folder, there, own, overwrite)
    return there


def _check_replaceable(
    folder: Folder, there: Manifest, own: Collection[str], overwrite: bool
) -> None:
    if there.logged:
        raise ExistsError(
            f"{folder.url} is the log of a durable index; choose another place, or remove it"
        )
    if there.uid not in own and not overwrite:
        raise holds_another(folder, WHAT)


def _manifest_in(folder: Folder) -> Manifest | None:
    """Of the saved index in a folder; None when the folder is empty, or is not there."""
    return manifest_in(folder, WHAT, Manifest.from_bytes)
