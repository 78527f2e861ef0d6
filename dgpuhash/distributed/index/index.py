"""DistributedIndex: a hash index of rows on a Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from typing import Unpack

import dask.dataframe as dd
from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.index.creation import NamedHandle
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.ingest.mode import PlacementChoice
from dgpuhash.distributed.ingest.source import IndexSchema, collection_of
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.partition.registry import check_name, generated_name
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames import keys_frame
from dgpuhash.frames.keys.table import KeyTableMethod
from dgpuhash.typing import ConflictName, Device, IndexMode, KeyTableSettings, QueryLike, RowsLike


class DistributedIndex(NamedHandle):
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
        data: RowsLike,
        on: Hashable | Sequence[Hashable],
        columns: Sequence[Hashable] | None = None,
        *,
        unique: bool | None = None,
        mode: IndexMode = "distributed",
        replicated: bool = False,
        conflict: ConflictName = "error",
        client: Client | None = None,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        device: Device | None = None,
        durable: str | None = None,
        single_writer: bool = False,
        method: str = "auto",
        **settings: Unpack[KeyTableSettings],
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

    def insert(self, rows: RowsLike) -> int:
        """Add rows, all of them or none; return their number.

        The rows are added to the newest epoch of the index, whichever client made it.

        Parameters
        ----------
        rows : Dask, pandas or cuDF DataFrame, or mapping of arrays
            Rows with at least the stored columns.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing or do not fit, or a key of a unique index has a second row.
        ShapeError, UnsupportedError
            When arrays differ in length, or one array is given for several columns.
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a worker is lost.
        IndexChanged
            When this client stalled during the change, so that another client took over; the rows
            were not added.
        OutOfMemoryError
            When a worker's memory, or a device's, does not hold the rows, or the tasks that compute
            them.
        OSError
            When the log of a durable index cannot be written.
        """
        return self._change("insert", rows, self._descriptor.meta.columns)

    def upsert(self, rows: RowsLike) -> int:
        """Replace all rows of the given rows' keys, all or none; return the number of rows.

        Rows of keys that the index does not have are added as by `insert`; a key of which it has
        several rows has one row then. Nulls are keys as others are.

        Parameters
        ----------
        rows : as for `insert`
            With one row a key at most, as nothing says which of two rows is to stay. Drop the
            doubles; or, to give a key several rows, `erase` it and `insert` them.

        Raises
        ------
        ColumnError
            When two rows have one key, wherever they lie; nothing is changed then. Also as for
            `insert`.
        UnsupportedError
            When the method of the key tables cannot erase, and as for `insert`.
        KeyTypeError, ShapeError, IndexNotFound, IndexLost, IndexChanged, OutOfMemoryError, OSError
            As for `insert`.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> ages = pd.DataFrame({"name": ["Ada", "Bo", "Bo"], "age": [36, 7, 8]})
        >>> with DistributedIndex.build(ages, on="name", client=client) as index:
        ...     index.upsert(pd.DataFrame({"name": ["Bo", "Cy"], "age": [9, 50]}))
        ...     index.lookup(["Ada", "Bo", "Cy"])["age"].tolist()
        2
        [36, 9, 50]
        >>> client.close()
        """
        return self._change("upsert", rows, self._descriptor.meta.columns)

    def erase(self, keys: QueryLike) -> int:
        """Remove all rows of the keys, or none; return the number of rows.

        Parameters
        ----------
        keys : as for `lookup`, or a Dask DataFrame, or a Dask Series for one key column

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError, UnsupportedError
            When keys do not fit the key columns, or are of another lazy type.
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
