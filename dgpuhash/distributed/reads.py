"""Reading: the verbs of an index on workers that change nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.distributed.handle import Handle
from dgpuhash.distributed.ingest.source import frame_of, meta_of
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.policy import Sparing, Switch
from dgpuhash.distributed.query.lookup import Lookups
from dgpuhash.distributed.query.merge_collective import merge_together
from dgpuhash.distributed.query.plan import Merging, persist_whole
from dgpuhash.errors import SpecError
from dgpuhash.frames import Lookup

__all__ = ["Reading"]


class Reading(Handle):
    """The verbs of `DistributedIndex` that change nothing: `merge`, and those of `Searchable`."""

    def merge(
        self,
        left: Any,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: str = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: tuple[str | None, str | None] = ("_x", "_y"),
        persist: bool = False,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> Any:
        """A lazy Dask DataFrame: each partition of `left` merged with the index.

        Partitions and the order of their rows are those of `left`; divisions are unknown, and rows
        are numbered from 0 in each partition (semi and anti keep the labels of `left`). Rows of the
        index with one key come in the order of insertion; where they are so many that the index has
        spread them over its shards (thousands, and a sixteenth of a shard), shard by shard.
        It is of the epoch that is the newest when this is called, and of no other: computing it
        after a later change raises `IndexChanged`.

        Parameters
        ----------
        left : Dask DataFrame
            Or a pandas or cuDF one, which becomes one partition.
        on : label or list of labels, optional
            Key columns of the same name on both sides; default: the index's.
        left_on : label or list of labels, optional
            Key columns of `left`, where their names differ.
        how : {"inner", "left", "semi", "anti"}
            Semi: the rows of `left` that have a match; anti: the others.
        columns : list of labels, optional
            Columns of the index to add; default: all. Others are not moved.
        suffixes : tuple
            For columns of the same name on both sides.
        persist : bool
            Compute it at once and keep it on the workers, as ``persist`` of the lazy merge does.
            Where `left` is persisted on workers with shards, and the columns that travel are
            numbers or moments without nulls, all workers do it together in one phase, which takes
            less than a task for each partition; it is there then, and GPUs are done with it, when
            this call returns. From one worker, or to replicated rows, no column travels. Tasks do
            it where a worker has spilled data, or would have to for the results.
        bloom_filter : {"auto", True, False}
            Whether workers leave rows without a match out before they ask the others, by a filter
            of 11 bits a row of the index, which each worker with a shard gets at first use and
            keeps until a change. ``"auto"``: where a quarter of a worker's last rows had no match,
            on GPUs three quarters of very many, and all those since the last change were as many as
            its shard has rows; a phase goes by all workers' rows in the phases of this handle.
        deduplicate : {"auto", True, False}
            Whether tasks ask for each key of the partitions that they merge together once.
            ``"auto"``: where a sample says that keys come often enough for that to pay. A phase
            asks about all rows.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing, never compare or overlap.
        UnsupportedError
            For other kinds of join, with the way to get them; when `left` is no frame, or a
            persisted one of which Dask has lost partitions.
        ClosedError
            When the index was closed.
        IndexNotFound
            When another client has closed it, or the scheduler has forgotten it.
        IndexLost
            When the scheduler is gone; with `persist` also when a worker is lost.
        SpecError
            When `bloom_filter` or `deduplicate` is none of the three, `persist` no truth value, or
            `suffixes` no pair of texts.

        Warns
        -----
        UserWarning
            In the task of each partition where `FrameIndex.merge` would: integers meet floats of
            which some, in the partition or in the index, are no integers.

        Notes
        -----
        Of independent and replicated rows, and of an index with one shard, there is nothing to
        leave out; both switches have no effect then.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
        >>> flights = dd.from_pandas(pd.DataFrame({"tailnum": ["N2", "N2", "N9"]}), npartitions=1)
        >>> with DistributedIndex.build(planes, on="tailnum", client=client) as index:
        ...     index.merge(flights, bloom_filter=True, deduplicate=True).compute()
        ...     index.stats()[["absent_rows", "repeated_rows"]].sum().tolist()
          tailnum  seats
        0      N2    182
        1      N2    182
        [1, 1]
        >>> client.close()
        """
        if not isinstance(persist, bool):
            raise SpecError(f"persist={persist!r}; use True or False")
        left = frame_of(left)
        sparing = Sparing.of(bloom_filter, deduplicate)
        asked = meta_of(left), on, left_on, how, columns, suffixes, sparing
        if persist:

            def together(descriptor: Descriptor) -> Any:
                merging = self._merging_at(descriptor)
                return merge_together(
                    self._client, merging.plan(self._client, *asked), left, merging.absences
                )

            merged = self._reading(together)
            if merged is not None:
                return merged
        # Tasks that nobody waits for here cannot be asked again at another epoch.
        self._refreshed(self._current())
        client = self._client
        plan = self._reading(lambda current: self._merging_at(current).plan(client, *asked))
        lazy = plan.lazy(left, client)
        return persist_whole(self._client, lazy) if persist else lazy

    def _merging_at(self, descriptor: Descriptor) -> Merging:
        merging = self._merging
        if merging is None or not merging.serves(descriptor):
            self._merging = merging = Merging(descriptor)
        return merging

    def lookup(
        self, keys: Any, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Any:
        """As `FrameIndex.lookup`, with the switches of `merge`.

        Examples
        --------
        >>> import pandas as pd
        >>> from dgpuhash.distributed import DistributedIndex
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> ages = pd.DataFrame({"name": ["Ada", "Bo"], "age": [36, 7]})
        >>> with DistributedIndex.build(ages, on="name", client=client) as index:
        ...     print(index.lookup(["Bo", "Eve"], bloom_filter=True))
        ...     print(int(index.stats()["absent_rows"].sum()), "was not asked about")
          name  age
        0   Bo  7.0
        1  Eve  NaN
        1 was not asked about
        >>> client.close()
        """
        sparing = Sparing.of(bloom_filter, deduplicate)
        return self._reading(lambda descriptor: self._asking(descriptor, sparing).lookup(keys))

    def contains(
        self, keys: Any, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Any:
        """As `FrameIndex.contains`, with the switches of `merge`."""
        sparing = Sparing.of(bloom_filter, deduplicate)
        return self._reading(lambda descriptor: self._asking(descriptor, sparing).contains(keys))

    def find(
        self, keys: Any, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Lookup:
        """As `FrameIndex.find`, with the switches of `merge`."""
        sparing = Sparing.of(bloom_filter, deduplicate)
        return self._reading(lambda descriptor: self._asking(descriptor, sparing).find(keys))

    def _asking(self, descriptor: Descriptor, sparing: Sparing) -> Lookups:
        return Lookups(self._client, descriptor, sparing)
