"""Entry points of lazy merges, drop_duplicates and isin of Dask frames."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import ensure_plugin
from dgpuhash.distributed.cluster.client import client_of, identity_of
from dgpuhash.distributed.cluster.dask_internals import new_collection
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.source import check_all_partitions
from dgpuhash.distributed.merge.aligned import AlignedMergeExpr
from dgpuhash.distributed.merge.broadcast import StoredRows
from dgpuhash.distributed.merge.expression import MergeExpr, StandingMergeExpr, stored_rows
from dgpuhash.distributed.merge.sides import plan_of
from dgpuhash.distributed.merge.steps import BuildExpr, RowsExpr
from dgpuhash.distributed.merge.strategy import (
    choose_strategy,
    late_broadcast_nbytes,
    probing_side,
)
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.query.merge_tasks import Probe, sample
from dgpuhash.distributed.query.plan import one_partition
from dgpuhash.distributed.runs.run import install_runs
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.accessor import column_places
from dgpuhash.frames.merge.arguments import ALL_ROWS, JoinArguments, OnRounding
from dgpuhash.frames.merge.distinct import DistinctPlan, check_keep, distinct_rows
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.tables.memory_errors import memory_errors_of

# Of the keys of all merges and groups that this process makes.
SEEDS = KeySeeds.drawn()


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
    """Return the lazy merge of two frames, at least one of them a Dask frame.

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
    workers = prepare(client)
    _check_keys(arguments)
    sides = _of_one_library([_collection(side) for side in (left, right)])
    ranges = hash_ranges(npartitions, workers)
    arguments = _resolve_keys(sides, arguments)
    if arguments.columns is not None:
        sides[1] = sides[1][list(arguments.narrowed(sides[1]._meta).columns)]
        arguments = replace(arguments, columns=None)
    exprs = [side.expr for side in sides]
    probing = probing_side(build, arguments, [side.npartitions for side in sides])
    plan, given = _plan(sides, arguments, probing), right if probing == "left" else left
    own = not isinstance(given, dd.DataFrame | dd.Series)
    strategy = choose_strategy(
        exprs[0], exprs[1], plan, unique=unique, build=build, npartitions=npartitions,
        ranges=ranges, own_nbytes=frames_of(plan.storing).nbytes(given) if own else None,
    )  # fmt: skip
    if strategy.kind == "aligned":
        merged = new_collection(AlignedMergeExpr(*exprs, arguments, strategy, unique))
    else:
        merged = new_collection(MergeExpr(*exprs, arguments, strategy, SEEDS, unique))
    if sort and arguments.how not in ("semi", "anti", "isin", "cross"):
        merged = _sort(merged, plan)
    return merged


def _sort(merged: dd.DataFrame, plan: PartitionPlan) -> dd.DataFrame:
    """Return the merge sorted by its keys.

    Raises
    ------
    UnsupportedError
        When keys are its index, and its divisions are not known or another key comes first.
    """
    names: list[Any] = [pair.name for pair in plan.keys.pairs]
    columns = set(merged.columns)
    if columns.issuperset(names):
        return merged.sort_values(names)
    if not merged.known_divisions or names[0] in columns:
        raise UnsupportedError(
            "sort=True is not supported for an index with unknown divisions; leave sort= out, "
            "and use "
            ".reset_index().sort_values(…) of the merge"
        )
    inner = [name if name in columns else merged.index.name for name in names]
    return merged.map_partitions(_in_order, inner[1:], meta=merged._meta)


def _in_order(frame: pd.DataFrame, others: list[Any]) -> pd.DataFrame:
    """Return a partition sorted by its labels, and then by other columns."""
    in_order = frame.sort_values(others) if others else frame
    return in_order.sort_index(kind="stable")


def merge_with_index(probe: Probe, left: Any, unique: tuple[bool, bool]) -> dd.DataFrame:
    """Return the lazy merge of a frame with an index; keys of `unique` sides are checked.

    It has the rows of the index that nothing matches, where the join keeps them.
    """
    frame = (left if isinstance(left, dd.DataFrame) else one_partition(left)).expr
    descriptor = probe.descriptor
    if probe.how in ALL_ROWS and descriptor.conflict is not Conflict.ERROR:
        raise UnsupportedError(
            f"how={probe.how!r} with an index that resolves second rows by "
            f"conflict={descriptor.conflict.value!r}: shards do not know which of their rows "
            "count; build it with mode='distributed'"
        )
    ranges = len(descriptor.whole)
    return new_collection(StandingMergeExpr(frame, probe, ranges, unique, SEEDS))


