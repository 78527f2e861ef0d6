"""Driver of collectives: exchange partial states or rows between all workers in one phase."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import dask.dataframe as dd
import numpy as np
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.dask_internals import pickle
from dgpuhash.distributed.cluster.device_thread import ThreadProgress
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
from dgpuhash.tables.memory_errors import memory_errors_of

# Free memory that each worker must have, as a multiple of its rows' bytes: states of narrow rows
# take more than these, and their owner has them twice.
_GROWTH = 4.0

Step = Callable[[Any], Any]


@dataclass(frozen=True)
class RangeShares:
    """What the ranks of a collective phase have in common; each verb has its own.

    Attributes
    ----------
    plan : Any
        How partitions are reduced to states or rows, and these folded to the answer: `GroupPlan` or
        `DistinctRows` of `dgpuhash.frames`.
    ranges : int
        The number of hash ranges; ranks own equally many, in their order.
    steps : tuple of callable
        From a partition that is persisted to the rows that are grouped, in turn.
    called : callable, optional
        Returns a result under the names of the frame's columns, where it has others.
    """

    #: What is done, in words.
    verb: ClassVar[str]
    plan: Any
    ranges: int
    steps: tuple[Step, ...]
    called: Step | None = None

    def pack(self, plan: Any, states: list[Any], rows: int) -> Any:
        """Return the states of a rank's partitions as one frame; `rows` is the number of theirs."""
        return frames_of(states[0]).concat(states)

    def answer(self, plan: Any, pieces: list[Any], categories: Sequence[Any]) -> Any:
        """Return the answer of the states, or the rows, of a hash range.

        `categories` are those of all partitions, where they are not those of the plan.
        """
        return plan.result(plan.folded(pieces)) if pieces else plan.meta

    @cached_property
    def others(self) -> list[list[Hashable]]:
        """State columns that are not plain arrays, such as texts and objects, by form."""
        return [
            [] if are_plain(meta) else [label for label in meta if not are_plain(meta[[label]])]
            for meta in (plan.states_meta for plan in self.plan.forms)
        ]


def answers_of_ranges(
    client: Client, shares: CachedPickle[RangeShares], frame: dd.DataFrame
) -> list[Any] | None:
    """Return futures of the results by hash range; None if tasks must compute them.

    Parameters
    ----------
    client : Client
    shares : CachedPickle of RangeShares
    frame : Dask DataFrame
        It is persisted.
    """
    asked = shares.opened()
    what = asked.verb
    try:
        parts = persisted_futures(frame) or []
        check_same_cluster(client, parts, "rows")
        needed = partitions_spec(parts, asked.plan.source)
        on_cpu = frames_of(asked.plan.source).device == "cpu"
        needed = replace(needed, growth=_GROWTH if needed.growth else 0.0)
        if not on_cpu and any(asked.others):
            raise DataNotLocal("states are not plain arrays")
        made = _run(client, shares, asked.ranges, needed, several=on_cpu)
    except (DataNotLocal, IndexLost, OutOfMemoryError) as error:
        # Tasks are made again where a worker is lost, and write what memory has no room for.
        log_execution(what, str(error))
        return None
    refused = [each.result for each in made if each.result]
    log_execution(what, *refused[:1])
    futures = {key: future for each in made for key, future in each.data.items()}
    return None if refused else [futures[key] for key in sorted(futures)]


# The workers of a client's last phase: to ask the scheduler which there are takes as long as
# a phase does. A partition on another worker, or one that has left, makes them be asked for.
_known: WeakKeyDictionary[Client, tuple[ShardAddress, ...]] = WeakKeyDictionary()


def _run(
    client: Client, shares: CachedPickle[RangeShares], ranges: int, needed: InputSpec, *,
    several: bool,
) -> list[TaskOutput[str]]:  # fmt: skip
    """Run the phase on the current workers.

    A worker has `several` hash ranges where they are more than workers, or tasks make the answer.
    """
    known = _known.pop(client, ())
    made = None
    if len(known) >= ranges:
        with suppress(DataNotLocal, IndexLost):
            made = run_collective(client, known, answers_on_rank, shares, needed=needed)
    if made is None:
        known = shard_addresses(client, known=True)
        if len(known) < ranges and not several:
            raise DataNotLocal("there are more hash ranges than workers")
        made = run_collective(client, known, answers_on_rank, shares, needed=needed)
    _known[client] = known
    return made


def answers_on_rank(
    host: ShardHost, collective: Collective, packed: CachedPickle[RangeShares], given: LocalInputs
) -> TaskOutput[str]:
    """Run one rank's share of a collective phase; return why tasks must do it, or nothing.

    A rank that cannot reduce its partitions sends no states.
    """
    shares = packed.opened()
    device = frames_of(shares.plan.source).device
    progress = ThreadProgress("", shares.verb, "reduce, exchange and fold rows")
    with (
        collective.with_quiet_loop(device),
        host.thread.telling(progress),
        memory_errors_of(shares.verb),
    ):
        made = _on_rank(collective, shares, given)
        backend.get(device).synchronize()
        return made


