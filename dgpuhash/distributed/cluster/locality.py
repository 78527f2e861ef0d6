"""What a phase needs of the workers' data, and what it leaves there, in the phase's own message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Generic, Protocol, TypeVar

import dask
from distributed import Client, Future, SchedulerPlugin

from dgpuhash.frames import frames_of

__all__ = [
    "OURS",
    "Elsewhere",
    "Given",
    "Item",
    "Lying",
    "Made",
    "Needed",
    "claim",
    "claimed",
    "free",
    "needed",
    "report",
    "watch_departures",
]

Result = TypeVar("Result")

# Begins the names of all data that this library leaves on workers.
OURS = "dgpuhash-"

# Of a worker's memory, where Dask is not to spill.
SPILLING = 0.6


class Item(Protocol):
    """Things of one worker that belong together, such as the columns of a chunk."""

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """Under which the worker has them."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Data that a phase works on where it lies.

    Attributes
    ----------
    labels : sequence of label
    deal : callable
        Of a module: of workers, `labels`, and the holders of each label, the items of each worker;
        or why the phase cannot have all. The scheduler calls it when the phase begins.
    token : str
        For names of what the phase leaves, which nothing had before; by default the scheduler's.
    growth : float
        How many times the bytes of its items each worker must have room for beside them, so that
        Dask, which cannot spill what a phase works on, need not end it. 0: nobody looks.
    """

    labels: Sequence[Hashable]
    deal: Callable[
        [Sequence[str], Sequence[Hashable], Mapping[Hashable, Collection[str]]],
        Sequence[Sequence[Item]] | str,
    ]
    token: str = ""
    growth: float = 0.0

    def dealt(self, workers: Sequence[str], scheduler: Any) -> Sequence[Sequence[Item]] | str:
        """Runs on the scheduler."""
        found = self.deal(workers, self.labels, scheduler.get_who_has(self.labels))
        if not self.growth or isinstance(found, str):
            return found
        for address, items in zip(workers, found, strict=True):
            labels = [label for item in items for label in item.labels]
            nbytes = sum(scheduler.tasks[label].get_nbytes() for label in labels)
            # One that has gone has none of them.
            if labels and not _has_room(scheduler.workers[address], nbytes * self.growth):
                return f"worker {address} is short of memory"
        return found


def _has_room(worker: Any, nbytes: float) -> bool:
    """Whether a worker has spilled nothing, and need not for `nbytes` more."""
    share = dask.config.get("distributed.worker.memory.target") or SPILLING
    limit, memory = worker.memory_limit, worker.memory
    return not limit or (memory.spilled == 0 and memory.process + nbytes <= share * limit)


class Elsewhere(Exception):
    """Why no phase can work on the data where it lies; no worker was told of one."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a worker is given of what its phase needs.

    Attributes
    ----------
    dealt : sequence of sequence of Item
        Of each worker.
    rank : int
        This worker's place among them.
    token : str
        Of this call: names with it were given to nothing before.
    """

    dealt: Sequence[Sequence[Any]]
    rank: int
    token: str
    _found: list[list[Any]] | Exception

    @property
    def own(self) -> Sequence[Any]:
        """This worker's items."""
        return self.dealt[self.rank]

    @property
    def things(self) -> list[list[Any]]:
        """Those of each of its own items.

        Raises
        ------
        KeyError
            When one has left the worker.
        Exception
            What else came of looking at the data.
        """
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    @classmethod
    def to(
        cls, worker: Any, workers: Sequence[str], dealt: Sequence[Sequence[Any]], token: str
    ) -> Given:
        """What `worker` has of it; runs on its event loop, which alone touches its data."""
        rank = workers.index(worker.address)
        found: list[list[Any]] | Exception
        try:
            found = [[worker.data[label] for label in item.labels] for item in dealt[rank]]
        except Exception as error:
            found = error
        return cls(dealt, rank, token, found)


@dataclass(frozen=True, slots=True)
class Made(Generic[Result]):
    """A result of a worker, and what it leaves among its data.

    The client is given futures for the latter, which keep it there.
    """

    result: Result
    data: Mapping[Any, Any]


