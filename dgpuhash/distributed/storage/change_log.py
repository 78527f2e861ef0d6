"""Write-ahead log of a durable index, one record for each revision.

Each change is on disk before anybody sees it. The log stands beside the manifest of a checkpoint.
Each revision since then has Arrow files with the rows of each shard, written by the workers that
own them, and then a record: a small file that names the Arrow files with their checksums. The
record commits the change: it is never replaced, and a change that was not published because its
client was interrupted is published by the next one. It is created under a name that only one
writer can take, so a second writer, which took the log over, is noticed. The beginning of a record
was never acknowledged, and the next record takes its place. Whoever continues a log, or truncates
it, first writes a record without rows, so that no earlier write can appear after it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from distributed import Client

from dgpuhash.distributed.cluster.host import PluginHost
from dgpuhash.distributed.cluster.survivors import run_to_end
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.storage.arrow_files import RowsFile, digest_of, write_rows
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import MANIFEST, Manifest
from dgpuhash.errors import FormatError, IndexChanged, IndexLost

MAGIC = b"dgpuhash log 1"
END = b"\nend\n"
NAME = re.compile(r"log-(\d{12})\.record")
HEAD = re.compile(rb"%s ([1-9]\d*) ([0-9a-f]{32})\n" % MAGIC)
HEAD_BEGUN = re.compile(rb"%s ([1-9]\d*( [0-9a-f]{0,32})?)?" % MAGIC)
BODY = '{"revision": '
VERBS = {"insert", "upsert", "erase", "update", "retract", "load", "save"}

# Returns the error of a writer whose index was changed meanwhile, or None where it was not.
Outdated = Callable[[], IndexLost | None]


@dataclass(frozen=True, slots=True)
class Record:
    """Log record of one change of rows.

    Attributes
    ----------
    revision : int
        Revision after the change.
    verb : str
        ``"insert"``, ``"upsert"`` or ``"erase"``, of groups ``"update"`` or ``"retract"``;
        ``"load"`` when another index continued the log, and ``"save"`` before a save truncated it.
    uid : str
        Identifier of the index.
    transaction : str
    files : tuple of (RowsFile or None)
        One for each shard, or one for rows that all shards got; None where there were no rows.
    owned : bool
        Whether each file has the rows of the keys that its shard owns.
    """

    revision: int
    verb: str
    uid: str
    transaction: str
    files: tuple[RowsFile | None, ...]
    owned: bool = True

    @property
    def name(self) -> str:
        """Name of the record's file."""
        return f"log-{self.revision:012}.record"

    def to_bytes(self) -> bytes:
        """Return a header line with size and checksum, the JSON, and an end mark."""
        body = json.dumps(asdict(self)).encode()
        return b"%s %d %s\n" % (MAGIC, len(body), digest_of(body).hexdigest().encode()) + body + END

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Record | None:
        """Return the record that `to_bytes` wrote; None if the write was interrupted.

        Then there is the beginning of a record, and nothing or zeros behind it. The end mark may be
        missing.

        Raises
        ------
        FormatError
            When there is anything else: the record is damaged, or the file is no record.
        """
        written = data.rstrip(b"\0")
        head = HEAD.match(written)
        if head is None:
            if HEAD_BEGUN.fullmatch(written) or MAGIC.startswith(written):
                return None
            raise FormatError(f"{where} is damaged: it is not a record; {REMEDY}")
        end = head.end() + int(head[1])
        body, after = written[head.end() : end], written[end:]
        if head.end() + len(body) < end and _begins_body(body):
            return None
        if digest_of(body).hexdigest().encode() != head[2] or not END.startswith(after):
            raise FormatError(f"{where} is damaged: its checksum is wrong; {REMEDY}")
        try:
            entry = json.loads(body)
            files = tuple(each and RowsFile.from_json(each) for each in entry.pop("files"))
            record = cls(**entry, files=files)
            kinds = (type(record.revision), type(record.owned))
            if kinds != (int, bool) or record.verb not in VERBS:
                raise ValueError(f"{record.verb} to revision {record.revision}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{where} is damaged: {error}; {REMEDY}") from error
        return record


