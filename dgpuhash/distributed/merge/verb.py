"""``dgpuhash.merge`` of Dask frames, and merges with a standing index that keep its other rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import new_collection
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import ensure_plugin
from dgpuhash.distributed.cluster.client import client_of, worker_ids
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.ingest.mode import REPLICATED_NBYTES
from dgpuhash.distributed.ingest.source import check_all_partitions, meta_of
from dgpuhash.distributed.merge.expression import MergeExpr, StandingMergeExpr
from dgpuhash.distributed.merge.steps import BuildExpr, RowsExpr, StoredRows
from dgpuhash.distributed.merge.tasks import Built
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.query.merge_tasks import Probe, sample
from dgpuhash.distributed.query.plan import one_partition
from dgpuhash.errors import DeviceError, SpecError, UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.accessor import column_places
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.distinct import DistinctPlan, check_keep
from dgpuhash.frames.merge.partition import PartitionPlan

__all__ = ["distinct_lazily", "isin_lazily", "merge_lazily", "merge_with_tails", "rows_lazily"]

# Of the keys of all merges that this process makes.
SEEDS = KeySeeds.drawn()
BUILDS = ("auto", "left", "right", "replicate")


def merge_lazily(
    left: Any,
    right: Any,
    arguments: JoinArguments,
    *,
    unique: tuple[bool, bool] = (False, False),
    sort: bool = False,
    build: str = "auto",
    npartitions: int | None = None,
    client: Client | None = None,
) -> dd.DataFrame:
    """Return the lazy merge of two frames, one of which is a Dask frame at least.

    Parameters
    ----------
    left, right : Dask or pandas DataFrame or Series
    arguments : JoinArguments
    unique : pair of bool
        Whether the keys of each side are to be unique.
    sort, build, npartitions, client
        As in `dgpuhash.merge`.
    """
    client = client_of(client)
    _prepare(client)
    _check_keys(arguments)
    sides = [_collection(side) for side in (left, right)]
    own = [not isinstance(side, dd.DataFrame | dd.Series) for side in (left, right)]
    ranges = _ranges(npartitions, client)
    probing = _probing(build, arguments)
    stored = 1 if probing == "left" else 0
    placement = Placement.DISTRIBUTED
    small = (
        own[stored]
        and frames_of(meta_of(sides[stored])).nbytes((left, right)[stored]) <= REPLICATED_NBYTES
    )
    # One partition is in the memory of one worker anyway, as when Dask broadcasts it.
    alone = (
        arguments.joined != "outer"
        and sides[stored].npartitions == 1 < sides[1 - stored].npartitions
    )
    chosen = build == "auto" and (small or (alone and not own[stored]))
    if build == "replicate" or arguments.how == "cross" or chosen:
        placement = Placement.REPLICATED
    made = MergeExpr(
        sides[0].expr, sides[1].expr, _resolved(sides, arguments), probing, ranges, placement,
        SEEDS, unique,
    )  # fmt: skip
    merged = new_collection(made)
    if sort and arguments.how not in ("semi", "anti", "isin", "cross"):
        labels = [pair.name for pair in made.plan.keys.pairs if pair.name in merged.columns]
        merged = merged.sort_values(labels)
    return merged


def merge_with_tails(probe: Probe, left: Any) -> dd.DataFrame:
    """Return the lazy merge of a frame with an index, and rows of it that nothing matches."""
    frame = (left if isinstance(left, dd.DataFrame) else one_partition(left)).expr
    descriptor = probe.descriptor
    if descriptor.conflict is not Conflict.ERROR:
        raise UnsupportedError(
            f"how={probe.how!r} with an index that resolves second rows by "
            f"conflict={descriptor.conflict.value!r}: shards do not know which of their rows "
            "count; build it with mode='distributed'"
        )
    return new_collection(StandingMergeExpr(frame, probe, len(descriptor.whole)))


def distinct_lazily(
    frame: dd.DataFrame, subset: Any, keep: str | bool, npartitions: int | None
) -> dd.DataFrame:
    """Return one row of each key; see `IndexAccessor.drop_duplicates`."""
    client = client_of(None)
    check_keep(keep)
    _prepare(client)
    frame = _collection(frame)
    meta, ranges = sample(frame._meta), _ranges(npartitions, client)
    plan = DistinctPlan(meta, tuple(column_places(meta, subset)), keep)
    placed = Placement.DISTRIBUTED
    build = BuildExpr(frame.expr, StoredRows(plan), ranges, placed, SEEDS, "")
    return new_collection(RowsExpr(build, plan, meta.iloc[:0], ranges))


def isin_lazily(frame: dd.DataFrame, values: Any, on: Any) -> dd.Series:
    """Return for each row whether its key occurs in `values`; see `IndexAccessor.isin`."""
    found: Any = merge_lazily(frame, values, JoinArguments("isin", on))
    return found


def rows_lazily(descriptor: Descriptor) -> dd.DataFrame:
    """Return the rows of a standing index, one partition a shard."""
    built = Built("", "", CachedPickle.of(descriptor))
    ranges = len(descriptor.whole)
    return new_collection(RowsExpr(built, None, descriptor.meta, ranges))


_ready: set[str] = set()


def _prepare(client: Client) -> None:
    """Install this library on the cluster, once for each of them."""
    import_on_cluster(client)
    scheduler = client.scheduler_info(n_workers=0)["id"]
    if scheduler not in _ready:
        ensure_plugin(client)
        _ready.add(scheduler)


def _collection(side: Any) -> dd.DataFrame:
    check_all_partitions(side)
    if isinstance(side, dd.Series):
        side = side.to_frame()
    made = side if isinstance(side, dd.DataFrame) else one_partition(side)
    if frames_of(made._meta).name != "pandas":
        raise DeviceError(
            "dgpuhash.merge takes Dask frames of pandas; convert this one with "
            '.to_backend("pandas"), or build an index: DistributedIndex.build(right, on=…).merge('
            "left)"
        )
    return made


def _check_keys(arguments: JoinArguments) -> None:
    """Raise UnsupportedError for keys that are lazy themselves."""
    for given in (arguments.on, arguments.left_on, arguments.right_on):
        for key in given if isinstance(given, list | tuple) else [given]:
            if hasattr(key, "__dask_graph__") or isinstance(key, np.ndarray | pd.Series):
                raise UnsupportedError(
                    f"a {type(key).__name__} as a key of Dask frames; make it a column of its "
                    "frame with .assign(), and name that"
                )


def _ranges(npartitions: int | None, client: Client) -> int:
    if npartitions is None:
        return max(1, len(worker_ids(client)))
    if isinstance(npartitions, bool) or not isinstance(npartitions, int) or npartitions < 1:
        raise SpecError(f"npartitions={npartitions!r}; give the number of hash ranges, 1 or more")
    return npartitions


def _probing(build: str, arguments: JoinArguments) -> str:
    """Return the side whose partitions ask."""
    if build not in BUILDS:
        raise SpecError(f"build={build!r}; use one of {', '.join(map(repr, BUILDS))}")
    joined = arguments.joined
    if build == "left" and (joined == "left" or arguments.how in ("semi", "anti")):
        raise UnsupportedError(
            f"build='left' with how={arguments.how!r}: rows of the left side are told one by one, "
            "so the right side is indexed; leave build= out"
        )
    if build == "right" and joined == "right":
        raise UnsupportedError(
            f"build='right' with how={arguments.how!r}: rows of the right side are told one by "
            "one, so the left side is indexed; leave build= out"
        )
    if build == "left" or joined == "right":
        return "right"
    return "left"


def _resolved(sides: Sequence[dd.DataFrame], arguments: JoinArguments) -> JoinArguments:
    """Return the arguments with their keys named: columns that are dropped later were common."""
    given = arguments.on, arguments.left_on, arguments.right_on
    if arguments.how == "cross" or any(each is not None for each in given):
        return arguments
    if arguments.left_index or arguments.right_index:
        return arguments
    left, right = (sample(side._meta) for side in sides)
    plan = PartitionPlan.of(left, right, arguments)
    labels: list[Hashable] = [pair.left_label for pair in plan.keys.pairs]
    return JoinArguments(
        arguments.how, labels, None, None, False, False, arguments.suffixes, arguments.indicator,
        arguments.nulls_equal, arguments.columns,
    )  # fmt: skip
