"""Base class for building, loading and opening named indexes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, ClassVar, Self

from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.distributed.index.reads import ReadMixin
from dgpuhash.distributed.index.rebuild import IndexMaintenance
from dgpuhash.distributed.ingest.commit import change_to, shard_addresses
from dgpuhash.distributed.ingest.history import RowStep, operations_of
from dgpuhash.distributed.partition.descriptor import Descriptor, SavedRevision
from dgpuhash.distributed.partition.registry import (
    Registry,
    check_name,
    generated_name,
    name_taken_error,
)
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.distributed.storage.change_log import LogState
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import Manifest, load_with_retry
from dgpuhash.errors import (
    ColumnError,
    DgpuhashError,
    IndexLost,
    IndexNotFound,
    KeyTypeError,
    SpecError,
)
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device


class NamedHandle(ReadMixin, IndexMaintenance):
    """Base of `DistributedIndex` and `DistributedGroupBy`: building, loading and opening."""

    _holds_groups: ClassVar[bool] = False

    @classmethod
    def load(
        cls,
        url: str,
        client: Client | None = None,
        *,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        device: Device | None = None,
        durable: str | None = None,
        single_writer: bool = False,
    ) -> Self:
        """Load a saved index, or one with a log, from `url`.

        Its shards are spread over the cluster's current workers.

        Parameters
        ----------
        url : str
            As for `save`; also an archive, such as ``"zip://saved::saved.zip"``. A server that
            sends only whole files needs ``"simplecache::http://…"``.
        client, name, workers
            As in `build`.
        device : {"cpu", "cuda"}, optional
            ``"cuda"`` reads the rows into cuDF.
        durable : str, optional
            As in `build`; or `url`, to continue its log: the index that wrote the log before can
            still be read then, but no longer changed.
        single_writer : bool
            As in `build`.

        Raises
        ------
        FormatError
            When there is no saved index, or the save is damaged; nothing is changed then.
        IndexChanged
            When the index whose log is continued was changed during the call.
        IndexLost
            When a worker is lost.
        SpecError, UnsupportedError, DeviceError, OutOfMemoryError, OSError
            As for `build`; and when fsspec does not know the URL, or cuDF is not installed.
        """
        client = client_of(client)
        check_name(name)
        folder = Folder(url)
        log = None if durable is None else Folder(durable).url
        goes_on = log == folder.url

        def load() -> Any:
            manifest = Manifest.found_in(folder)
            changes = checkpoint.changes_in(folder, manifest)
            cls._check_kind(manifest.groups, folder.url, "load")
            saved = SavedRevision(folder.url, manifest.uid, manifest.revision + len(changes))
            uid = uuid.uuid4().hex
            with interpreting(folder.url):
                meta = manifest.meta("cudf" if device == "cuda" else "pandas")
                if manifest.groups is not None:
                    # Earlier programs had other dtypes of some aggregates.
                    meta = manifest.groups.results
                if not set(manifest.encoder.names) <= set(meta.columns) or not manifest.shards:
                    raise ValueError("it has no key columns, or no shards")
                encoder = manifest.encoder.read_as(meta)
            descriptor = Descriptor(
                uid=uid,
                name=name or generated_name(uid),
                epoch=1,
                shards=shard_addresses(client, workers),
                encoder=encoder,
                meta=meta,
                unique=manifest.unique,
                device=device,
                method=manifest.method,
                placement=manifest.placement,
                conflict=manifest.conflict,
                saved=None if goes_on else saved,
                revision=saved.revision + goes_on,
                log=log,
                groups=manifest.groups,
            )
            continued = LogState(manifest, changes) if goes_on else None
            with interpreting(folder.url, (ColumnError, KeyTypeError)):
                return cls._create(
                    descriptor, client, saved, continued, single_writer=single_writer
                )

        made: Self = load_with_retry(folder, load)
        return made

    @classmethod
    def open(cls, name: str, client: Client | None = None) -> Self:
        """Return a handle of the index with this name, whichever client built it.

        Raises
        ------
        IndexNotFound
            When the cluster has no index of this name.
        IndexLost
            When the scheduler is gone, or a worker is lost during the call.
        UnsupportedError
            When there is no client, or a process of the cluster cannot import this library.
        SpecError
            When `name` is no text, or empty.
        """
        client = client_of(client)
        check_name(name)
        if name is None:
            raise SpecError("name=None; give the name of the index, as it was built under")
        import_on_cluster(client)
        registry = Registry(client)
        descriptor = registry.find(name)
        if descriptor is None:
            raise IndexNotFound(
                f"no index {name!r} on this cluster; there are {registry.names()!r}; build it, or "
                f"load it with {cls.__name__}.load(url)"
            )
        cls._check_kind(descriptor.groups, name, "open")
        opened = cls(descriptor, client)
        opened._settle_log(descriptor)
        return opened

    @classmethod
    def _check_kind(cls, groups: Aggregation | None, where: str, verb: str) -> None:
        """Raise SpecError if the object with a name or URL is of another class."""
        holds_groups = groups is not None
        if holds_groups != cls._holds_groups:
            held = "DistributedGroupBy" if holds_groups else "DistributedIndex"
            raise SpecError(f"{where!r} is not a {cls.__name__}; use {held}.{verb}({where!r})")

    @classmethod
    def _create(
        cls,
        descriptor: Descriptor,
        client: Client,
        rows: Any,
        continued: LogState | None = None,
        *,
        single_writer: bool,
    ) -> Self:
        if not isinstance(single_writer, bool) or (single_writer and descriptor.log is None):
            raise SpecError(
                f"single_writer={single_writer!r}; give True or False, and True with durable= alone"
            )
        index = cls(descriptor, client)
        change = change_to(descriptor, "build")
        if continued is None:
            checkpoint.check_free(descriptor)
        if descriptor.log is not None and not single_writer:
            Folder(descriptor.log).check_exclusive()
        registry = index._registry
        step = RowStep("build", rows, descriptor.revision)
        # No other client knows a generated name.
        drawn = descriptor.name == generated_name(descriptor.uid)
        with nullcontext() if drawn else registry.changing(descriptor.name):
            if not drawn and registry.find(descriptor.name) is not None:
                raise name_taken_error(descriptor.name)
            acts = operations_of(client, descriptor, [step])
            try:
                index._carry_out(
                    None,
                    descriptor,
                    change,
                    acts,
                    step,
                    write=lambda newest: checkpoint.start_log(client, newest, change, continued),
                )
            except BaseException as error:
                # Nothing is left of the index, even when a worker is lost after it was published.
                with suppress(DgpuhashError, OSError):
                    index.close()
                    if continued is None:
                        checkpoint.remove_log(descriptor)
                if isinstance(error, IndexLost):
                    remedy = "nothing is left of the index: build or load it again"
                    raise IndexLost(str(error).replace(REMEDY, remedy)) from error
                raise
        return index