def claim(scheduler: Any, client: str, left: Mapping[str, Mapping[Hashable, int]]) -> None:
    """Runs on the scheduler: note for `client` what workers have left, with its bytes."""
    sizes = {label: nbytes for mine in left.values() for label, nbytes in mine.items()}
    if sizes:
        watch_departures(scheduler)
        holders = {label: [worker] for worker, mine in left.items() for label in mine}
        scheduler.update_data(who_has=holders, nbytes=sizes)
        wanting = scheduler.clients[client]
        # Dask's own way would tell the client of each thing, which the phase's answer does.
        for label in sizes:
            task = scheduler.tasks[label]
            task.who_wants = {wanting, *(task.who_wants or ())}
            wanting.wants_what.add(task)


def claimed(client: Client, labels: Collection[Any]) -> dict[Hashable, Future]:
    """Futures for what the scheduler has noted for `client`; when they go, so does that."""
    futures: dict[Hashable, Future] = {label: Future(label, client) for label in labels}
    for label in futures:
        client.futures[label].finish()
    return futures


def free(scheduler: Any, worker: str, labels: Collection[Hashable]) -> None:
    """Runs on the scheduler: let a worker drop what nobody is going to claim."""
    if labels and worker in scheduler.workers:
        message = {"op": "free-keys", "keys": list(labels), "stimulus_id": f"dgpuhash-{time()}"}
        scheduler.worker_send(worker, message)


class Departures(SchedulerPlugin):
    """Forgets what a worker that is closed takes with it, before Dask reports it as an error.

    So does a cluster that ends before its clients have let go their answers, as most do. Of workers
    that are killed, nobody is told before, and Dask's report stays.
    """

    name = "dgpuhash-departures"

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def log_event(self, topic: str, message: Any) -> None:
        """Called with all events of the scheduler; those of a worker have its address for topic."""
        if not isinstance(message, dict) or message.get("status") != "closing":
            return
        leaving = self._scheduler.workers.get(topic)
        if leaving is not None:
            gone = [task.key for task in leaving.has_what if _only_there(task)]
            self._scheduler.transitions(dict.fromkeys(gone, "forgotten"), f"dgpuhash-{time()}")


def watch_departures(dask_scheduler: Any) -> None:
    """Runs on the scheduler: have it forget what workers that are closed have of ours."""
    if Departures.name not in dask_scheduler.plugins:
        dask_scheduler.add_plugin(Departures(dask_scheduler))


def _only_there(task: Any) -> bool:
    """Whether no other worker has it, nor can make it again."""
    name = task.key[0] if isinstance(task.key, tuple) else task.key
    ours = isinstance(name, str) and name.startswith(OURS)
    return ours and not task.run_spec and len(task.who_has) == 1


# Copies of keys, and a result with columns of both sides.
GROWTH = 2.0

_log = logging.getLogger("dgpuhash.bulk")


@dataclass(frozen=True, slots=True)
class Lying:
    """A partition among the data of a worker.

    Attributes
    ----------
    number : int
        Among all partitions.
    labels : tuple of one label
        Under which the worker has it.
    """

    number: int
    labels: tuple[Hashable]


def needed(partitions: Sequence[Any], meta: Any) -> Needed:
    """The partitions, for a phase of workers that have each, and frames like `meta`.

    Raises
    ------
    Elsewhere
        When they are not on workers.
    """
    if not partitions or not all(isinstance(each, Future) for each in partitions):
        raise Elsewhere("the frame is not persisted")
    if any(each.status != "finished" for each in partitions):
        raise Elsewhere("not all of its partitions are computed")
    # Dask's limits are those of the host's memory.
    growth = GROWTH if frames_of(meta).device == "cpu" else 0.0
    return Needed([each.key for each in partitions], by_rank, growth=growth)


def by_rank(
    workers: Sequence[str],
    labels: Sequence[Hashable],
    holders: Mapping[Hashable, Collection[str]],
) -> list[list[Lying]] | str:
    """The partitions that each of `workers` has, each once; or why a phase cannot have them."""
    ranks = {worker: rank for rank, worker in enumerate(workers)}
    found: list[list[Lying]] = [[] for _ in workers]
    for number, label in enumerate(labels):
        there = [ranks[holder] for holder in holders[label] if holder in ranks]
        if not there:
            return f"partition {number} is on no worker with a shard"
        found[min(there, key=lambda rank: len(found[rank]))].append(Lying(number, (label,)))
    return found


def report(what: str, refused: str = "") -> None:
    """Tell the log whether a phase did it, or why tasks have to."""
    _log.info("%s %s", what, f"by tasks: {refused}" if refused else "in one phase")
