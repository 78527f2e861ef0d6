"""DistributedBloomFilter: a Bloom filter on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import client_of, seceding, workers_of
from dgpuhash.distributed.partition.descriptor import SavedRevision
from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.storage.arrow_files import RowsFile
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.tables import contents
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.batch import dtype_of
from dgpuhash.distributed.tables.maintenance import TableMaintenance
from dgpuhash.distributed.tables.saved import SavedTable
from dgpuhash.errors import FormatError, UnsupportedError
from dgpuhash.tables import BloomFilter
from dgpuhash.tables.bloom.blocks import bounds
from dgpuhash.tables.bloom.spec import FilterSize, bloom_spec, check_same_shape
from dgpuhash.typing import (
    Array,
    ArrayKind,
    Device,
    DistributedFilterSettings,
    KeysLike,
    OnWorkers,
)


class DistributedBloomFilter(TableMaintenance):
    """Bloom filter, sharded over the workers of a Dask cluster.

    One `BloomFilter` whose blocks are spread: each worker has the blocks of a range of hashes, and
    the keys whose hashes are there. A verb sends keys to their owners, and brings the answers back,
    as for `DistributedSet`. Its bits, and so its rate, are those of a `BloomFilter` of the same
    size and seed; only a block that lies at a bound of two ranges is on both workers, each with
    the bits of its own keys.

    Parameters
    ----------
    key_dtype : dtype
        As for `BloomFilter`.
    capacity : int, optional
        Distinct keys, of all workers, for which `rate` holds.
    rate : float
        Expected share of other keys that pass when `capacity` keys were inserted, from 0.0005 to
        0.25; see `BloomFilter` for the bits that it takes.
    nbytes : int, optional
        Bytes of memory on all workers together, instead of `capacity`.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the hash function, which also chooses owners; default: a new one. Filters that are
        to be united need the same one.
    client, workers, exchange, piece_rows
        As for `DistributedSet`.

    Raises
    ------
    KeyTypeError, SpecError, DeviceError
        As for `BloomFilter`.
    UnsupportedError
        When there is no client, or the cluster has no workers, or lacks some of `workers`; when
        workers cannot use the `exchange`.

    Notes
    -----
    Keys, answers, failures and threads are as for `DistributedSet`.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> seen = DistributedBloomFilter("int64", capacity=1000, client=client)
    >>> seen.insert(da.arange(1000, chunks=100))
    >>> bool(seen.contains(da.arange(1000, chunks=250)).all().compute())
    True
    >>> seen.close(); client.close()
    """

    kind: str = BloomFilter.kind

    def __init__(
        self,
        key_dtype: DTypeLike,
        capacity: int | None = None,
        *,
        rate: float = 0.01,
        nbytes: int | None = None,
        device: Device | None = None,
        seed: int | None = None,
        **where: Unpack[OnWorkers],
    ) -> None:
        parts = len(where.get("workers") or workers_of(client_of(where.get("client"))))
        spec = bloom_spec(key_dtype, capacity, rate, nbytes, seed, parts)
        super().__init__(spec, 0, device=device, owner_seed=spec.seed, **where)

    @classmethod
    def from_keys(
        cls,
        keys: KeysLike,
        capacity: int | None = None,
        **settings: Unpack[DistributedFilterSettings],
    ) -> DistributedBloomFilter:
        """Return a filter of `keys`, of their dtype and on their device.

        Its capacity is their number unless `capacity`, or ``nbytes`` among the `settings` of the
        class, says otherwise. The number of rows of a Dask array must be known for that.
        """
        if capacity is None and "nbytes" not in settings:
            given: Any = keys
            rows = given.shape[0] if hasattr(given, "shape") else len(given)
            if rows != rows:
                raise UnsupportedError(
                    "the number of keys is unknown; give capacity=, or call "
                    "keys.compute_chunk_sizes() before"
                )
            capacity = int(rows)
        made = cls(dtype_of(keys, "keys"), capacity, **settings)
        with made._closed_on_error():
            made.insert(keys)
        return made

    @property
    def capacity(self) -> int:
        """Number of distinct keys that the filter is sized for."""
        return FilterSize.of(self._spec).capacity

    @property
    def rate(self) -> float:
        """Expected false-positive rate at the present fill; reads the whole filter."""
        figures = self.stats()
        if not len(figures):
            return 0.0
        return float(np.average(figures["rate"], weights=figures["blocks"]))

    def insert(self, keys: KeysLike) -> None:
        """Insert keys: a Dask array, or an array of the client.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError
            When the keys do not fit the filter, which stays unchanged.
        IndexLost
            When a worker was lost, or the filter has been.
        """
        self._ask(Verb("add"), keys)

    @overload
    def contains(self, keys: ArrayKind, *, deduplicate: Switch = "auto") -> ArrayKind: ...
    @overload
    def contains(self, keys: KeysLike, *, deduplicate: Switch = "auto") -> Array: ...
    def contains(self, keys: KeysLike, *, deduplicate: Switch = "auto") -> Array:
        """Return a mask of keys that may have been inserted, in input order and form.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        deduplicate : {"auto", True, False}
            As for `DistributedSet.contains`.
        """
        verb = Verb("contains", sparing=PruningOptions.of(False, deduplicate))
        return self._ask(verb, keys, shown=[MASK])[0]

    def union(self, *others: DistributedBloomFilter) -> Self:
        """Return a new filter of the keys of this one and of `others`; also ``a | b``.

        ``a |= b`` takes the keys of `b` into `a`.

        Raises
        ------
        SpecError
            When filters differ in key dtype, size or seed.
        UnsupportedError
            When they are on different workers.
        DeviceError
            When they are on different devices.
        IndexLost
            When a worker was lost, or a filter has been.
        """
        made = self.copy()
        with made._closed_on_error():
            for other in others:
                made |= other
        return made

    def __or__(self, other: DistributedBloomFilter) -> Self:
        return self.union(other) if isinstance(other, DistributedBloomFilter) else NotImplemented

    def __ior__(self, other: DistributedBloomFilter) -> Self:
        if not isinstance(other, DistributedBloomFilter):
            return NotImplemented
        if other is not self:
            self._take(other)
        return self

    def _filled(self) -> str:
        return f"for {self.capacity:,} keys"

    def _take(self, other: DistributedBloomFilter) -> None:
        """Add the bits of another filter, shard by shard."""
        check_same_shape(self._spec, other._spec)
        if self._workers != other._workers:
            raise UnsupportedError(
                f"filters on {len(self._workers)} and {len(other._workers)} workers, not the same "
                "in the same order, cannot be united; save one and load it with the other's "
                "workers="
            )
        with ExitStack() as entered:
            entered.enter_context(seceding(self._client))
            # Two threads that unite the same filters wait for them in one order.
            for each in sorted((self, other), key=lambda one: one._uid):
                entered.enter_context(each._at_work())
            entered.enter_context(self._alone)
            if other._device is None or not other._open:
                return
            self._settle(other._device)
            self._change_shards("union", contents.unite_filter_shard, other._uid, other._epoch)

    def _fill(
        self, folder: Folder, saved: SavedTable, files: Sequence[RowsFile], parts: Sequence[int]
    ) -> None:
        """Set the saved bits of the shards `parts`."""
        blocks, shards = FilterSize.of(saved.spec).blocks, len(saved.shards)
        for number, rows in enumerate(saved.shards):
            first, end = bounds(blocks, number, shards)
            if (held := sum(rows.batches)) != end - first:
                raise FormatError(
                    f"{folder.url} is damaged: {rows.file} has {held:,} of {end - first:,} blocks; "
                    "save the filter again"
                )
        self._settle(None)
        there = [self._workers[part] for part in parts]
        made = run_on_workers(
            self._client, there, contents.read_filter_shard,
            self._uid, self._epoch, folder.url, saved.shards,
        )  # fmt: skip
        filled = dict(zip(parts, made, strict=True))
        self._held = [filled.get(part, held) for part, held in enumerate(self._held)]
        self._saved = SavedRevision(folder.url, saved.uid, saved.epoch), self._epoch