def _on_rank(collective: Collective, shares: RangeShares, given: LocalInputs) -> TaskOutput[str]:
    """Return the result of this rank's hash range."""
    refused, parts = "", list[tuple[int, Any]]()
    try:
        found = [part for (part,) in given.things]
        parts = [
            (each.number, reduce(lambda rows, step: step(rows), shares.steps, part))
            for each, part in zip(given.own, found, strict=True)
        ]
    except KeyError as error:
        refused = f"partition {error} has left its worker"
    categories = {number: shares.plan.categories_of(part) for number, part in parts}
    plan, states = _states(collective, shares, parts)
    others = shares.others[0 if plan is shares.plan else 1]
    columns = _arrays(states, plan.states_meta, others)
    if columns is None:
        refused, states = "a column of states has nulls", plan.states_meta
        columns = _arrays(states, states, others)
        assert columns is not None
    own = _by_range(plan, states, columns, others, shares.ranges)
    bounds = _bounds(shares.ranges, collective.size)
    counts = np.diff(np.concatenate([[0], np.cumsum(own.counts)])[bounds])
    sending = [collective.start(own.columns, counts)]
    if others:
        sending.append(collective.start(*_pickle(states[others], own.numbers, counts)))
    of_ranges = own.counts
    del states, columns, own
    came = [each.wait() for each in sending]
    told = collective.gather((refused, of_ranges, categories))
    if any(reason for reason, *_ in told):
        return TaskOutput(refused or "another rank has refused", {})
    whole: dict[int, Any] = reduce(or_, (found for *_, found in told))
    in_order = [whole[number] for number in sorted(whole)]
    numbers = range(*bounds[collective.rank : collective.rank + 2].tolist())
    data, called = {}, shares.called
    rows = np.array([found for _, found, _ in told])[:, numbers.start : numbers.stop]
    for number, pieces in zip(numbers, _pieces(plan, others, rows, *came), strict=True):
        result = shares.answer(plan, pieces, in_order)
        data[f"dgpuhash-groups-{given.token}", number] = (
            result if called is None else called(result)
        )
    return TaskOutput("", data)


def _bounds(ranges: int, ranks: int) -> np.ndarray:
    """Return the first hash range of each rank, and the end; ranks with fewer come last."""
    bounds: np.ndarray = (np.arange(ranks + 1) * ranges + ranks - 1) // ranks
    return bounds


def _states(
    collective: Collective, shares: RangeShares, parts: list[tuple[int, Any]]
) -> tuple[Any, Any]:
    """Return the plan that all ranks agree on, and the states of this rank's partitions."""
    plan, made = shares.plan.reduce_parts(parts, lambda own: all(collective.gather(own)))
    if not made:
        return plan, plan.states_meta
    rows = sum(len(part) for _, part in parts)
    return plan, made[0] if len(made) == 1 else shares.pack(plan, made, rows)


def _arrays(states: Any, meta: Any, others: Sequence[Hashable]) -> tuple[Any, ...] | None:
    """Return the plain columns as arrays; None if one has nulls on a GPU."""
    return plain_arrays(_without(states, others), _without(meta, others))


def _without(states: Any, others: Sequence[Hashable]) -> Any:
    return states.drop(columns=others) if others else states


def _by_range(
    plan: Any, states: Any, columns: tuple[Any, ...], others: Sequence[Hashable], ranges: int
) -> PartitionedColumns:
    """Return states by hash range, numbered if there are `others`."""
    encoder, encoded = plan.encoder, plan.encoded(states)
    # Codes are the keys also of numbers that may be null, which are none of these columns.
    key = 0 if encoder.codes_are_keys and plan.key_labels[0] not in others else None
    return partition_columns(
        columns, key, encoded, ranges, owner_seed=encoder.seeds.owners, numbered=bool(others)
    )


def _pickle(states: Any, numbers: Any, counts: np.ndarray) -> tuple[list[Any], list[int]]:
    """Return the other columns pickled for each rank, and their row numbers.

    A rank that gets no rows gets no bytes.
    """
    frames, ends = frames_of(states), np.cumsum(counts)
    pieces = [
        pickle.dumps(frames.take(states, numbers[start:end])) if start < end else b""
        for start, end in zip(ends - counts, ends, strict=True)
    ]
    return [np.frombuffer(b"".join(pieces), np.uint8)], list(map(len, pieces))


def _pieces(
    plan: Any,
    others: Sequence[Hashable],
    rows: np.ndarray,
    came: Received,
    packed: Received | None = None,
) -> list[list[Any]]:
    """Return the states received for each hash range of a rank, as frames.

    Parameters
    ----------
    plan : Any
    others : list of label
        The columns that are no arrays.
    rows : array of int64
        The numbers of rows by the rank that sent them and hash range.
    came : Received
        The arrays.
    packed : Received, optional
        The other columns.
    """
    meta = plan.states_meta
    frames = frames_of(meta)
    if plan.needs_rows and rows.shape[1] == 1 and packed is None:
        # In one piece.
        return [[frames.from_arrays(came.columns, meta)] if came.counts.sum() else []]
    parts = _slices(came.counts)
    found = [
        frames.from_arrays([column[part] for column in came.columns], _without(meta, others))
        for part in parts
    ]
    if packed is not None:
        (column,) = packed.columns
        found = [
            frames.beside(piece, other, [*piece, *other])[list(meta)]
            for piece, other in zip(
                found,
                (pickle.loads(memoryview(column[part])) for part in _slices(packed.counts)),
                strict=True,
            )
        ]
    if rows.shape[1] == 1:
        return [found]
    made: list[list[Any]] = [[] for _ in range(rows.shape[1])]
    for piece, counts in zip(found, rows[rows.any(axis=1)], strict=True):
        ends = np.cumsum(counts)
        for number, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
            if start < end:
                made[number].append(piece.iloc[start:end].reset_index(drop=True))
    return made


def _slices(counts: np.ndarray) -> list[slice]:
    """Return the position of each rank's rows, without ranks that sent none."""
    ends = np.cumsum(counts)
    starts = ends - counts
    return [slice(*each) for each in zip(starts, ends, strict=True) if each[0] < each[1]]