def _begins_body(body: bytes) -> bool:
    """Return whether text is the incomplete start of a record's JSON."""
    try:
        text = body.decode("ascii")
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        words = any(word.startswith(rest) for word in ("null", "true", "false"))
        begun = words or re.fullmatch(r'"[\w.-]*', rest) is not None
        return begun and BODY.startswith(text[: len(BODY)])
    except (ValueError, RecursionError):
        return False
    return False


REMEDY = "restore the folder from a backup"


@dataclass(frozen=True, slots=True)
class LogState:
    """Manifest and later changes of an index whose log another index continues."""

    manifest: Manifest
    changes: Sequence[Record]


def append(client: Client, change: Change, end: Descriptor, outdated: Outdated) -> None:
    """Log a change: its rows on all shards, and then its record.

    `end` is the descriptor after the change. The shards write the rows that they have prepared for
    it.

    Raises
    ------
    OSError
        When the log cannot be written; the change has not happened then.
    IndexLost
        When another index continues this log, another client has changed this index, or a worker
        is lost.
    """
    assert end.log is not None
    folder, revision = Folder(end.log), end.revision
    token = uuid.uuid4().hex[:12]
    parts = range(len(change.writers))
    names = [f"log-{revision:012}-{token}-{part:05}.arrow" for part in parts]
    try:
        files = run_to_end(client, change.writers, write_batch, change, folder.url, names)
        record = Record(
            revision, change.verb, change.uid, change.transaction, tuple(files), end.owned
        )
        _commit(folder, record, outdated)
    except BaseException:
        # Once its record is written, the change is made, and its files must stay.
        with suppress(OSError, FormatError):
            there = _read(folder, revision)
            if there is None or there.transaction != change.transaction:
                folder.remove(names)
        raise


def unpublished_record(folder: Folder, descriptor: Descriptor) -> Record | None:
    """Return the record after the revision of `descriptor`, or None.

    The client that wrote it for this index was interrupted, or died, before it published the
    change.

    Raises
    ------
    FormatError
        When the record is damaged, or the file is no record.
    """
    record = _read(folder, descriptor.revision + 1)
    return record if record is not None and record.uid == descriptor.uid else None


def fence(folder: Folder, end: Descriptor, outdated: Outdated) -> None:
    """Append a record without rows, for the revision of `end`.

    The log may be truncated after it.

    Raises
    ------
    IndexLost
        When another index continues the log, or another client has changed this index.
    """
    _commit(folder, Record(end.revision, "save", end.uid, uuid.uuid4().hex, ()), outdated)


def take_over(folder: Folder, continued: LogState, uid: str, revision: int) -> None:
    """Let the index `uid` continue a log at `revision`, fencing its writer.

    The index that wrote the log before cannot append to it any more.

    Raises
    ------
    FormatError
        When the log was truncated meanwhile.
    IndexChanged
        When a change was appended meanwhile.
    """
    record = Record(revision, "load", uid, uuid.uuid4().hex, ())
    if not _create(folder, record):
        raise _changed_error(folder)
    try:
        _check_unchanged(folder, continued, record)
    except BaseException:
        folder.remove([record.name])
        raise
    folder.replace(MANIFEST, continued.manifest.owned_by(uid).to_bytes())


def records(folder: Folder, after: int) -> list[Record]:
    """Return the changes after revision `after`, in order.

    Raises
    ------
    FormatError
        When a record is damaged, or missing before another one, or the folder does not list its
        files.
    """
    found: list[Record] = []
    names = folder.names()
    if MANIFEST not in names:
        # For example over HTTP, whose servers may not list folders.
        raise FormatError(
            f"{folder.url} does not list its files, of which each change since the last save is "
            "one; load a copy of that folder, or what the index saves to another place"
        )
    numbers = [number for number in _numbers(names) if number > after]
    # For file systems whose listings lag behind.
    while folder.has(f"log-{after + len(numbers) + 1:012}.record"):
        numbers.append(after + len(numbers) + 1)
    for number, expected in zip(numbers, range(after + 1, after + 1 + len(numbers)), strict=True):
        name = f"log-{number:012}.record"
        if number != expected:
            raise FormatError(
                f"{folder.url} is damaged: log-{expected:012}.record is missing; {REMEDY}"
            )
        try:
            data = folder.read(name)
        except FileNotFoundError as error:
            raise FormatError(f"{folder.url} is damaged: {name} is missing; {REMEDY}") from error
        record = Record.from_bytes(data, f"{folder.url}/{name}")
        if record is None and number == numbers[-1]:
            break
        if record is None or record.revision != number:
            raise FormatError(f"{folder.url}/{name} is damaged; {REMEDY}")
        found.append(record)
    return found


