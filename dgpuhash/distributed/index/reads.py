"""Read verbs of a distributed index: merge, lookup, contains and find."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from typing import Any, overload

import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import gather_watched
from dgpuhash.distributed.cluster.client import in_task_of
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import frame_of_payload
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.index.handle import Handle
from dgpuhash.distributed.ingest.source import (
    check_all_partitions,
    frame_of,
    meta_of,
    partitions_of,
)
from dgpuhash.distributed.merge.explain import sent_to_shards
from dgpuhash.distributed.merge.verb import merge_with_index, rows_lazily
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.query.fetch import probe_shards, query_keys
from dgpuhash.distributed.query.merge_collective import collective_merge
from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.distributed.query.plan import IndexMerge, MergePlans, persist_unfused
from dgpuhash.distributed.shards.stats import has_unique_keys
from dgpuhash.errors import SpecError
from dgpuhash.frames import (
    Lookup,
    LookupMixin,
    Query,
    frames_of,
    join_columns,
    lookup_rows,
    needed_columns,
)
from dgpuhash.frames.merge.arguments import ALL_ROWS, check_promote, uniques_of
from dgpuhash.frames.merge.keys import index_keys, key_values
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import (
    AnyFrame,
    Array,
    ArrayKind,
    Frame,
    IndexHow,
    Promote,
    QueryLike,
    Validate,
)

# Keys up to this size travel inside the task.
SMALL_NBYTES = 1 << 20


class Lookups(LookupMixin):
    """Lookup methods at one epoch of a distributed index, run by tasks.

    Parameters
    ----------
    client : distributed.Client
    descriptor : Descriptor
    sparing : Sparing
    """

    def __init__(self, client: Client, descriptor: Descriptor, sparing: PruningOptions) -> None:
        self._client, self._descriptor, self._sparing = client, descriptor, sparing

    def _query(self, keys: Any) -> Query:
        check_all_partitions(keys)
        return Query.of(keys, self._descriptor.encoder, self._descriptor.meta)

    @function_translates_memory_errors
    def _look_up(self, asked: Any, *, keyed: bool, promote: str | None) -> Lookup:
        answers = self._answers(asked, _look_up, keyed, promote)
        if len(answers) == 1:
            return answers[0]
        frames = frames_of(asked)
        rows, first = [], 0
        for answer in answers:
            rows.append(answer.query_rows + first)
            first += len(answer.found)
        return Lookup(
            frames.concat([answer.frame for answer in answers]),
            frames.xp.concatenate(rows),
            frames.xp.concatenate([answer.found for answer in answers]),
        )

    @function_translates_memory_errors
    def _found(self, asked: Any) -> Any:
        answers = self._answers(asked, _are_stored)
        return answers[0] if len(answers) == 1 else frames_of(asked).xp.concatenate(answers)

    def _answers(self, asked: Any, task: Any, *options: Any) -> list[Any]:
        """Return the result of `task` for each batch of keys, in order."""
        client, descriptor = self._client, self._descriptor
        options = descriptor, self._sparing, *options
        if in_task_of(client):
            # Further tasks would wait for threads that tasks like this one hold. Unwrapped, since
            # the user's task may handle the error.
            return [task.__wrapped__(asked, *options)]
        names = list(join_columns(asked, descriptor.encoder))
        small = frames_of(asked).nbytes(asked) <= SMALL_NBYTES
        pieces = [asked] if small else partitions_of(client, asked, names, descriptor.workers)
        name = f"dgpuhash-lookup-{uuid.uuid4().hex}"
        futures = [
            client.submit(task, piece, *options, key=f"{name}-{number}", pure=False, priority=10)
            for number, piece in enumerate(pieces)
        ]
        return gather_watched(client, descriptor.workers, futures)


@raise_without_traceback()
def _look_up(
    asked: Any, descriptor: Descriptor, sparing: PruningOptions, keyed: bool, promote: str | None
) -> Lookup:  # fmt: skip
    meta, names = descriptor.meta, descriptor.encoder.names
    join_columns(asked, descriptor.encoder)
    moved = needed_columns(meta, descriptor.encoder, names)
    query_rows, found = _match(asked, descriptor, "inner", moved, sparing)
    stored, frames = frame_of_payload(found, meta[moved]), frames_of(asked)
    like = meta[list(names)]
    # Values decide what becomes of keys of two dtypes alone, and rows come without their keys.
    alike = descriptor.encoder.is_untyped or frames.dtypes(asked) == frames.dtypes(like)
    like = asked if alike else sample(like)
    keys = index_keys(key_values(asked, names), names, like, names, labelled=False)
    pairs = query_rows, frames.xp.arange(len(query_rows))
    return lookup_rows(asked, keys, stored, (None, pairs), keyed=keyed, promote=promote)


@raise_without_traceback()
def _are_stored(asked: Any, descriptor: Descriptor, sparing: PruningOptions) -> Any:
    rows, _ = _match(asked, descriptor, "semi", [], sparing)
    found = frames_of(asked).xp.zeros(len(asked), dtype=bool)
    found[rows] = True
    return found


def _match(
    asked: Any,
    descriptor: Descriptor,
    how: str,
    columns: Sequence[Hashable],
    sparing: PruningOptions,
) -> tuple[Any, Any]:
    keys = query_keys(asked, descriptor, descriptor.encoder.names)
    return probe_shards(current_worker(), keys, len(asked), descriptor, how, columns, sparing)


class ReadMixin(Handle):
    """Read verbs of `DistributedIndex`: `merge`, and those of `LookupMixin`."""

    def merge(
        self,
        left: Frame,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: IndexHow = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: tuple[str | None, str | None] = ("_x", "_y"),
        indicator: bool | str = False,
        validate: Validate | None = None,
        promote: Promote | None = None,
        persist: bool = False,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> AnyFrame:
        """Return the lazy merge of `left` with the index, partition by partition.

        The result is a Dask DataFrame with the partitions of `left` and their row order; divisions
        are unknown, and rows are numbered from 0 in each partition (semi and anti keep the labels
        of `left`). Rows of the index with one key come in the order of insertion; those of a heavy
        key, which the index has spread over its shards (thousands of rows, and a sixteenth of a
        shard), come shard by shard. The merge reads the epoch that is the newest at this call:
        computing it after a later change raises `IndexChanged`.

        Parameters
        ----------
        left : Dask DataFrame
            Or a pandas or cuDF one, which becomes one partition.
        on : label or list of labels, optional
            Key columns of the same name on both sides; default: the index's.
        left_on : label or list of labels, optional
            Key columns of `left`, where their names differ.
        how : {"inner", "left", "right", "outer", "semi", "anti"}
            Semi: the rows of `left` with a match; anti: those without. Right and outer add a
            partition for each shard: rows of the index that nothing matches.
        columns : list of labels, optional
            Columns of the index to add; default: all. Others are not moved.
        suffixes : tuple
            Suffixes of columns with the same name on both sides.
        indicator : bool or str
            A column, called ``"_merge"`` or so, that tells on which side a row was found; semi and
            anti have none.
        validate : str, optional
            ``"1:1"``, ``"1:m"``, ``"m:1"`` or ``"m:m"``, as in pandas: which keys are unique. Those
            of `left` are checked as it is computed, in a pass before the merge.
        promote : {"nullable", "pandas"}, optional
            What integers and booleans of a side that may lack rows become, as for `dgpuhash.merge`
            of Dask frames: nullable ones by default.
        persist : bool
            Compute the merge at once and keep it on the workers, as ``persist`` of the lazy merge.
            Where `left` is persisted on workers with shards, and the columns that are sent are
            numbers or datetimes without nulls, all workers merge in one collective, faster than a
            task for each partition; the result is then computed, on GPUs too, when this call
            returns. With one worker, or replicated rows, no column is sent. Tasks do the merge
            where a worker has spilled data, or would have to for the results.
        bloom_filter : {"auto", True, False}
            Whether workers drop rows without a match before they query other shards, by a Bloom
            filter of 11 bits a row of the index, which each worker with a shard gets at first use
            and keeps until a change. ``"auto"``: where a quarter of a worker's last rows had no
            match, on GPUs three quarters of very many, and its rows since the last change were as
            many as its shard has; a collective counts all workers' rows in the collectives of this
            handle.
        deduplicate : {"auto", True, False}
            Whether tasks query each distinct key of the partitions that they merge together once.
            ``"auto"``: where a sample shows that keys repeat often enough to pay. A collective
            queries all rows.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing, overlap, or have types that never compare.
        UnsupportedError
            For other kinds of join, with the way to get them; when `left` is no frame, or Dask has
            lost partitions of the persisted `left`.
        MergeError
            When the merge is computed, if `validate` fails.
        ClosedError
            When the index was closed.
        IndexNotFound
            When another client has closed it, or the scheduler has forgotten it.
        IndexLost
            When the scheduler is gone; with `persist` also when a worker is lost.
        SpecError
            When `bloom_filter` or `deduplicate` is none of the three values, `persist` no bool,
            `suffixes` no pair of texts, or `indicator` or `validate` not known.

        Warns
        -----
        UserWarning
            In the task of each partition where `FrameIndex.merge` warns: integers meet floats,
            and some floats of the partition or of the index are no integers.

        Notes
        -----
        With independent or replicated rows, or one shard, there is nothing to prune: both switches
        have no effect.

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
        sparing = PruningOptions.of(bloom_filter, deduplicate)
        checks_left, checks_right = uniques_of(validate)
        check_promote(promote)
        asked = meta_of(left), on, left_on, how, columns, suffixes, sparing, indicator, promote
        if persist and how not in ALL_ROWS and not checks_left:

            def together(descriptor: Descriptor) -> Any:
                if checks_right and not has_unique_keys(self._client, descriptor):
                    return None
                merging = self._merging_at(descriptor)
                return collective_merge(
                    self._client, merging.plan(self._client, *asked), left, merging.absences
                )

            merged = self._reading(together)
            if merged is not None:
                return merged
        # Lazy tasks cannot be retried here at another epoch: refresh first.
        self._refresh(self._current())
        client = self._client

        def planned(descriptor: Descriptor) -> tuple[IndexMerge, tuple[bool, bool]]:
            check = checks_right and not has_unique_keys(client, descriptor)
            checks = checks_left, check
            merging = self._merging_at(descriptor)
            return merging.plan(client, *asked), checks

        plan, checks = self._reading(planned)
        if any(checks) or plan.probe.how in ALL_ROWS:
            lazy = merge_with_index(plan.probe, left, checks)
        else:
            lazy = plan.lazy(left, client)
        return persist_unfused(self._client, lazy) if persist else lazy

    def to_dask_dataframe(self) -> AnyFrame:
        """Return the rows as a lazy Dask DataFrame, one partition a shard.

        They are those of the epoch of this call: computing it after a change raises `IndexChanged`.
        In a partition they have the order of insertion.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
        >>> with DistributedIndex.build(planes, on="tailnum", client=client) as index:
        ...     int(index.to_dask_dataframe()["seats"].sum().compute())
        237
        >>> client.close()
        """
        self._refresh(self._current())
        return rows_lazily(self._current())

    def head(self, n: int = 5) -> AnyFrame:
        """Return the first `n` rows, of the first shards."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise SpecError(f"n={n!r}; give a number of rows, 0 or more")
        return self.to_dask_dataframe().head(n, npartitions=-1)

    def explain(
        self,
        left: Frame,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: IndexHow = "inner",
        columns: Sequence[Hashable] | None = None,
    ) -> str:
        """Describe in words how a merge of `left` runs: probe side, storage and traffic.

        Parameters
        ----------
        left, on, left_on, how, columns
            As for `merge`, which raises the same errors.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
        >>> flights = dd.from_pandas(pd.DataFrame({"tailnum": ["N2", "N9"]}), npartitions=1)
        >>> with DistributedIndex.build(planes, on="tailnum", client=client) as index:
        ...     print(index.explain(flights, how="outer"))  # doctest: +ELLIPSIS
        outer merge: 1 partition of the left side asks for ['tailnum'], in its order
        stored: 2 rows, ... in 2 shards, distributed
        sent: keys to their owners; back: ['seats']
        then: 2 partitions with rows of the index that nothing matches
        >>> client.close()
        """
        left = frame_of(left)
        meta, sparing = meta_of(left), PruningOptions.of("auto", "auto")
        asked = meta, on, left_on, how, columns, ("_x", "_y"), sparing
        client = self._client
        probe = self._reading(lambda now: self._merging_at(now).plan(client, *asked)).probe
        self.stats()
        parts = getattr(left, "npartitions", 1)
        asks = (
            "partition of the left side asks" if parts == 1 else "partitions of the left side ask"
        )
        sent = sent_to_shards(probe.descriptor.placement)
        back = "which keys are there" if probe.how in ("semi", "anti") else repr(list(probe.moved))
        lines = [
            f"{probe.how} merge: {parts:,} {asks} for {list(probe.left_on)!r}, in its order",
            f"stored: {self._held_in_words()} in {self._placed_in_words()}",
            f"sent: {sent}; back: {back}",
        ]
        if probe.how in ALL_ROWS:
            tails = len(probe.descriptor.whole)
            lines.append(f"then: {tails} partitions with rows of the index that nothing matches")
        return "\n".join(lines)

    def _merging_at(self, descriptor: Descriptor) -> MergePlans:
        merging = self._merging
        if merging is None or not merging.serves(descriptor):
            self._merging = merging = MergePlans(descriptor)
        return merging

    @overload
    def lookup(
        self, keys: pd.DataFrame, *, promote: Promote | None = None,
        bloom_filter: Switch = "auto", deduplicate: Switch = "auto",
    ) -> pd.DataFrame: ...  # fmt: skip
    @overload
    def lookup(
        self, keys: QueryLike, *, promote: Promote | None = None,
        bloom_filter: Switch = "auto", deduplicate: Switch = "auto",
    ) -> AnyFrame: ...  # fmt: skip
    def lookup(
        self, keys: QueryLike, *, promote: Promote | None = None,
        bloom_filter: Switch = "auto", deduplicate: Switch = "auto",
    ) -> AnyFrame:  # fmt: skip
        """Return the row of each key, as `FrameIndex.lookup`, with pruning options.

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
        sparing = PruningOptions.of(bloom_filter, deduplicate)
        return self._reading(
            lambda descriptor: self._asking(descriptor, sparing).lookup(keys, promote=promote)
        )

    @overload
    def contains(
        self, keys: ArrayKind, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> ArrayKind: ...
    @overload
    def contains(
        self, keys: QueryLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array: ...
    def contains(
        self, keys: QueryLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array:
        """Return a mask of stored keys, as `FrameIndex.contains`, with pruning options."""
        sparing = PruningOptions.of(bloom_filter, deduplicate)
        return self._reading(lambda descriptor: self._asking(descriptor, sparing).contains(keys))

    def find(
        self, keys: QueryLike, *, promote: Promote | None = None,
        bloom_filter: Switch = "auto", deduplicate: Switch = "auto",
    ) -> Lookup:  # fmt: skip
        """Return the matches of keys, as `FrameIndex.find`, with pruning options."""
        sparing = PruningOptions.of(bloom_filter, deduplicate)
        return self._reading(
            lambda descriptor: self._asking(descriptor, sparing).find(keys, promote=promote)
        )

    def _asking(self, descriptor: Descriptor, sparing: PruningOptions) -> Lookups:
        return Lookups(self._client, descriptor, sparing)
