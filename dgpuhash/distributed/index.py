"""DistributedIndex: a hash index of rows on a Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.ingest.commit import change_to, shard_addresses
from dgpuhash.distributed.ingest.history import Step, operations_of
from dgpuhash.distributed.ingest.mode import PlacementChoice
from dgpuhash.distributed.ingest.source import IndexSchema, collection_of
from dgpuhash.distributed.partition.descriptor import Descriptor, SavedRevision
from dgpuhash.distributed.partition.registry import (
    Registry,
    check_name,
    generated_name,
    name_taken_error,
)
from dgpuhash.distributed.reads import ReadMixin
from dgpuhash.distributed.rebuild import IndexMaintenance
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.distributed.storage.change_log import LogState
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import load_with_retry
from dgpuhash.distributed.updates import UpdateMixin
from dgpuhash.errors import DgpuhashError, IndexNotFound, SpecError
from dgpuhash.frames.keys.table import KeyTableMethod

__all__ = ["DistributedIndex"]


class DistributedIndex(ReadMixin, UpdateMixin, IndexMaintenance):
    """Hash index of rows on the workers of a Dask cluster, by key columns.

    Make one with `build`, `load` or `open`. The index stays on the workers until it is closed, and
    any client of the cluster finds it by its name. Every change moves it to the next epoch, and
    each answer is of one epoch: a handle from before a change of another client is brought up to
    date by its next verb, as by `refresh`; computing a lazy merge from before a change raises
    `IndexChanged`. The verbs of a closed handle, or of one whose client is closed, raise
    `ClosedError`. A handle can be pickled and passed to tasks; there it uses the task's client, and
    reads at once. While a task changes an index, it secedes from its worker's thread pool.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
    >>> flights = pd.DataFrame({"flight": [7, 8], "tailnum": ["N2", "N1"]})
    >>> index = DistributedIndex.build(dd.from_pandas(planes), on="tailnum", client=client)
    >>> index.merge(dd.from_pandas(flights)).compute()
       flight tailnum  seats
    0       7      N2    182
    1       8      N1     55
    >>> index.lookup(flights["tailnum"])
    0    182
    1     55
    Name: seats, dtype: int64
    >>> index.close(); client.close()
    """

    @classmethod
    def build(
        cls,
        data: Any,
        on: Hashable | Sequence[Hashable],
        columns: Sequence[Hashable] | None = None,
        *,
        unique: bool | None = None,
        mode: str = "distributed",
        replicated: bool = False,
        conflict: str = "error",
        client: Client | None = None,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        device: str | None = None,
        durable: str | None = None,
        single_writer: bool = False,
        method: str = "auto",
        **settings: int | float | str,
    ) -> DistributedIndex:
        """Build an index of the rows of `data`.

        Parameters
        ----------
        data : Dask, pandas or cuDF DataFrame, mapping of arrays, or array
            A Dask DataFrame is read by its workers, a partition at a time. The handle keeps a
            reference to it, and to inserted rows, for `rebuild`.
        on : label or list of labels
            The key columns.
        columns : list of labels, optional
            The columns stored beside the key columns; default: all. Others are not moved.
        unique : bool, optional
            True: refuse a second row of a key, here and in `insert`. None, False: allow it.
        mode : {"distributed", "independent", "replicated", "auto"}
            Where rows are stored. Distributed: each key has one owner, which its rows and queries
            are sent to. Independent: rows stay on the workers that read their partitions; queries
            go to all, and answers are sorted by the arrival of the rows (8 bytes a row more).
            Replicated: every worker holds all rows and answers its own tasks' queries, so no row or
            query is sent. Auto: replicated when `data` is known to have at most 16 MiB, else
            distributed; `repr` says why.
        replicated : bool
            The same as ``mode="replicated"``.
        conflict : {"error", "first", "last", "min", "max", "sum"}
            How a second row of a unique key is resolved when rows are independent. Error: it is
            refused, and each build or insert compares its keys with those of all workers. Others:
            it is stored, and answers have one row a key: the first or last to arrive, or the least,
            greatest or summed values of each column, without nulls.
        client : distributed.Client, optional
            Default: the current one.
        name : str, optional
            Name by which `open` finds the index; default: a generated one.
        workers : list of str, optional
            Addresses of the workers that are to hold the shards; default: all.
        device : {"cpu", "cuda"}, optional
            Device of the key tables; default: that of the rows.
        durable : str or path, optional
            URL of a write-ahead log, as for `save`: an empty folder, or a new one. Workers write
            the rows there, and those of each insert and erase, before the call returns (and sync
            them to disk, where the file system is local). `rebuild` and `load` read the log: no
            change whose call returned is lost, whichever processes are lost; a change whose call
            did not return is made whole or not at all. `save` to the same URL compacts the log. Two
            processes and a local disk take 5 million rows of 16 bytes a second in batches of
            2 million, 8 without a log; a batch of 10 rows takes 10 ms longer.
        single_writer : bool
            True: `durable` may be on a file system without exclusive creation of files. Of two
            indexes or clients that write to the log there at the same time, none is refused, and
            the rows of one are lost: make sure yourself that there is only one writer.
        method : str
            How the key tables store their keys: a name of `dgpuhash.methods`.
        **settings
            Settings of the method.

        Raises
        ------
        ColumnError
            When a column is missing or doubled, or `unique` keys have several rows.
        KeyTypeError
            When a column cannot be a key.
        ShapeError
            When an array has not one dimension, or arrays differ in length.
        SpecError
            When there is an index of this name, or an option is unknown or contradicts another.
        UnsupportedError
            When there is no client, or the cluster does not have these workers; when Arrow, the
            format of the log, has no type for a column, or the file system could not refuse a
            second writer of the log.
        DeviceError
            When a worker has no such device.
        ExistsError, OSError
            When `durable` is not empty, or cannot be written.
        IndexLost
            When a worker is lost; nothing remains of the index then.
        OutOfMemoryError
            When a worker's memory, or a device's, does not hold the rows, or the tasks that
            compute them; nothing remains of the index then, either.
        """
        client = client_of(client)
        check_name(name)
        choice = PlacementChoice.of(mode, replicated, conflict, unique)
        key_tables = KeyTableMethod.of(method, settings)
        collection = collection_of(data, on if isinstance(on, list | tuple) else [on])
        kept = IndexSchema.of(collection, on, columns)
        choice.check(collection, kept.meta, kept.names)
        shards = shard_addresses(client, workers, known=True)
        placement, reason = choice.place(client, collection, list(kept.meta), len(shards))
        uid = uuid.uuid4().hex
        descriptor = Descriptor(
            uid=uid,
            name=name or generated_name(uid),
            epoch=1,
            shards=shards,
            encoder=kept.encoder,
            meta=kept.meta,
            unique=choice.unique,
            device=device,
            method=key_tables,
            placement=placement,
            reason=reason,
            conflict=choice.conflict,
            log=None if durable is None else Folder(durable).url,
        )
        return cls._create(descriptor, client, collection, single_writer=single_writer)

    @classmethod
    def load(
        cls,
        url: str,
        client: Client | None = None,
        *,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        device: str | None = None,
        durable: str | None = None,
        single_writer: bool = False,
    ) -> DistributedIndex:
        """Load the index that was saved, or has its log, at `url`.

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

        def load() -> DistributedIndex:
            manifest = checkpoint.read_manifest(folder)
            changes = checkpoint.changes_in(folder, manifest)
            last = changes[-1].transaction if changes else None
            saved = SavedRevision(folder.url, manifest.uid, manifest.revision + len(changes), last)
            uid = uuid.uuid4().hex
            meta = manifest.meta("cudf" if device == "cuda" else "pandas")
            descriptor = Descriptor(
                uid=uid,
                name=name or generated_name(uid),
                epoch=1,
                shards=shard_addresses(client, workers),
                encoder=manifest.encoder.read_as(meta),
                meta=meta,
                unique=manifest.unique,
                device=device,
                method=manifest.method,
                placement=manifest.placement,
                conflict=manifest.conflict,
                saved=None if goes_on else saved,
                revision=saved.revision + goes_on,
                log=log,
            )
            continued = LogState(manifest, changes) if goes_on else None
            return cls._create(descriptor, client, saved, continued, single_writer=single_writer)

        return load_with_retry(folder, load)

    @classmethod
    def open(cls, name: str, client: Client | None = None) -> DistributedIndex:
        """Return a handle of the index of this name, whichever client built it.

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
            raise SpecError("name=None; give the name of an index, as the one that made it has it")
        import_on_cluster(client)
        registry = Registry(client)
        descriptor = registry.find(name)
        if descriptor is None:
            raise IndexNotFound(
                f"no index {name!r} on this cluster; there are {registry.names()!r}; build it, or "
                "load it with DistributedIndex.load(url)"
            )
        return cls(descriptor, client)

    @classmethod
    def _create(
        cls,
        descriptor: Descriptor,
        client: Client,
        rows: Any,
        continued: LogState | None = None,
        *,
        single_writer: bool,
    ) -> DistributedIndex:
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
        step = Step("build", rows, descriptor.revision)
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
            except BaseException:
                # Nothing is left of the index, even when a worker is lost after it was published.
                with suppress(DgpuhashError, OSError):
                    index.close()
                    if continued is None:
                        checkpoint.remove_log(descriptor)
                raise
        return index
