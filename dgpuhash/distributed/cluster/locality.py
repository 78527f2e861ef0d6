"""Run a broadcast next to its inputs, and leave its outputs on the workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import dask
from distributed import Future, SchedulerPlugin

from dgpuhash.distributed.cluster.dask_internals import forget_data, scheduler_plugin
from dgpuhash.frames import frames_of

Result = TypeVar("Result")

# Prefix of the keys of all data that this library leaves on workers.
KEY_PREFIX = "dgpuhash-"

# Share of a worker's memory to stay below where Dask's ``memory.target`` is off.
SPILLING = 0.6


class Item(Protocol):
    """Keys on one worker that belong together, such as the columns of a chunk."""

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The Dask keys of the item's data."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Input of a broadcast: data to process on the workers that store it.

    Attributes
    ----------
    labels : sequence of label
        Dask keys.
    deal : callable
        Defined in a module. Called on the scheduler when the broadcast begins, with the workers,
        `labels`, and the holders of each label; returns the items of each worker, or a text that
        says why the broadcast cannot have all of them.
    token : str
        Part of the outputs' keys that no key had before; by default the scheduler draws it.
    growth : float
        Free memory that each worker must have, as a multiple of its items' bytes: Dask cannot spill
        data that a broadcast works on, and would kill the worker. 0: no check.
    """

    labels: Sequence[Hashable]
    deal: Callable[
        [Sequence[str], Sequence[Hashable], Mapping[Hashable, Collection[str]]],
        Sequence[Sequence[Item]] | str,
    ]
    token: str = ""
    growth: float = 0.0

    def dealt(self, workers: Sequence[str], scheduler: Any) -> Sequence[Sequence[Item]] | str:
        """Return the items of each worker, or the reason why there are none.

        Runs on the scheduler.
        """
        found = self.deal(workers, self.labels, scheduler.get_who_has(self.labels))
        if not self.growth or isinstance(found, str):
            return found
        for address, items in zip(workers, found, strict=True):
            labels = [label for item in items for label in item.labels]
            nbytes = sum(scheduler.tasks[label].get_nbytes() for label in labels)
            # A worker that has left holds no items.
            if labels and not _has_room(scheduler.workers[address], nbytes * self.growth):
                return f"worker {address} is short of memory"
        return found


def _has_room(worker: Any, nbytes: float) -> bool:
    """Return whether a worker can take `nbytes` more without spilling.

    False for one that has spilled already; True without a memory limit.
    """
    share = dask.config.get("distributed.worker.memory.target") or SPILLING
    limit, memory = worker.memory_limit, worker.memory
    return not limit or (memory.spilled == 0 and memory.process + nbytes <= share * limit)


class DataNotLocal(Exception):
    """A broadcast's input is not on its workers, so no worker was called."""


@dataclass(frozen=True, slots=True)
class LocalInputs:
    """Inputs of a broadcast that are on this worker.

    Attributes
    ----------
    dealt : sequence of sequence of Item
        The items of each worker.
    rank : int
        This worker's position in `dealt`.
    token : str
        Part of its outputs' keys, unique to this call.
    """

    dealt: Sequence[Sequence[Any]]
    rank: int
    token: str
    _found: list[list[Any]] | Exception

    @property
    def own(self) -> Sequence[Any]:
        """The items of this worker."""
        return self.dealt[self.rank]

    @property
    def things(self) -> list[list[Any]]:
        """The data of each of this worker's items.

        Raises
        ------
        KeyError
            When data has left the worker.
        Exception
            Any other error of reading the data.
        """
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    @classmethod
    def to(
        cls, worker: Any, workers: Sequence[str], dealt: Sequence[Sequence[Any]], token: str
    ) -> LocalInputs:
        """Make the local inputs of `worker` from its data.

        Runs on the worker's event loop, which alone touches its data.
        """
        rank = workers.index(worker.address)
        found: list[list[Any]] | Exception
        try:
            found = [[worker.data[label] for label in item.labels] for item in dealt[rank]]
        except Exception as error:
            found = error
        return cls(dealt, rank, token, found)


@dataclass(frozen=True, slots=True)
class TaskOutput(Generic[Result]):
    """Result of a broadcast on one worker, with data that stays there under Dask keys.

    The client gets futures for the data, which keep it there.
    """

    result: Result
    data: Mapping[Any, Any]


class DepartureHandler(SchedulerPlugin):
    """Scheduler plugin that forgets this library's data on a closing worker.

    Otherwise Dask reports the loss of that data as an error, also when a cluster closes before its
    clients have released their results, as most do. A worker that is killed announces nothing, and
    Dask's report stays.
    """

    name = "dgpuhash-departures"

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def log_event(self, topic: str, message: Any) -> None:
        """Forget the keys of a worker whose event says that it is closing.

        Dask calls this for all events; the topic of a worker's event is its address.
        """
        if not isinstance(message, dict) or message.get("status") != "closing":
            return
        forget_data(self._scheduler, topic, _is_ours)


def _is_ours(key: Any) -> bool:
    name = key[0] if isinstance(key, tuple) else key
    return isinstance(name, str) and name.startswith(KEY_PREFIX)


def watch_departures(dask_scheduler: Any) -> None:
    """Install the `DepartureHandler` plugin on the scheduler, once.

    Runs on the scheduler.
    """
    scheduler_plugin(
        dask_scheduler, DepartureHandler.name, lambda: DepartureHandler(dask_scheduler)
    )


# Room for copies of keys, and for a result with columns of both sides.
GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class PartitionLocation:
    """Location of a partition: its Dask key and the worker that stores it.

    Attributes
    ----------
    number : int
        Position among all partitions.
    labels : tuple of one label
        The Dask key.
    """

    number: int
    labels: tuple[Hashable]


def partitions_spec(partitions: Sequence[Any], meta: Any) -> InputSpec:
    """Return the partitions as the input of a broadcast to the workers that store them.

    `meta` is an empty frame like the partitions.

    Raises
    ------
    DataNotLocal
        When the partitions are not all computed and on workers.
    """
    if not partitions or not all(isinstance(each, Future) for each in partitions):
        raise DataNotLocal("the frame is not persisted")
    if any(each.status != "finished" for each in partitions):
        raise DataNotLocal("not all of its partitions are computed")
    # Dask limits host memory only.
    growth = GROWTH if frames_of(meta).device == "cpu" else 0.0
    return InputSpec([each.key for each in partitions], partitions_by_rank, growth=growth)


def partitions_by_rank(
    workers: Sequence[str],
    labels: Sequence[Hashable],
    holders: Mapping[Hashable, Collection[str]],
) -> list[list[PartitionLocation]] | str:
    """Assign each partition to one worker that stores it.

    Returns the partitions of each of `workers`, or a text that says why one has no holder. Among
    several holders, the one with the fewest partitions gets it.
    """
    ranks = {worker: rank for rank, worker in enumerate(workers)}
    found: list[list[PartitionLocation]] = [[] for _ in workers]
    for number, label in enumerate(labels):
        there = [ranks[holder] for holder in holders[label] if holder in ranks]
        if not there:
            return f"partition {number} is on no worker with a shard"
        found[min(there, key=lambda rank: len(found[rank]))].append(
            PartitionLocation(number, (label,))
        )
    return found