def last_revision(names: Iterable[str]) -> int:
    """Return the greatest number of a record among `names`, or 0.

    Records need not be complete.
    """
    return max(_numbers(names), default=0)


def replaced_by(names: Iterable[str], revision: int) -> set[str]:
    """Return the log files that a save at `revision` makes obsolete.

    They are the records up to `revision`, and the files of their rows.
    """
    end = f"log-{revision + 1:012}"
    return {name for name in names if name.startswith("log-") and name < end}


def taken_over_error(folder: Folder) -> IndexLost:
    """Return the error for an index whose log another index continues."""
    return IndexLost(
        f"another index continues the log in {folder.url}; nothing was changed; close this "
        "one, and open that one"
    )


def write_batch(
    host: PluginHost, change: Change, url: str, names: Sequence[str]
) -> RowsFile | None:
    """Write a change's rows for one shard; runs on its worker."""
    rows = host.shards.prepared(change.uid, change.transaction)
    if change.groups is not None:
        rows = change.groups.to_save(rows)
    part = change.workers.index(host.worker.address)
    return write_rows(rows, Folder(url), names[part]) if len(rows) else None


def _commit(folder: Folder, record: Record, outdated: Outdated) -> None:
    manifest = Manifest.read_in(folder)
    if manifest.uid != record.uid:
        raise taken_over_error(folder)
    # A record up to the saved revision would never be read; another client has saved this index.
    if manifest.revision >= record.revision or not _create(folder, record):
        raise outdated() or _overtaken_error(folder, record)


def _overtaken_error(folder: Folder, record: Record) -> IndexLost:
    """Return the error for a change whose revision another record has."""
    there = _read(folder, record.revision)
    if there is None or there.uid != record.uid:
        return taken_over_error(folder)
    # Its client stood still, and went on after this one had looked.
    return IndexChanged(
        f"another client has changed the index of the log in {folder.url} meanwhile; the "
        f"{record.verb} was not made: repeat it"
    )


def _create(folder: Folder, record: Record) -> bool:
    """Return whether the record was written.

    It is not where another record is there; it takes the place of a beginning of one.
    """
    data = record.to_bytes()
    try:
        folder.create(record.name, data)
    except FileExistsError:
        # Another index may have continued after the beginning of a record, too.
        after = replace(record, revision=record.revision + 1).name
        if _read(folder, record.revision) is not None or folder.has(after):
            return False
        folder.replace(record.name, data)
        return not folder.has(after)
    return True


def _check_unchanged(folder: Folder, continued: LogState, last: Record) -> None:
    """Raise when the log was changed after `continued` was read.

    Nothing before the record `last` changes any more once that is written.
    """
    before, now = continued.manifest, Manifest.read_in(folder)
    if (now.uid, now.shards) != (before.uid, before.shards):
        raise FormatError(f"{folder.url} was saved to while it was loaded; load it again")
    if records(folder, before.revision) != [*continued.changes, last]:
        raise _changed_error(folder)


def _changed_error(folder: Folder) -> IndexChanged:
    return IndexChanged(
        f"the index in {folder.url} was changed while it was loaded; close it where it is "
        "open, and load it again"
    )


def stays(end: Descriptor, change: Change) -> bool:
    """Return whether an appended change is in the log, or in a save that truncated it.

    It is not where another client took this one, which stood still, for dead, or without a log.
    """
    if end.log is None:
        return False
    there = _read(Folder(end.log), end.revision)
    return there is None or there.transaction == change.transaction


def _read(folder: Folder, revision: int) -> Record | None:
    """Return the whole record of a revision, or None."""
    name = f"log-{revision:012}.record"
    if not folder.has(name):
        return None
    return Record.from_bytes(folder.read(name), f"{folder.url}/{name}")


def _numbers(names: Iterable[str]) -> list[int]:
    matches = map(NAME.fullmatch, names)
    return sorted(int(match[1]) for match in matches if match)
