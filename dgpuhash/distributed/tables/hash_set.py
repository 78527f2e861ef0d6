"""DistributedSet: distinct keys on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client
from numpy.typing import DTypeLike

from dgpuhash.distributed.collective.group import Transport
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables.arguments import dtype_of
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.maintenance import Upkeep
from dgpuhash.seeds import draw_seed
from dgpuhash.spec import TableSpec

__all__ = ["DistributedSet"]


class DistributedSet(Upkeep):
    """A set of distinct keys on the workers of a Dask cluster: a `HashSet` in parts.

    A key belongs to one worker, by its hash. A verb works on all of them at once: each puts the
    chunks that it has in the order of their owners, they exchange them, ask their own parts, and
    answers go back the same way.

    Parameters
    ----------
    key_dtype : dtype
        As for `HashSet`.
    capacity : int
        Keys to make room for in all; the parts grow by themselves beyond.
    max_load : float
        Share of the slots in use above which a part grows.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the tables' hash function; default: a new one. Owners have another one in any case.
    client : distributed.Client, optional
        Default: the current one.
    workers : list of str, optional
        Addresses of the workers that shall hold the parts; default: all.
    exchange : {"auto", "comm", "nccl", "peer"}
        What carries rows between workers: Dask's comms; NCCL between GPUs; or GPUs of one host put
        them into each other's memory, of which the tables then share up to 1 GiB on each, and as
        much as a batch that fills a table, or the largest one so far, takes there, up to 1/16 of a
        GPU; both beside any pool. ``"auto"``: the last that the workers can use. Where it fails
        between workers that are there, comms go on, and a warning says so.
    piece_rows : int, optional
        Rows of a worker that are put in the order of their owners at once; two to four times their
        bytes are what a verb takes besides its arguments and answers; twice as much where each key
        is asked for once, and as often the bytes of lists that it finds. Default: 2²⁷.

    Raises
    ------
    KeyTypeError, SpecError, DeviceError
        As for `HashSet`; a device that workers do not have is refused by the first verb, and so is
        a `capacity` that they have no memory for (OutOfMemoryError).
    UnsupportedError
        When there is no client, or the cluster has no workers, or not these; when workers cannot
        exchange so.

    Notes
    -----
    Keys are Dask arrays, computed where they are and asked for there; the answer is a Dask array
    with the same chunks on the same workers, which is computed already. Or they are arrays of the
    client's own (NumPy, pandas, CuPy, lists), which are sent to the workers and answered in kind.
    One may ask for keys of another dtype: those that `key_dtype` does not hold are absent.

    A change that fails before anything was changed, such as for keys of another dtype, leaves the
    table as it was. One that fails later, when a worker is lost or has no memory, leaves it lost:
    every verb raises `IndexLost`, and it must be made again.

    A table has one handle, which threads may share; its parts stay on the workers until it is
    closed, dropped, or its program ends. Without a word of it, as when its client is closed first
    or its process killed, they stay for 10 s more. A verb of a table that was closed, or whose
    client is, raises `ClosedError`.

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
        *,
        max_load: float = 0.9,
        device: str | None = None,
        seed: int | None = None,
        client: Client | None = None,
        workers: Sequence[str] | None = None,
        exchange: Transport = "auto",
        piece_rows: int | None = None,
    ) -> None:
        seed = draw_seed() if seed is None else seed
        super().__init__(
            TableSpec.of("set", key_dtype, max_load=max_load, seed=seed),
            capacity,
            client=client,
            workers=workers,
            exchange=exchange,
            device=device,
            piece_rows=piece_rows,
        )

    @classmethod
    def from_keys(cls, keys: Any, **settings: Any) -> DistributedSet:
        """A set of `keys`, of their dtype and on their device; `settings` as for the class."""
        made = cls(dtype_of(keys, "keys"), **settings)
        with made._closed_on_error():
            made._ask(Verb("add"), keys)
        return made

    def insert(self, keys: Any) -> Any:
        """Add keys: a mask in their form, true in one row of each that was not stored yet.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError
            When the keys do not fit the table, which is as it was.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError
            When a part cannot grow; the table is lost.
        """
        return self._ask(Verb("insert"), keys, shown=[MASK])[0]

    def items(self) -> Any:
        """All keys: `keys`, by the name that all tables have for their content."""
        return self.keys()
