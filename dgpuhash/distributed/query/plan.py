"""Merge plans: made once by a client for all frames of one schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import dask.dataframe as dd
from dask.base import tokenize
from distributed import Client, Future

from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.dask_internals import (
    BlockwiseIO,
    DataNode,
    DelayedsExpr,
    FromDelayed,
    FromGraph,
    PartitionsFiltered,
    Task,
    TaskRef,
    new_collection,
)
from dgpuhash.distributed.cluster.serialization import (
    Cache,
    CachedPickle,
    plain_arrays,
    schema_key,
)
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.source import check_library, meta_of, persisted_futures
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.policy import AbsentKeyStats, PruningOptions
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.shards.stats import columns_to_warn_about
from dgpuhash.frames import check_how, column_labels, join_columns
from dgpuhash.frames.int_float_warning import IntFloatKey
from dgpuhash.tables.memory_errors import memory_errors_of


def persisted_partitions(frame: dd.DataFrame) -> list[Future] | None:
    """Return the partitions of a persisted frame, as `persisted_futures`.

    That materializes the graph of `frame`, and is called only where it may find some.
    """
    return persisted_futures(frame) if isinstance(frame.expr, FromGraph | FromDelayed) else None


def persist_unfused(client: Client, frame: dd.DataFrame) -> dd.DataFrame:
    """Persist `frame` without letting Dask fuse its partitions.

    Dask's `persist` fuses partitions of a source that it reads several of together, and still names
    them one by one, unless the frame was optimized before.
    """
    return client.persist(frame if isinstance(frame.expr, MapPersisted) else frame.optimize())


def map_persisted(
    function: Callable[[Any], Any], partitions: Sequence[Future], meta: Any, name: str
) -> dd.DataFrame:
    """Return a lazy frame of `function` applied to each partition.

    Parameters
    ----------
    function : callable
        Callable that Dask can tokenize.
    partitions : sequence of Future
    meta : DataFrame
        An empty frame like the results.
    name : str
        Prefix of the keys of its tasks.
    """
    # To tokenize an empty frame on a GPU takes 4 ms.
    token = tokenize(function, [each.key for each in partitions])
    held = DelayedsExpr(*partitions)
    return new_collection(MapPersisted(function, held, meta, name, _determ_token=token))


class MapPersisted(PartitionsFiltered, BlockwiseIO):
    """Expression like Dask's ``map_partitions``, with one task a partition.

    ``map_partitions`` takes the partitions of a persisted frame, or of one made of futures, from
    one or two more tasks for each, which do nothing.
    """

    _parameters = ["function", "held", "meta", "prefix", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.operand('prefix')}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("held").operands) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        held = self.operand("held").operands[index]
        return Task(name, self.operand("function"), TaskRef(held.key))


# Plans that are cached, for each epoch and for all indexes.
KINDS = 8

Columns = Hashable | Sequence[Hashable] | None


@dataclass(frozen=True, slots=True)
class SealedProbe:
    """Probe pickled once for all tasks."""

    __name__: ClassVar[str] = "dgpuhash-merge"

    seal: CachedPickle[Probe]
    token: tuple[Any, ...]

    @classmethod
    def of(cls, probe: Probe) -> SealedProbe:
        """Return `probe` in this form, with its token."""
        return cls(CachedPickle.of(probe), probe.__dask_tokenize__())

    def __call__(self, left: Any) -> Any:
        with raise_without_traceback(), memory_errors_of("merge"):
            return self.seal.opened().merged(left, self)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.token


@dataclass(frozen=True, slots=True)
class IndexMerge:
    """Probe for all partitions of a merge, ready to send.

    Attributes
    ----------
    probe : Probe
    sealed : SealedProbe
        As tasks and broadcasts carry it.
    plain : bool
        Whether keys and rows can travel between workers as arrays.
    """

    probe: Probe
    sealed: SealedProbe
    plain: bool

    @classmethod
    def of(cls, probe: Probe) -> IndexMerge:
        """Return the plan with `probe`."""
        meta = probe.descriptor.meta
        needed = [meta[list(probe.descriptor.encoder.names)]]
        if probe.how not in {"semi", "anti"}:
            needed.append(meta[list(probe.moved)])
        plain = all(plain_arrays(each, each) is not None for each in needed)
        return cls(probe, SealedProbe.of(probe), plain)

    def by(self, descriptor: Descriptor, sparing: PruningOptions) -> IndexMerge:
        """Return this plan for another index or epoch with the same schema."""
        if self.probe.descriptor is descriptor and self.probe.sparing == sparing:
            return self
        probe = replace(self.probe, descriptor=descriptor, sparing=sparing)
        return replace(self, probe=probe, sealed=SealedProbe.of(probe))

    def warning(self, mixed: tuple[IntFloatKey, ...]) -> IndexMerge:
        """Return this plan with tasks that warn about these key columns."""
        if mixed == self.probe.mixed:
            return self
        return IndexMerge.of(replace(self.probe, mixed=mixed))

    def lazy(self, left: Any, client: Client) -> dd.DataFrame:
        """Return the lazy merge, with one task for each partition.

        A frame of the client's own is one partition.
        """
        if not isinstance(left, dd.DataFrame):
            left = one_partition(left)
        held = persisted_partitions(left)
        if held is not None:
            check_same_cluster(client, held, "rows")
            return map_persisted(self.sealed, held, self.probe.meta, self.sealed.__name__)
        return left.map_partitions(
            self.sealed,
            meta=self.probe.meta,
            enforce_metadata=False,
            transform_divisions=False,
            clear_divisions=True,
        )


_plans = Cache[str, IndexMerge](most=KINDS)


class MergePlans:
    """Plans of merges with one epoch of an index, by options and left columns.

    Planning makes empty frames, which takes milliseconds where they are in GPU memory, and is done
    once for indexes that are alike.

    Attributes
    ----------
    absences : AbsentKeyStats
        How often keys were absent in merges with this epoch.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._plans = Cache[tuple[str, PruningOptions], IndexMerge](most=KINDS)
        self.absences: AbsentKeyStats = AbsentKeyStats()

    def serves(self, descriptor: Descriptor) -> bool:
        """Return whether these plans are for the epoch of `descriptor`."""
        own = self._descriptor
        return own.epoch == descriptor.epoch and own.encoder == descriptor.encoder

    def plan(
        self,
        client: Client,
        left_meta: Any,
        on: Columns,
        left_on: Columns,
        how: str,
        columns: Sequence[Hashable] | None,
        suffixes: tuple[str | None, str | None],
        sparing: PruningOptions,
        indicator: bool | str = False,
        promote: str | None = None,
    ) -> IndexMerge:
        """Return the plan for partitions like `left_meta`.

        See `DistributedIndex.merge`.
        """
        wanted = None if columns is None else tuple(column_labels(columns))
        kind = schema_key(left_meta)
        descriptor = self._descriptor
        options = repr((kind, on, left_on, how, wanted, suffixes, indicator, promote))

        def plan_alike() -> IndexMerge:
            joined = check_how(how, all_rows=True)
            check_library(left_meta, descriptor.meta)
            names = join_columns(left_meta, descriptor.encoder, on, left_on)
            probe = Probe.of(
                left_meta, descriptor, tuple(names), joined, wanted, suffixes, indicator, promote
            )
            return IndexMerge.of(replace(probe, sparing=sparing))

        def plan() -> IndexMerge:
            stored, keys = schema_key(descriptor.meta), descriptor.encoder
            name = repr((options, stored, keys.names, keys.types, keys.hash_bits))
            found = _plans.get(None if None in (kind, stored) else name, plan_alike)
            found = found.by(descriptor, sparing)
            return found.warning(columns_to_warn_about(client, descriptor, found.probe.mixed))

        return self._plans.get(None if kind is None else (options, sparing), plan)


def one_partition(frame: Any) -> dd.DataFrame:
    """Return `frame`, unchanged, as a Dask DataFrame of one partition.

    `dd.from_pandas` would convert its strings, and refuses some labels.
    """
    # It is merged later, when the user may have changed the frame.
    frame = frame.copy()
    token = tokenize(frame)
    key = f"dgpuhash-frame-{token}", 0
    graph = {key: DataNode(key, frame)}
    return new_collection(
        FromGraph(graph, meta_of(frame), (None, None), [key], "dgpuhash-left", _determ_token=token)
    )
