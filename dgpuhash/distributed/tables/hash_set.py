"""DistributedSet: distinct keys on the workers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack, overload

from numpy.typing import DTypeLike

from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.batch import dtype_of
from dgpuhash.distributed.tables.key_table import EntryTable
from dgpuhash.tables.stores.method import table_spec
from dgpuhash.typing import (
    Array,
    ArrayKind,
    DistributedKeySettings,
    DistributedTableSettings,
    KeysLike,
)


class DistributedSet(EntryTable):
    """Set of distinct keys, sharded over the workers of a Dask cluster.

    Each worker has a `HashSet` of its keys, which their hash gives to it. A verb runs on all
    workers at once: each partitions its chunks by the owners of the keys, an all-to-all sends the
    rows to their owners, the owners look them up in their shards, and a second all-to-all returns
    the answers.

    Parameters
    ----------
    key_dtype : dtype
        As for `HashSet`.
    capacity : int
        Keys to make room for in all; the shards grow by themselves beyond.
    max_load : float, optional
        Share of the slots in use above which a shard grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the shards' hash function; default: a new one. The hash partition has another one.
    mode : {"distributed", "independent"}, default "distributed"
        Which worker stores a key. Distributed: its owner, by its hash. Independent: the worker that
        has the chunk with its row, and another one as well, if it has such a row too; nothing
        travels when keys are inserted, and all workers are asked about each key.
    client : distributed.Client, optional
        Default: the current one.
    workers : list of str, optional
        Addresses of the workers that are to hold the shards; default: all.
    exchange : {"auto", "comm", "two-level", "nccl", "peer"}, default "auto"
        Transport of rows between workers: Dask's comms; the same with one message between two hosts
        for what is small; NCCL between GPUs; or GPUs of one host write into each other's memory.
        For the last, the tables share up to 1 GiB on each GPU, and
        as much as a batch that fills a table, or the largest one so far, takes there, up to 1/16 of
        a GPU; both beside any pool. ``"auto"``: the last of these that the workers can use. Where
        it fails between workers that are reachable, comms take over, and a warning says so.
    piece_rows : int, optional
        Rows of a worker that are partitioned at once. A verb takes two to four times their bytes
        besides its arguments and answers; twice as much where each distinct key is looked up once,
        and as many times the bytes of lists that it finds. Default: 2²⁷.

    Raises
    ------
    KeyTypeError, SpecError, DeviceError
        As for `HashSet`; a device that workers do not have is refused by the first verb, and so is
        a `capacity` that workers have no memory for (OutOfMemoryError).
    UnsupportedError
        When there is no client, or the cluster has no workers, or lacks some of `workers`; when
        workers cannot use the `exchange`.

    Notes
    -----
    Keys are Dask arrays, computed on the workers and used there; the answer is a Dask array with
    the same chunks on the same workers, which is computed already. Or keys are arrays of the
    client's own (NumPy, pandas, CuPy, lists), which are sent to the workers and answered in kind.
    Keys to look up may have another dtype: those that `key_dtype` does not hold are absent.

    A change that fails before anything was changed, such as for keys of another dtype, leaves the
    table unchanged. A change that fails later, when a worker is lost or has no memory, leaves the
    table lost: every verb raises `IndexLost`, and the table must be made again.

    An independent table has a row for each worker that stores the key: `len` counts them all, and
    so do `count` and `items`, while `keys` are distinct. A change that adds keys looks only at the
    worker's own: its mask says what is new there. An erase removes a key from all workers.

    A table has one handle, which threads may share. Its shards stay on the workers until the handle
    is closed or dropped, or its program ends. Where the workers are not told, as when the client is
    closed first or its process is killed, the shards stay for 10 s more. A verb of a table that was
    closed, or whose client was, raises `ClosedError`.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> seen = DistributedSet("int64", client=client)
    >>> seen.insert([3, 1, 3]).sum()
    np.int64(2)
    >>> seen.contains(da.arange(4, chunks=2)).compute()
    array([False,  True, False,  True])
    >>> seen.close(); client.close()
    """

    kind = "set"

    def __init__(
        self,
        key_dtype: DTypeLike,
        capacity: int = 0,
        **settings: Unpack[DistributedKeySettings],
    ) -> None:
        super().__init__(partial(table_spec, "set", key_dtype), capacity, settings)

    @classmethod
    def from_keys(
        cls, keys: KeysLike, **settings: Unpack[DistributedTableSettings]
    ) -> DistributedSet:
        """Return a set of `keys`, of their dtype and on their device.

        `settings` are those of the class.
        """
        made = cls(dtype_of(keys, "keys"), **settings)
        with made._closed_on_error():
            made._ask(Verb("add"), keys)
        return made

    @overload
    def insert(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def insert(self, keys: KeysLike) -> Array: ...
    def insert(self, keys: KeysLike) -> Array:
        """Add keys, and return a mask in the form of `keys`.

        It is true in one row of each key that was not stored yet.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError
            When the keys do not fit the table, which stays unchanged.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError
            When a shard cannot grow; the table is lost.
        """
        return self._ask(Verb("insert"), keys, shown=[MASK])[0]

    def execute(self, ops: KeysLike, keys: KeysLike) -> Array:
        """Find, add and remove keys in one call, side by side.

        As `DistributedMap.execute`, without values.

        Returns
        -------
        array of bool
            In the row of each operation, whether the key was found, created or removed; in the form
            of `keys`.
        """
        self._check_in_order()
        return self._ask(Verb("execute"), keys, ops=ops, shown=[MASK])[0]

    def items(self) -> Any:
        """Return all stored keys, as `keys`; an independent table returns each worker's.

        All tables have this name for their content.
        """
        return self._contents("items", [self.key_dtype])[0]
