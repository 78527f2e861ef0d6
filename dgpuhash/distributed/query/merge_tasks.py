"""Merge task: send a partition's keys to their owners, and join the matches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, islice, pairwise
from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe.dispatch import meta_nonempty
from dask.sizeof import sizeof

from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.serialization import (
    EmptyFramePickle,
    Payload,
    chunk_nbytes,
    concat_payloads,
    frame_of_payload,
    is_plain,
    plain_arrays,
)
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.policy import NO_PRUNING, PruningOptions
from dgpuhash.distributed.query.fetch import keys_within_memory, probe_shards, query_keys
from dgpuhash.distributed.query.task_batching import Coalescer, WaitingTask, WaitingTasks
from dgpuhash.distributed.shards.secession import SecessionBudget, most_seceded_nbytes
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of, key_names, needed_columns
from dgpuhash.frames.dataframes.cudf_columns import two_rows
from dgpuhash.frames.int_float_warning import IntFloatKey, int_float_keys, warn_int_float_keys
from dgpuhash.frames.merge.partition import PartitionPlan, StandingPlan
from dgpuhash.tables.memory_errors import memory_errors_of
from dgpuhash.tables.select import gather_rows

# By device: batches of partitions at work at once. On GPUs few large ones are faster.
AT_ONCE = {"cpu": 2, "cuda": 1}

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ProbePartition:
    """Partition to be merged, with its keys.

    Attributes
    ----------
    left : DataFrame
    alike : bool
        Whether its columns are those that the merge was planned with.
    arrays : list of arrays or None
        All its columns, if it is alike and they can be arrays.
    keys : Payload
    meets : bool
        Whether its keys, of the planned dtypes, can be probed together with others'.
    nbytes, keys_nbytes : int
        Bytes of the partition, and of its keys.
    """

    left: Any
    alike: bool
    arrays: list[Any] | None
    keys: Payload
    meets: bool
    nbytes: int
    keys_nbytes: int


# The matches of a partition, whose frame may be a payload.
Found = tuple[ProbePartition, Any, Payload | None]


@dataclass(frozen=True, slots=True)
class Probe(EmptyFramePickle):
    """Merge of partitions with the index.

    Attributes
    ----------
    descriptor : Descriptor
    left_on : tuple of labels
        The columns of the partition that are compared with the index's key columns.
    how : str
    columns : tuple of labels or None
        The columns of the index that are wanted.
    suffixes : tuple
    moved : tuple of labels
        The columns of the index that are fetched.
    index_meta : DataFrame
        An empty frame with the columns of the index that the merge uses.
    left_meta, meta : DataFrame
        Empty frames like the partitions, and like the results.
    left_labels, left_dtypes : list
        Labels and dtypes of the partitions.
    plain_keys : tuple of int or None
        Positions of `left_on` in `left_meta`, where the dtypes are those of the index's keys.
    plain : bool
        Whether the results are the partitions' columns beside the index's, none promoted.
    sparing : PruningOptions
    mixed : tuple of Mixed
        Key columns that partitions warn about; before planning, that they may warn about.
    plan : PartitionPlan
        How partitions are merged, where the results are not `plain`.
    marks : str
        Name of the join whose marks the found rows get; empty for none.
    """

    descriptor: Descriptor
    left_on: tuple[Hashable, ...]
    how: str
    columns: tuple[Hashable, ...] | None
    suffixes: tuple[str | None, str | None]
    moved: tuple[Hashable, ...]
    index_meta: Any
    left_meta: Any
    meta: Any
    left_labels: list[Hashable]
    left_dtypes: list[Any]
    plain_keys: tuple[int, ...] | None
    plain: bool
    plan: PartitionPlan
    sparing: PruningOptions = NO_PRUNING
    mixed: tuple[IntFloatKey, ...] = ()
    marks: str = ""

    @classmethod
    def by_plan(cls, descriptor: Descriptor, plan: PartitionPlan, marks: str = "") -> Probe:
        """Return the probe for a merge plan; it marks matched rows."""
        return cls(
            descriptor,
            left_on=(),
            how=plan.query_how,
            columns=None,
            suffixes=("_x", "_y"),
            moved=tuple(plan.fetched),
            index_meta=plan.stored_meta,
            left_meta=plan.probing_meta,
            meta=plan.stored_meta if plan.is_filter else plan.meta,
            left_labels=list(plan.probing_meta),
            left_dtypes=frames_of(plan.probing_meta).dtypes(plan.probing_meta),
            plain_keys=None,
            plain=False,
            plan=plan,
            marks=marks,
        )

    @classmethod
    def of(
        cls,
        left_meta: Any,
        descriptor: Descriptor,
        left_on: tuple[Hashable, ...],
        how: str,
        columns: tuple[Hashable, ...] | None,
        suffixes: tuple[str | None, str | None],
        indicator: bool | str = False,
        promote: str | None = None,
    ) -> Probe:
        """Return the probe for partitions like `left_meta`."""
        names = descriptor.encoder.names
        moved = needed_columns(descriptor.meta, descriptor.encoder, left_on, columns)
        wanted = {*moved, *names}
        index_meta = descriptor.meta[[label for label in descriptor.meta if label in wanted]]
        frames, labels = frames_of(left_meta), list(left_meta)
        plan = StandingPlan.to_index(
            sample(left_meta), sample(index_meta), how, left_on, names, suffixes, indicator, promote
        )
        meta, moved = plan.meta, plan.fetched
        given, found = frames.dtypes(left_meta), frames.dtypes(descriptor.meta[moved])
        alike = frames.dtypes(left_meta[list(left_on)]) == frames.dtypes(
            descriptor.meta[list(names)]
        )
        return cls(
            descriptor,
            left_on,
            how,
            columns,
            suffixes,
            tuple(moved),
            index_meta,
            left_meta,
            meta,
            left_labels=labels,
            left_dtypes=given,
            plain_keys=tuple(map(labels.index, left_on)) if alike else None,
            plain=how == "inner" and frames.dtypes(meta) == [*given, *found],
            mixed=tuple(int_float_keys(left_meta, left_on, descriptor.meta, names)),
            plan=plan,
        )

    @property
    def query_how(self) -> str:
        """The kind of join that shards compute; the probing task adds unmatched rows."""
        return "inner" if self.how in {"right", "outer"} else self.how

    def merged(self, left: Any, function: Function) -> Any:
        """Return the merge of a partition, in a task that calls `function`."""
        worker, device = current_worker(), frames_of(left).device
        host, most_nbytes = plugin_of(worker), most_seceded_nbytes(worker, device)
        with host.service(SecessionBudget).staying():
            found = host.service(WaitingTasks).answer(worker, left)
        if found is not None:
            return self.put_together(*found)
        own = self.asking(left)
        if not own.meets:
            with host.service(SecessionBudget).task(own.nbytes, most_nbytes):
                return next(self._merge(worker, [[own]]))[0]
        room = most_nbytes - own.nbytes
        with host.service(WaitingTasks).ready(worker, function, room) as siblings:
            most = self._most_keys_nbytes(worker, own)
            askings = dict(self._askings(siblings, most - own.keys_nbytes))
            if not askings:
                stays = own.keys_nbytes > most
                with host.service(SecessionBudget).task(own.nbytes, most_nbytes, stays=stays):
                    return self._ask(worker, [own])[0]
            with host.service(SecessionBudget).staying():
                return self._merged_before(worker, own, askings)

    def _merged_before(
        self, worker: Any, own: ProbePartition, others: Mapping[WaitingTask, ProbePartition]
    ) -> Any:
        """Return the merge of a partition, and give waiting sibling tasks their matches."""
        try:
            merged, founds = self._ask(worker, [own, *others.values()])
        except OutOfMemoryError:
            return self._ask(worker, [own])[0]
        except Exception as error:
            for sibling in others:
                sibling.tell(error=error)
            raise
        for sibling, found in zip(others, founds, strict=True):
            sibling.tell(found)
        return merged

    def _askings(
        self, siblings: Sequence[WaitingTask], most_keys_nbytes: int
    ) -> Iterator[tuple[WaitingTask, ProbePartition]]:
        """Yield batches of sibling tasks whose keys fit, with their partitions."""
        for sibling in siblings:
            try:
                asking = self.asking(sibling.argument)
            except Exception:
                # The sibling's own task is going to raise it.
                return
            if not asking.meets or asking.keys_nbytes > most_keys_nbytes:
                return
            most_keys_nbytes -= asking.keys_nbytes
            yield sibling, asking

    def _ask(self, worker: Any, several: Sequence[ProbePartition]) -> tuple[Any, list[Found]]:
        """Return the merge of the first partition, and the matches of the others."""
        host, most = plugin_of(worker), self._most_keys_nbytes(worker, several[0])
        with memory_errors_of("merge"):
            at_once = AT_ONCE[frames_of(self.meta).device]
            return host.service(Coalescer).call(
                partial(self._merge, worker), several,
                kind=id(self),
                nbytes=sum(asking.keys_nbytes for asking in several),
                most_nbytes=most,
                at_once=1 if several[0].keys_nbytes > most else at_once,
                more=lambda: host.service(SecessionBudget).others_begin(worker),
            )  # fmt: skip

    def _most_keys_nbytes(self, worker: Any, like: ProbePartition) -> int:
        """Limit of a batch's keys in bytes: a parcel per shard, and memory for the results."""
        size = len(like.left), like.keys_nbytes
        most = keys_within_memory(worker, self.descriptor, self.moved, *size)
        return min(most, len(self.descriptor.shards) * chunk_nbytes(frames_of(self.meta).device))

    def asking(self, left: Any) -> ProbePartition:
        """Return a partition with the keys to probe for."""
        if not self.left_on:
            return self._asking_by(left)
        frames, labelled = frames_of(left), list(left) == self.left_labels
        if not labelled:
            key_names(left, self.left_on)
        dtypes = frames.dtypes(left)
        alike = labelled and dtypes == self.left_dtypes
        if labelled and not alike and not len(left):
            # A reader that finds no rows does not know the dtypes either.
            return self.asking(self.left_meta)
        arrays = frames.arrays(left, dtypes) if alike else None
        if arrays is None or self.plain_keys is None:
            keys = query_keys(left, self.descriptor, self.left_on)
        else:
            keys = tuple(arrays[position] for position in self.plain_keys)
        nbytes = sizeof(left) if arrays is None else sum(array.nbytes for array in arrays)
        if is_plain(keys):
            return ProbePartition(
                left, alike, arrays, keys, True, nbytes, sum(key.nbytes for key in keys)
            )
        # Object columns of several partitions may not fit together.
        meets = alike and all(frames.is_typed(keys[label]) for label in keys)
        return ProbePartition(left, alike, arrays, keys, meets, nbytes, sizeof(keys))

    def _asking_by(self, left: Any) -> ProbePartition:
        keys: Any = self.plan.asked(left)
        like = self.descriptor.meta[list(self.descriptor.encoder.names)]
        arrays = plain_arrays(keys, like)
        meets = arrays is not None
        if arrays is None:
            frames = frames_of(keys)
            meets = frames.dtypes(keys) == frames.dtypes(like)
            meets = meets and all(frames.is_typed(keys[label]) for label in keys)
        nbytes = sizeof(keys) if arrays is None else sum(array.nbytes for array in arrays)
        asked = keys if arrays is None else arrays
        return ProbePartition(left, True, None, asked, meets, sizeof(left), nbytes)

    def put_together(
        self, asking: ProbePartition, query_rows: Any, found: Payload | None, *, whole: bool = False
    ) -> Any:
        """Return the merge of a partition from its matches.

        The matched rows `found` may be a payload. The matches are `whole` where each row has one;
        `query_rows` may be None then.
        """
        warn_int_float_keys(asking.left, self.mixed)
        frames = frames_of(asking.left)
        if self.plain and asking.arrays is not None and found is not None and is_plain(found):
            if whole:
                return frames.append(asking.left, asking.arrays, found, self.meta)
            left = (gather_rows(array, query_rows) for array in asking.arrays)
            return frames.from_arrays([*left, *found], self.meta)
        if found is not None:
            found = frame_of_payload(found, self.index_meta[list(self.moved)])
        if query_rows is None:
            query_rows = frames.xp.arange(len(asking.left))
        return self.plan.result(asking.left, query_rows, found)

    def _merge(
        self, worker: Any, groups: Sequence[Sequence[ProbePartition]]
    ) -> Iterator[tuple[Any, list[Found]]]:
        """Yield the merge of each group's first partition, and others' matches.

        The keys of all partitions are probed together.
        """
        xp = frames_of(self.meta).xp
        several = list(chain.from_iterable(groups))
        keys = several[0].keys
        if len(several) > 1:
            keys = self._keys_of([asking.keys for asking in several])
        ends = list(accumulate((len(asking.left) for asking in several), initial=0))
        beside = sum(asking.nbytes for asking in several) / max(1, ends[-1])
        query_rows, payload = probe_shards(
            worker, keys, ends[-1], self.descriptor, self.query_how, self.moved, self.sparing,
            self.marks, beside,
        )  # fmt: skip
        cuts = [0, len(query_rows)]
        if len(several) > 1:
            cuts = xp.searchsorted(query_rows, xp.asarray(ends)).tolist()

        def found() -> Iterator[Found]:
            for asking, first, (start, end) in zip(several, ends, pairwise(cuts), strict=False):
                rows = query_rows[start:end]
                yield asking, rows - first if first else rows, _cut(payload, start, end)

        each = found()
        for group in groups:
            yield self.put_together(*next(each)), list(islice(each, len(group) - 1))

    def _keys_of(self, payloads: Sequence[Payload]) -> Payload:
        """Return the keys of several partitions, one after the other."""
        if all(map(is_plain, payloads)):
            xp = frames_of(self.meta).xp
            return tuple(map(xp.concatenate, zip(*payloads, strict=True)))
        return concat_payloads(payloads, self.descriptor.meta[list(self.descriptor.encoder.names)])

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (
            self.descriptor.__dask_tokenize__(),
            self.left_on,
            self.how,
            self.columns,
            self.suffixes,
            self.plan.arguments.indicator,
            self.sparing,
            self.plan.arguments.promote,
        )


def sample(meta: Any) -> Any:
    """Return a two-row frame of an empty frame's schema; pandas objects are texts."""
    if frames_of(meta).name != "pandas":
        return two_rows(meta)
    columns = {place: _two_values(dtype) for place, dtype in enumerate(meta.dtypes)}
    frame = meta._constructor(pd.DataFrame(columns, index=meta_nonempty(meta.index)))
    for place, dtype in enumerate(meta.dtypes):
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            frame.isetitem(place, pd.Series(["a", "b"], dtype=object, index=frame.index))
    frame.columns = meta.columns
    return frame


def _sample_value(dtype: Any) -> Any:
    return meta_nonempty(pd.Series([], dtype=dtype)).array


_known_values = lru_cache(maxsize=2**8)(_sample_value)


def _two_values(dtype: Any) -> Any:
    # Dtypes of the same categories in another order are equal.
    return _sample_value(dtype) if hasattr(dtype, "categories") else _known_values(dtype)


def _cut(found: Payload | None, start: int, end: int) -> Payload | None:
    """Return the rows from `start` to `end`."""
    if found is None:
        return None
    if is_plain(found):
        return tuple(column[start:end] for column in found)
    return found.iloc[start:end]
