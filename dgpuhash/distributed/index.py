"""DistributedIndex: the handle of a client."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import dask.dataframe as dd
from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.preload import import_there
from dgpuhash.distributed.ingest.commit import change_to, places
from dgpuhash.distributed.ingest.history import Step, acts_of
from dgpuhash.distributed.ingest.mode import Choice
from dgpuhash.distributed.ingest.source import Kept, collection_of
from dgpuhash.distributed.partition.descriptor import Descriptor, Saved
from dgpuhash.distributed.partition.registry import Registry, check_name, drawn_name, taken
from dgpuhash.distributed.reads import Reading
from dgpuhash.distributed.rebuild import Upkeep
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.distributed.storage.change_log import Continued
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import loaded_from
from dgpuhash.errors import DgpuhashError, IndexNotFound, SpecError, UnsupportedError
from dgpuhash.frames import keys_frame

__all__ = ["DistributedIndex"]


class DistributedIndex(Reading, Upkeep):
    """Rows on the workers of a Dask cluster, found by the values of some of their columns.

    Make one with `build`, `load` or `open`. It lives on the workers until it is closed, and any
    client of the cluster finds it by its name. Every change moves it to the next epoch. Each answer
    is of one epoch: a handle from before a change of another client is brought up to date by its
    next verb, as by `refresh`; computing a lazy merge from before a change raises `IndexChanged`.
    Verbs of one that was closed, or whose client is, raise `ClosedError`.
    A handle can be pickled and given to tasks; there it uses the client that it finds, and reads at
    once. A task that changes an index leaves its worker's thread to other tasks until it is done.

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
    ) -> DistributedIndex:
        """An index of the rows of `data`.

        Parameters
        ----------
        data : Dask, pandas or cuDF DataFrame, mapping of arrays, or array
            A Dask DataFrame is read where it lies, a partition at a time. The handle keeps a
            reference to it, and to what is inserted, for `rebuild`.
        on : label or list of labels
            The key columns.
        columns : list of labels, optional
            The columns kept beside the key columns; default: all. Others are not moved.
        unique : bool, optional
            True: refuse a second row of a key, now and in `insert`. None, False: allow it.
        mode : {"distributed", "independent", "replicated", "auto"}
            Where rows lie. Distributed: each key has one owner, where its rows and questions for it
            travel. Independent: rows stay with the workers that read their partitions; questions
            go to all, and answers are put in the order in which rows came (8 bytes a row more).
            Replicated: every worker holds all rows and answers what it is asked by its own tasks,
            so nothing travels. Auto: replicated when `data` is known to have at most 16 MiB, else
            distributed; `repr` says why.
        replicated : bool
            The same as ``mode="replicated"``.
        conflict : {"error", "first", "last", "min", "max", "sum"}
            What a second row of a unique key does when rows are independent. Error: it is refused,
            and each build or insert compares its keys with those of all workers. Others: it is
            stored, and answers have one row a key: the one that came first or last, or the least,
            greatest or summed values of each column, nulls left out.
        client : distributed.Client, optional
            Default: the current one.
        name : str, optional
            Under which `open` finds the index; default: a new one.
        workers : list of str, optional
            Addresses of the workers that shall hold the shards; default: all.
        device : {"cpu", "cuda"}, optional
            Where the key tables live; default: where the rows do.
        durable : str or path, optional
            As `save` takes it, of an empty folder or none. Rows, and
            those of each insert and erase, are written there by their workers before the call
            returns (and are on the disk, where the file system is local). `rebuild` and `load` read
            them: no change whose call returned is lost, whatever processes are; one whose call did
            not return is there whole or not at all. `save` to the same URL makes the log short
            again. Two processes and a local disk take 5 million rows of 16 bytes a second in
            batches of 2 million, 8 without a log; a batch of 10 rows takes 10 ms longer.
        single_writer : bool
            True: `durable` may be on a file system that cannot create a file only where none is.
            Of two indexes or clients that write to the log at the same time there, none is refused,
            and what one of them writes is lost: make sure yourself that there is but one.

        Raises
        ------
        ColumnError
            When a column is missing or doubled, or `unique` keys are not.
        KeyTypeError
            When a column cannot be a key.
        ShapeError
            When an array has not one dimension, or arrays differ in length.
        SpecError
            When there is an index of this name, or an option is unknown or contradicts another.
        UnsupportedError
            When there is no client, or the cluster does not have these workers; when Arrow, in
            which `durable` has rows, has no type for a column, or two writers of that log would
            not be told apart.
        DeviceError
            When a worker has no such device.
        ExistsError, OSError
            When `durable` is not empty, or cannot be written.
        IndexLost
            When a worker is lost; nothing remains of the index then.
        OutOfMemoryError
            When a worker's memory, or a device's, does not hold the rows, or what makes them;
            nothing remains then, either.
        """
        client = client_of(client)
        check_name(name)
        choice = Choice.of(mode, replicated, conflict, unique)
        collection = collection_of(data, on if isinstance(on, list | tuple) else [on])
        kept = Kept.of(collection, on, columns)
        choice.check(collection, kept.meta, kept.names)
        shards = places(client, workers, known=True)
        placement, reason = choice.place(client, collection, list(kept.meta), len(shards))
        uid = uuid.uuid4().hex
        descriptor = Descriptor(
            uid=uid,
            name=name or drawn_name(uid),
            epoch=1,
            shards=shards,
            encoder=kept.encoder,
            meta=kept.meta,
            unique=choice.unique,
            device=device,
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
        """The index that was saved to `url`, or has its log there, onto the workers of now.

        Parameters
        ----------
        url : str
            As `save` takes it; an archive too, such as ``"zip://saved::saved.zip"``, and a server
            that sends whole files only by ``"simplecache::http://…"``.
        client, name, workers
            As in `build`.
        device : {"cpu", "cuda"}, optional
            ``"cuda"`` reads the rows into cuDF.
        durable : str, optional
            As in `build`; or `url`, to go on with the log that is there: an index that wrote it
            before can be read then, but changed no more.
        single_writer : bool
            As in `build`.

        Raises
        ------
        FormatError
            When there is no saved index, or it is damaged; nothing is changed then.
        IndexChanged
            When the index whose log it goes on with was changed meanwhile.
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
            saved = Saved(folder.url, manifest.uid, manifest.revision + len(changes), last)
            uid = uuid.uuid4().hex
            meta = manifest.meta("cudf" if device == "cuda" else "pandas")
            descriptor = Descriptor(
                uid=uid,
                name=name or drawn_name(uid),
                epoch=1,
                shards=places(client, workers),
                encoder=manifest.encoder.read_as(meta),
                meta=meta,
                unique=manifest.unique,
                device=device,
                placement=manifest.placement,
                conflict=manifest.conflict,
                saved=None if goes_on else saved,
                revision=saved.revision + goes_on,
                log=log,
            )
            continued = Continued(manifest, changes) if goes_on else None
            return cls._create(descriptor, client, saved, continued, single_writer=single_writer)

        return loaded_from(folder, load)

    @classmethod
    def open(cls, name: str, client: Client | None = None) -> DistributedIndex:
        """The index of this name on the client's cluster, whichever client made it.

        Raises
        ------
        IndexNotFound
            When there is none.
        IndexLost
            When the scheduler is gone, or a worker meanwhile.
        UnsupportedError
            When there is no client, or a process of the cluster cannot import this library.
        SpecError
            When `name` is no text.
        """
        client = client_of(client)
        check_name(name)
        if name is None:
            raise SpecError("name=None; give the name of an index, as the one that made it has it")
        import_there(client)
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
        continued: Continued | None = None,
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
        # Nobody else knows a name that was just drawn.
        drawn = descriptor.name == drawn_name(descriptor.uid)
        with nullcontext() if drawn else registry.changing(descriptor.name):
            if not drawn and registry.find(descriptor.name) is not None:
                raise taken(descriptor.name)
            acts = acts_of(client, descriptor, [step])
            try:
                index._carry_out(
                    None,
                    descriptor,
                    change,
                    acts,
                    step,
                    write=lambda newest: checkpoint.begin(client, newest, change, continued),
                )
            except BaseException:
                # Nothing is left of it, even when a worker is lost right after it was published.
                with suppress(DgpuhashError, OSError):
                    index.close()
                    if continued is None:
                        checkpoint.forget(descriptor)
                raise
        return index

    def insert(self, rows: Any) -> int:
        """Add rows, all of them or none; returns how many.

        The rows are added to the index as it is now, whoever has changed it.

        Parameters
        ----------
        rows : Dask, pandas or cuDF DataFrame, or mapping of arrays
            With at least the stored columns.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing or do not fit, or a key of a unique index is there twice.
        ShapeError, UnsupportedError
            When arrays differ in length, or one array is given for several columns.
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a worker is lost.
        IndexChanged
            When this client stood still in the middle, so that another one went on; the rows were
            not added.
        OutOfMemoryError
            When a worker's memory, or a device's, does not hold the rows, or what makes them.
        OSError
            When the log of a durable index cannot be written.
        """
        return self._change("insert", rows, self._descriptor.meta.columns)

    def erase(self, keys: Any) -> int:
        """Remove all rows with these keys, on all shards or none; returns how many.

        Parameters
        ----------
        keys : as for `lookup`, or a Dask DataFrame, or a Dask Series for one key column

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError, UnsupportedError
            When keys do not fit the key columns, or are lazy in another way.
        IndexLost, OutOfMemoryError, OSError
            As for `insert`.
        """
        if isinstance(keys, dd.Series) and len(self.on) == 1:
            keys = keys.to_frame(self.on[0])
        if hasattr(keys, "__dask_graph__") and not isinstance(keys, dd.DataFrame):
            raise UnsupportedError(
                f"a lazy {type(keys).__name__} names no key columns; give a Dask DataFrame with "
                f"the columns {self.on!r}, or compute() it first"
            )
        if not isinstance(keys, dd.DataFrame):
            keys = keys_frame(keys, self._descriptor.encoder, self._descriptor.meta)
        return self._change("erase", keys, self.on)
