"""Save and load an index: a manifest and one Arrow file for each shard.

No pickle is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distributed import Client

from dgpuhash.distributed.cluster.device_thread import ThreadProgress
from dgpuhash.distributed.cluster.host import PluginHost
from dgpuhash.distributed.cluster.survivors import run_to_end
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Descriptor, SavedRevision
from dgpuhash.distributed.storage.arrow_files import RowsFile, check_shared, check_sizes, write_rows
from dgpuhash.distributed.storage.change_log import (
    LogState,
    Outdated,
    Record,
    fence,
    last_revision,
    records,
    replaced_by,
    take_over,
    taken_over_error,
)
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import MANIFEST, Manifest
from dgpuhash.errors import ExistsError, FormatError


@dataclass(frozen=True, slots=True)
class SavedRows:
    """Saved rows of one verb, with one file for each shard, or None.

    None for a shard without rows. `owned`: whether each shard had the rows of the keys that it
    owns.
    """

    verb: str
    files: tuple[RowsFile | None, ...]
    owned: bool


def fence_for_save(descriptor: Descriptor, url: str, outdated: Outdated) -> Descriptor:
    """Return the descriptor for `save`, and fence the log if `url` has it.

    A save to the index's log folder truncates the log: the descriptor is then of the next revision,
    whose record is written here.

    Raises
    ------
    IndexLost
        When another index continues the log, or another client has changed this index.
    """
    folder = Folder(url)
    if folder.url != descriptor.log or not folder.has(MANIFEST):
        return descriptor
    end = replace(descriptor, revision=descriptor.revision + 1)
    fence(folder, end, outdated)
    return end


def save(client: Client, descriptor: Descriptor, url: str, *, overwrite: bool) -> Descriptor:
    """Write all shards and then the manifest, which commits the save.

    A new local folder appears under its name when it is complete. Elsewhere, and where `url` holds
    a saved index already, files with new names are written beside the old ones, the manifest is
    replaced, and the old files are removed; in the folder of the index's log, its records too.
    Files that a killed client left while it saved this index there are removed as well.

    Returns
    -------
    Descriptor
        The given one, with the save as its `saved`.

    Raises
    ------
    ExistsError
        When `url` holds something else, such as the log of another index, or, without `overwrite`,
        a save of another index.
    IndexLost
        When another index continues the log there, or a worker is lost.
    OSError
        When the save cannot be written; the earlier contents of `url` are unchanged then.
    """
    folder, revision = Folder(url), descriptor.revision
    logged = folder.url == descriptor.log
    there = _replaced_in(folder, descriptor, overwrite)
    written, replaced = _write(client, descriptor, folder, there, None, logged, overwrite)
    names = folder.names()
    if logged and last_revision(names) > revision:
        # The index that continues the log may still replace this manifest by the one it has read.
        raise taken_over_error(folder)
    # Files that killed clients left are removed, too, but not files of other indexes, which may be
    # saved here at the same time.
    left = "shard-" if logged else f"shard-{_mark(descriptor)}"
    stale = {rows.file for rows in replaced}
    stale |= {name for name in names if name.startswith(left)}
    if logged:
        stale |= replaced_by(names, revision)
    folder.remove(stale - {rows.file for rows in written})
    folder.sweep(MANIFEST)
    return replace(descriptor, saved=SavedRevision(folder.url, descriptor.uid, revision))


def start_log(
    client: Client, descriptor: Descriptor, change: Change, continued: LogState | None
) -> None:
    """Start the index's log from the prepared shards, or continue one.

    With `continued`, the index takes over the log that this was read from.
    """
    if descriptor.log is None:
        return
    if continued is not None:
        take_over(Folder(descriptor.log), continued, descriptor.uid, descriptor.revision)
        return
    check_free(descriptor)
    _write(client, descriptor, Folder(descriptor.log), None, change, logged=True)


def check_free(descriptor: Descriptor) -> None:
    """Raise ExistsError when the folder of the index's new log is not empty."""
    if descriptor.log is None:
        return
    folder = Folder(descriptor.log)
    if Manifest.replaced_in(folder) is not None:
        raise ExistsError(
            f"{folder.url} holds a saved index; choose another place for the log, or continue "
            f"that index with DistributedIndex.load(url, durable=url)"
        )


