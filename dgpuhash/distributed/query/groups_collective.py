"""Collective groupby: the states of groups to their owners, in one phase on all workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import dask.dataframe as dd
import numpy as np
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.device_thread import Progress
from dgpuhash.distributed.cluster.locality import (
    DataNotLocal,
    InputSpec,
    LocalInputs,
    TaskOutput,
    partitions_spec,
)
from dgpuhash.distributed.cluster.serialization import CachedPickle, are_plain, plain_arrays
from dgpuhash.distributed.collective.base import Collective, Received
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.events import log_execution
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.ingest.source import persisted_futures
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.partition.hash_partition import PartitionedColumns, partition_columns
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.errors import IndexLost, OutOfMemoryError
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.rows import mostly_distinct_rows

__all__ = ["GroupShares", "collective_groups"]

# Free memory that each worker must have, as a multiple of its rows' bytes: states of narrow rows
# take more than these, and their owner has them twice.
_GROWTH = 4.0

Step = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class GroupShares:
    """What the ranks of a collective groupby have in common.

    Attributes
    ----------
    plan : GroupPlan
    by_rows : GroupPlan, optional
        That of partitions which have few rows of each key, and give them in place of states.
    ranges : int
        The number of hash ranges; each of the first ranks owns one.
    steps : tuple of callable
        From a partition that is persisted to the rows that are grouped, in turn.
    called : callable
        Returns a result under the names of the frame's columns.
    """

    plan: GroupPlan
    by_rows: GroupPlan | None
    ranges: int
    steps: tuple[Step, ...]
    called: Step

    @property
    def plans(self) -> list[GroupPlan]:
        """Those that may run."""
        return [plan for plan in (self.plan, self.by_rows) if plan is not None]


def collective_groups(
    client: Client, shares: CachedPickle[GroupShares], frame: dd.DataFrame
) -> list[Any] | None:
    """Return futures of the answer of each hash range; None where it takes tasks.

    Parameters
    ----------
    client : Client
    shares : CachedPickle of GroupShares
    frame : Dask DataFrame
        It is persisted.
    """
    asked, what = shares.opened(), "groupby"
    try:
        futures = persisted_futures(frame) or []
        check_same_cluster(client, futures, "rows")
        needed = partitions_spec(futures, asked.plan.source)
        needed = replace(needed, growth=_GROWTH if needed.growth else 0.0)
        if not all(are_plain(plan.states_meta) for plan in asked.plans):
            raise DataNotLocal("states are no plain arrays")
        made = _run(client, shares, asked.ranges, needed)
    except (DataNotLocal, IndexLost, OutOfMemoryError) as error:
        # Tasks are made again where a worker is lost, and write what memory has no room for.
        log_execution(what, str(error))
        return None
    refused = [each.result for each in made if each.result]
    log_execution(what, *refused[:1])
    return None if refused else [next(iter(each.data.values())) for each in made[: asked.ranges]]


# The workers that grouped last for a client: to ask the scheduler which there are takes as long as
# a phase does. A partition on another worker, or one that has left, makes them be asked for.
_known: WeakKeyDictionary[Client, tuple[ShardAddress, ...]] = WeakKeyDictionary()


def _run(
    client: Client, shares: CachedPickle[GroupShares], ranges: int, needed: InputSpec
) -> list[TaskOutput[str]]:
    """Run the phase on all workers, which may be others than before."""
    known = _known.pop(client, ())
    made = None
    if len(known) >= ranges:
        with suppress(DataNotLocal, IndexLost):
            made = run_collective(client, known, groups_on_rank, shares, needed=needed)
    if made is None:
        known = shard_addresses(client, known=True)
        if len(known) < ranges:
            raise DataNotLocal("there are more hash ranges than workers")
        made = run_collective(client, known, groups_on_rank, shares, needed=needed)
    _known[client] = known
    return made


def groups_on_rank(
    host: ShardHost, collective: Collective, packed: CachedPickle[GroupShares], given: LocalInputs
) -> TaskOutput[str]:
    """Run one rank's share of a collective groupby; return why tasks must do it, or nothing.

    A rank that cannot reduce its partitions sends no states.
    """
    shares = packed.opened()
    device = frames_of(shares.plan.source).device
    progress = Progress("", "groupby", "reduce, exchange and fold rows")
    with collective.with_quiet_loop(device), host.thread.telling(progress):
        made = _on_rank(collective, shares, given)
        backend.get(device).synchronize()
        return made


def _on_rank(collective: Collective, shares: GroupShares, given: LocalInputs) -> TaskOutput[str]:
    """Return the answer of the hash range that this rank owns."""
    refused, parts = "", list[tuple[int, Any]]()
    try:
        found = [part for (part,) in given.things]
        parts = [
            (each.number, reduce(lambda rows, step: step(rows), shares.steps, part))
            for each, part in zip(given.own, found, strict=True)
        ]
    except KeyError as error:
        refused = f"partition {error} has left its worker"
    plan, states = _states(collective, shares, parts)
    columns = plain_arrays(states, plan.states_meta)
    if columns is None:
        refused, states = "a column of states has nulls", plan.states_meta
        columns = plain_arrays(states, states)
        assert columns is not None
    own = _owned(plan, states, columns, shares.ranges, collective.size)
    del states, columns
    came = collective.all_to_all(own.columns, own.counts)
    del own
    if any(collective.gather(refused)):
        return TaskOutput(refused or "another rank has refused", {})
    if collective.rank >= shares.ranges:
        return TaskOutput("", {})
    result = shares.called(_folded(plan, came))
    return TaskOutput("", {(f"dgpuhash-groups-{given.token}", collective.rank): result})


def _states(
    collective: Collective, shares: GroupShares, parts: list[tuple[int, Any]]
) -> tuple[GroupPlan, Any]:
    """Return the plan that all ranks agree on, and the states or rows of this one's partitions."""
    plan, by_rows, made = shares.plan, shares.by_rows, list[Any]()
    if by_rows is not None:
        for number, part in parts:
            found = mostly_distinct_rows(by_rows, part, number)
            if found is None:
                break
            made.append(found[0])
        if all(collective.gather(len(made) == len(parts))):
            plan = by_rows
        else:
            made = []
    if plan is not by_rows:
        made = [plan.reduce(part, number) for number, part in parts]
    if not made:
        return plan, plan.states_meta
    return plan, made[0] if len(made) == 1 else frames_of(made[0]).concat(made)


def _owned(
    plan: GroupPlan, states: Any, columns: tuple[Any, ...], ranges: int, ranks: int
) -> PartitionedColumns:
    """Return states by the rank that owns their hash range."""
    encoder = plan.encoder
    encoded = encoder.encode_rows(plan.portable(states))
    key = 0 if encoder.codes_are_keys else None
    made = partition_columns(
        columns, key, encoded, ranges, owner_seed=encoder.seeds.owners, numbered=False
    )
    counts = np.zeros(ranks, np.int64)
    counts[:ranges] = made.counts
    return PartitionedColumns(made.columns, None, counts)


def _folded(plan: GroupPlan, came: Received) -> Any:
    """Return the answer of the states, or the rows, from all ranks."""
    frames = frames_of(plan.states_meta)
    if not int(came.counts.sum()):
        return plan.meta
    if plan.needs_rows:
        return plan.result_of_rows(frames.from_arrays(came.columns, plan.states_meta))
    ends = np.cumsum(came.counts)
    pieces = [
        frames.from_arrays([column[start:end] for column in came.columns], plan.states_meta)
        for start, end in zip(ends - came.counts, ends, strict=True)
        if start < end
    ]
    return plan.result(plan.folded(pieces))
