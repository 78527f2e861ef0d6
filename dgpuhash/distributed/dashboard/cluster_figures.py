"""Collect the workers' figures on the scheduler for the dashboard.

Nobody is asked unless somebody looks: each page that is open calls `ClusterFigures.ask` once a
second, and all of them together cost one call of each worker a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.rpc import call_worker, encode_call, fire_and_forget
from dgpuhash.distributed.dashboard.worker_figures import (
    PhaseFigures,
    ShardFigures,
    WorkerFigures,
    tell_figures,
)
from dgpuhash.distributed.partition.registry import PublishedIndex, published_indexes
from dgpuhash.distributed.tables.leases import leased_tables

# Seconds between two calls of a worker.
PERIOD = 0.9


@dataclass(frozen=True, slots=True)
class ShownShard:
    """A shard of an index or table, on a worker: its rows, and its bytes if known."""

    worker: str
    rows: int
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Holder:
    """An index or table, with the figures of its shards.

    Attributes
    ----------
    name : str
        Of an index; of a table, which has none, the begin of its id in parentheses.
    kind, stored : str
        As `ShardFigures` has them.
    placement : str
    epoch : int
    shards : tuple of ShownShard
        Those that workers tell of, by the names of these.
    expected : int
        How many shards it has; more than `shards` when workers were lost.
    load : float or None
        The highest load of a shard's key table.
    """

    uid: str
    name: str
    kind: str
    stored: str
    placement: str
    epoch: int
    shards: tuple[ShownShard, ...]
    expected: int
    load: float | None

    @property
    def rows(self) -> int:
        """Rows, each counted once."""
        rows = [shard.rows for shard in self.shards]
        return max(rows, default=0) if self.placement == "replicated" else sum(rows)

    @property
    def nbytes(self) -> int | None:
        """Bytes of all shards; None if one is unknown."""
        known = [shard.nbytes for shard in self.shards if shard.nbytes is not None]
        return sum(known) if len(known) == len(self.shards) else None

    @property
    def skew(self) -> float:
        """Rows of the largest shard, divided by the average.

        Examples
        --------
        >>> shards = ShownShard("a", 30, None), ShownShard("b", 10, None)
        >>> Holder("u", "n", "index", "HashMap", "distributed", 1, shards, 2, None).skew
        1.5
        """
        rows = [shard.rows for shard in self.shards]
        return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0


@dataclass(frozen=True, slots=True)
class WorkPhase:
    """Bulk work under way on an index or table.

    Attributes
    ----------
    name, verb, step : str
    done, total : int
        Rows, or partitions; `total` is 0 where nobody knows it.
    unit : str
        ``"rows"`` or ``"partitions"``.
    seconds : float
        Since the first worker began.
    workers : int
        How many take part.
    """

    name: str
    verb: str
    step: str
    done: int
    total: int
    unit: str
    seconds: float
    workers: int


class ClusterFigures:
    """Latest figures of each worker of a scheduler, and requests in flight."""

    def __init__(self) -> None:
        self._told: dict[str, WorkerFigures] = {}
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._last = -PERIOD
        self.calls = 0
        """Calls of workers so far."""

    def ask(self, scheduler: Any) -> None:
        """Request figures from each worker, at most once a second.

        Returns at once. A worker that has not answered is not asked again.
        """
        now = time.monotonic()
        # Where no index and no table was ever made, workers would import this library first.
        if now - self._last < PERIOD or NAME not in scheduler.worker_plugins:
            return
        self._last = now
        self._told = {w: told for w, told in self._told.items() if w in scheduler.workers}
        post = encode_call(
            tell_figures, {each.uid: each.epoch for each in published_indexes(scheduler)}
        )
        for worker in scheduler.workers:
            if worker not in self._asked:
                self.calls += 1
                self._asked[worker] = fire_and_forget(self._hear(scheduler, worker, post))

    async def _hear(self, scheduler: Any, worker: str, post: bytes) -> None:
        try:
            told: WorkerFigures = await call_worker(scheduler, worker, post, None)
            # The tasks are counted now: they are gone before somebody looks.
            phases = tuple(_with_partitions(each, scheduler) for each in told.phases)
            self._told[worker] = replace(told, phases=phases)
        finally:
            del self._asked[worker]

    def holders(self, scheduler: Any) -> list[Holder]:
        """Return the indexes by name, then the tables, by the latest figures."""
        shards: dict[str, dict[str, ShardFigures]] = {}
        for worker in sorted(self._told):
            for told in self._told[worker].shards:
                shards.setdefault(told.uid, {})[worker] = told
        found = [_index(index, shards.pop(index.uid, {})) for index in published_indexes(scheduler)]
        # What has no lease is an index that was closed since, or a table that is being freed.
        leased = leased_tables(scheduler)
        tables = sorted(shards.keys() & leased)
        return [*found, *(_table(uid, shards[uid], leased[uid]) for uid in tables)]

    def phases(self, scheduler: Any) -> list[WorkPhase]:
        """Return the bulk work under way, the oldest first."""
        names = {index.uid: index.name for index in published_indexes(scheduler)}
        parts: dict[tuple[str, str], list[PhaseFigures]] = {}
        for told in self._told.values():
            for each in told.phases:
                parts.setdefault((each.uid, each.verb), []).append(each)
        found = [_phase(names.get(uid) or _name(uid), mine) for (uid, _), mine in parts.items()]
        return sorted(found, key=lambda phase: -phase.seconds)


# Those of each scheduler in this process.
_figures: WeakKeyDictionary[Any, ClusterFigures] = WeakKeyDictionary()


def figures_of(scheduler: Any) -> ClusterFigures:
    """Return the `ClusterFigures` of a scheduler, created once."""
    return _figures.setdefault(scheduler, ClusterFigures())


def _index(index: PublishedIndex, told: Mapping[str, ShardFigures]) -> Holder:
    mine = {worker: told[worker] for worker in index.workers if worker in told}
    about = index.uid, index.name, index.placement, index.epoch
    return _holder(*about, mine, expected=len(index.workers))


def _table(uid: str, told: Mapping[str, ShardFigures], workers: Sequence[str]) -> Holder:
    first = next(iter(told.values()))
    epoch = max(each.epoch for each in told.values())
    return _holder(uid, _name(uid), first.placement, epoch, told, expected=len(workers))


def _holder(
    uid: str, name: str, placement: str, epoch: int, told: Mapping[str, ShardFigures], expected: int
) -> Holder:
    shards = tuple(ShownShard(worker, each.rows, each.nbytes) for worker, each in told.items())
    # One shard may have met a key twice, and find its rows by a multimap.
    stored = ", ".join(sorted({each.stored for each in told.values()}))
    kind = next((each.kind for each in told.values()), "index")
    loads = [each.load for each in told.values() if each.load is not None]
    load = max(loads, default=None)
    return Holder(uid, name, kind, stored, placement, epoch, shards, expected, load)


def _name(uid: str) -> str:
    """Return a display name for a frame, a table or an unnamed index."""
    return f"({uid[:8]})" if uid else "(a frame)"


def _phase(name: str, parts: Sequence[PhaseFigures]) -> WorkPhase:
    """Return the phase that the workers' `parts` add up to."""
    steps = [each.step for each in parts]
    first = parts[0]
    seconds = max(each.seconds for each in parts)
    done, total = sum(each.done for each in parts), sum(each.rows for each in parts)
    unit = "rows"
    if all(each.step == first.step and each.partitions for each in parts):
        # All workers wait for the same tasks.
        done, total, unit = max(each.done for each in parts), first.partitions, "partitions"
    # Workers may be at different steps: most of them are at this one.
    step = max(steps, key=steps.count)
    return WorkPhase(name, first.verb, step, done, total, unit, seconds, len(parts))


def _with_partitions(phase: PhaseFigures, scheduler: Any) -> PhaseFigures:
    """Return the phase with the number of partitions done, where tasks process partitions."""
    keys = (f"{NAME}-{phase.verb}-{phase.transaction}-{n}" for n in range(phase.partitions))
    tasks = [scheduler.tasks[key] for key in keys if key in scheduler.tasks]
    if not tasks:
        return replace(phase, partitions=0)
    done = sum(task.state == "memory" for task in tasks)
    return replace(phase, done=done, partitions=len(tasks))