def distinct_lazily(
    frame: dd.DataFrame, subset: Any, keep: str | bool, npartitions: int | None,
    on_rounding: OnRounding | None = None,
) -> dd.DataFrame:  # fmt: skip
    """Return one row of each key; see `IndexAccessor.drop_duplicates`.

    `on_rounding` is that of `DistinctPlan`.
    """
    client = client_of(None)
    check_keep(keep)
    workers = prepare(client)
    frame = _collection(frame)
    meta, ranges = sample(frame._meta), hash_ranges(npartitions, workers)
    places = tuple(column_places(meta, subset))
    if frame.npartitions == 1 and npartitions in (None, 1):
        made: dd.DataFrame = frame.map_partitions(_distinct, places, keep, meta=meta.iloc[:0])
        return made
    plan = DistinctPlan(meta, places, keep, on_rounding)
    few = late_broadcast_nbytes()
    build = BuildExpr(frame.expr, StoredRows(plan), ranges, SEEDS, "", few)
    return new_collection(RowsExpr(build, plan, meta.iloc[:0], ranges))


def _distinct(frame: Any, places: Sequence[int], keep: str | bool) -> Any:
    """Return one row of each key of the only partition."""
    with raise_without_traceback(), memory_errors_of("drop_duplicates"):
        return distinct_rows(frame, places, keep)


def isin_lazily(frame: dd.DataFrame, values: Any, on: Any) -> dd.Series:
    """Return for each row whether its key occurs in `values`; see `IndexAccessor.isin`."""
    found: Any = merge_lazily(frame, values, JoinArguments("isin", on))
    return found


def rows_lazily(descriptor: Descriptor) -> dd.DataFrame:
    """Return the rows of a standing index, one partition per shard."""
    return new_collection(stored_rows(descriptor))


_ready: set[str] = set()
# When the workers of a client's cluster were counted, and how many there were. To ask the scheduler
# takes 3 to 10 ms, and the verbs of a query come one after the other.
_counted: WeakKeyDictionary[Client, tuple[float, int]] = WeakKeyDictionary()
_COUNTED_SECONDS = 0.2


def prepare(client: Client) -> int:
    """Install this library on the cluster once; return the number of workers."""
    import_on_cluster(client)
    when, workers = _counted.get(client, (-_COUNTED_SECONDS, 0))
    if monotonic() - when >= _COUNTED_SECONDS:
        workers = _install(client)
        _counted[client] = monotonic(), workers
    return workers


def _install(client: Client) -> int:
    """Install this library if needed; return the scheduler's number of workers."""
    found = identity_of(client)
    if found["id"] not in _ready:
        ensure_plugin(client)
        install_runs(client)
        _ready.add(found["id"])
    return int(found["n_workers"])


def _collection(side: Any) -> dd.DataFrame:
    check_all_partitions(side)
    if isinstance(side, dd.Series):
        side = side.to_frame()
    return side if isinstance(side, dd.DataFrame) else one_partition(side)


def _of_one_library(sides: list[dd.DataFrame]) -> list[dd.DataFrame]:
    """Return both sides as cuDF frames if one of them is."""
    if len({frames_of(side._meta).name for side in sides}) == 1:
        return sides
    return [side.to_backend("cudf") for side in sides]


class LazyKeyError(UnsupportedError, NotImplementedError):
    """A key that is not a column of a Dask frame."""


def _check_keys(arguments: JoinArguments) -> None:
    """Raise LazyKeyError for lazy Series as keys."""
    for given in (arguments.on, arguments.left_on, arguments.right_on):
        for key in given if isinstance(given, list | tuple) else [given]:
            if hasattr(key, "__dask_graph__") or isinstance(key, np.ndarray | pd.Series):
                raise LazyKeyError(
                    f"a {type(key).__name__} cannot be a key of Dask frames; make it a column of "
                    f"its frame with .assign(), and name that column"
                )


def hash_ranges(npartitions: int | None, workers: int) -> int:
    """Return the number of hash ranges; by default the number of workers."""
    if npartitions is None:
        return max(1, workers)
    if isinstance(npartitions, bool) or not isinstance(npartitions, int) or npartitions < 1:
        raise SpecError(f"npartitions={npartitions!r}; give the number of hash ranges, 1 or more")
    return npartitions


def _resolve_keys(sides: Sequence[dd.DataFrame], arguments: JoinArguments) -> JoinArguments:
    """Return the arguments with explicit key names, before columns are dropped."""
    given = arguments.on, arguments.left_on, arguments.right_on
    if arguments.how == "cross" or any(each is not None for each in given):
        return arguments
    if arguments.left_index or arguments.right_index:
        return arguments
    labels: list[Hashable] = [pair.left_label for pair in _plan(sides, arguments).keys.pairs]
    return replace(arguments, on=labels)


def _plan(
    sides: Sequence[dd.DataFrame], arguments: JoinArguments, probing: str = ""
) -> PartitionPlan:
    left, right = sides
    return plan_of(left._meta, right._meta, arguments, probing)