def check_target(url: str, *, overwrite: bool) -> None:
    """Check that a new index can be saved to `url`, before it is built.

    Raises
    ------
    ExistsError
        As for `save`.
    """
    folder = Folder(url)
    there = Manifest.replaced_in(folder)
    if there is not None:
        _check_replaceable(folder, there, None, overwrite)


def remove_log(descriptor: Descriptor) -> None:
    """Remove what `start_log` wrote for a new index."""
    if descriptor.log is None:
        return
    folder = Folder(descriptor.log)
    manifest = Manifest.replaced_in(folder)
    if manifest is not None and manifest.uid == descriptor.uid:
        folder.remove([MANIFEST, *(rows.file for rows in manifest.shards)])


def changes_in(folder: Folder, manifest: Manifest) -> list[Record]:
    """Return the logged changes since a manifest."""
    return records(folder, manifest.revision) if manifest.logged else []


def batches_of(saved: SavedRevision) -> list[SavedRows]:
    """Return what to build, insert and erase to get the saved rows.

    Raises
    ------
    FormatError
        When the rows were replaced, removed or damaged.
    """
    folder = Folder(saved.url)
    manifest = Manifest.found_in(folder)
    batches = [SavedRows("build", manifest.shards, manifest.owned)]
    revision = manifest.revision
    for record in records(folder, revision) if revision < saved.revision else ():
        if record.revision <= saved.revision:
            batches.append(SavedRows(record.verb, record.files, record.owned))
            check_sizes(folder, filter(None, record.files))
            revision = record.revision
    if manifest.uid != saved.uid or revision != saved.revision:
        raise FormatError(
            f"{saved.url} holds another state than revision {saved.revision} of this index: it was "
            "replaced, or is damaged; load that state if you want it, or build the index again"
        )
    return [batch for batch in batches if batch.files]


def write_shard(
    host: PluginHost, descriptor: Descriptor, change: Change | None, url: str, names: Sequence[str]
) -> RowsFile:
    """Write a shard, or the one prepared for `change`; runs on its worker."""
    part = descriptor.workers.index(host.worker.address)
    shard = descriptor.shards[part]
    if change is None:
        owned = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation)
        rows = owned.index.frame()
    else:
        rows = host.shards.prepared(change.uid, change.transaction)
    if descriptor.groups is not None:
        rows = descriptor.groups.to_save(rows)
    with host.thread.telling(ThreadProgress(descriptor.uid, "save", "write rows", len(rows))):
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
    """Write the files; return them, and the files that they replace."""
    token = f"{_mark(descriptor)}{uuid.uuid4().hex[:12]}"
    names = [f"shard-{token}-{part:05}.arrow" for part in range(len(descriptor.whole))]
    files: Sequence[RowsFile] = ()

    def write(folder: Folder) -> bytes:
        nonlocal files, there
        files = run_to_end(
            client, descriptor.whole, write_shard, descriptor, change, folder.url, names
        )
        check_shared(folder, files)
        if there is not None:
            # Another index may have been saved here meanwhile, or continue the log.
            there = _replaced_in(folder, descriptor, overwrite)
        return Manifest.of(descriptor, files, logged=logged).to_bytes()

    target.fill(names, MANIFEST, write, fresh=there is None)
    return files, there.shards if there else ()


def _mark(descriptor: Descriptor) -> str:
    """Return the mark in the names of an index's files.

    One client at a time saves an index.
    """
    return f"{descriptor.uid[:12]}-"


def _replaced_in(folder: Folder, descriptor: Descriptor, overwrite: bool) -> Manifest | None:
    """Return the manifest that a save of `descriptor` replaces, or None."""
    there = Manifest.replaced_in(folder)
    if there is None:
        return None
    if folder.url == descriptor.log:
        last = max(there.revision + 1, last_revision(folder.names()))
        if there.uid != descriptor.uid or last > descriptor.revision:
            raise taken_over_error(folder)
        return there
    _check_replaceable(folder, there, descriptor, overwrite)
    return there


def _check_replaceable(
    folder: Folder, there: Manifest, descriptor: Descriptor | None, overwrite: bool
) -> None:
    if there.logged:
        raise ExistsError(
            f"{folder.url} is the log of a durable index; choose another place, or remove it"
        )
    own = (None, None) if descriptor is None else (descriptor.uid, descriptor.saved)
    there.check_replaceable(folder, *own, overwrite=overwrite)
