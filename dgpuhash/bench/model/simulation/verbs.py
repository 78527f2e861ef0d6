"""Simulate the verbs of each rank: kernels, gathers and exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dgpuhash.bench.model.simulation.cluster import Cluster, Program, Rank, Resource
from dgpuhash.bench.model.simulation.exchanges import EXCHANGES, Exchange, gather
from dgpuhash.distributed.shards.table_store import SLICE_ROWS

KEY_NBYTES, PAIR_NBYTES, STATE_NBYTES = 8, 17, 24
# Rows of a merge that match, as `dgpuhash bench scaling` joins, and what comes back for each.
MATCHING, ANSWER_NBYTES = 0.3, 16
# Rows of a group.
PER_GROUP = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """Rates of one GPU's phases, and times of client and scheduler.

    Attributes
    ----------
    partition, insert, lookup, reduce : float
        Rows each second.
    fixed : float
        Seconds of a verb on one worker in which it does not work.
    each : float
        Seconds of the scheduler for every worker.
    """

    partition: float
    insert: float
    lookup: float
    reduce: float
    fixed: float
    each: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a simulation.

    Attributes
    ----------
    seconds : float
    messages, far_messages, most_messages : int
        All messages, those between hosts, and those of the rank that sent most.
    nvlink, nic : float
        Bytes of rows that all links within hosts, and between hosts, carried.
    working : float
        Seconds in which the busiest GPU worked.
    talking : float
        Seconds in which the busiest event loop carried messages.
    copying : float
        Seconds in which the rank that copied most in host memory did so.
    """

    seconds: float
    messages: int
    far_messages: int
    most_messages: int
    nvlink: float
    nic: float
    working: float
    talking: float
    copying: float


class VerbRun:
    """One verb of all ranks over one transport.

    Exchanges and gathers are numbered; ranks that come to the same number take part in the same.

    Parameters
    ----------
    cluster : Cluster
    way : str
        A name of `EXCHANGES`.
    costs : Costs
    rows : float
        Of a rank.
    """

    def __init__(self, cluster: Cluster, way: str, costs: Costs, rows: float) -> None:
        self.cluster: Cluster = cluster
        self.way: str = way
        self.costs: Costs = costs
        self.rows: float = rows
        self._made: dict[int, Exchange] = {}

    @property
    def travelling(self) -> float:
        """Number of a rank's rows that other ranks own."""
        return self.rows * (1 - 1 / len(self.cluster.ranks))

    def exchange(self, number: int, nbytes: float) -> Exchange:
        """Return the exchange of this number."""
        if number not in self._made:
            self._made[number] = EXCHANGES[self.way](self.cluster, nbytes)
        return self._made[number]

    def gather(self, number: int) -> Exchange:
        """Return the gather of this number."""
        if number not in self._made:
            self._made[number] = gather(self.cluster, self.way)
        return self._made[number]

    def work(self, rank: Rank, rows: float, rate: float) -> float:
        """Queue kernels on a rank's GPU; return when they have ended."""
        return rank.gpu.serve(self.cluster.clock.now, rows / rate)


def exchange(run: VerbRun, rank: Rank) -> Program:
    """Exchange all rows, as a bulk insert does, without other work."""
    yield run.exchange(0, run.rows * PAIR_NBYTES).start(rank)


def insert(run: VerbRun, rank: Rank) -> Program:
    """Insert pairs: slices travel while others are inserted."""
    yield run.gather(0).start(rank)
    slices = max(1, round(run.travelling / SLICE_ROWS))
    each = run.rows / slices
    if len(run.cluster.ranks) > 1:
        yield run.work(rank, run.rows, run.costs.partition)
    ended = 0.0
    for number in range(slices):
        yield run.exchange(1 + number, each * PAIR_NBYTES).start(rank)
        ended = run.work(rank, each, run.costs.insert)
    yield ended


def merge(run: VerbRun, rank: Rank) -> Program:
    """Merge with a standing index: keys travel to their owners, and rows come back."""
    yield run.gather(0).start(rank)
    yield run.work(rank, run.rows, run.costs.partition)
    yield run.exchange(1, run.rows * KEY_NBYTES).start(rank)
    yield run.work(rank, run.rows, run.costs.lookup)
    yield run.exchange(2, run.rows * MATCHING * ANSWER_NBYTES).start(rank)
    yield run.gather(3).start(rank)


def groupby(run: VerbRun, rank: Rank) -> Program:
    """Group: each rank reduces its rows to states and sends them to the groups' owners."""
    yield run.gather(0).start(rank)
    yield run.work(rank, run.rows, run.costs.reduce)
    states = run.rows / PER_GROUP
    yield run.work(rank, states, run.costs.partition)
    yield run.exchange(1, states * STATE_NBYTES).start(rank)
    yield run.work(rank, states, run.costs.reduce)
    yield run.gather(2).start(rank)


VERBS: dict[str, Callable[[VerbRun, Rank], Program]] = {
    "exchange": exchange,
    "bulk insert": insert,
    "merge": merge,
    "groupby": groupby,
}


def moved_nbytes(verb: str, rows: float) -> float:
    """Return the bytes of rows of a rank in all exchanges of a verb, its own rows included."""
    if verb == "merge":
        return rows * (KEY_NBYTES + MATCHING * ANSWER_NBYTES)
    return rows / PER_GROUP * STATE_NBYTES if verb == "groupby" else rows * PAIR_NBYTES


def simulate(cluster: Cluster, verb: str, way: str, costs: Costs, rows: float) -> Outcome:
    """Run a verb on a fresh cluster, from the client's call to its answer."""
    clock, scheduler = cluster.clock, Resource()
    run, program = VerbRun(cluster, way, costs, rows), VERBS[verb]
    alone = verb == "exchange"
    half, fixed = (0.0, 0.0) if alone else (costs.each / 2, costs.fixed)
    for rank in cluster.ranks:
        # The scheduler calls one worker after the other, and takes one answer after the other.
        told = scheduler.serve(0.0, half)
        clock.at(fixed + told, clock.start, program(run, rank), lambda: answer())
    ends = []

    def answer() -> None:
        ends.append(scheduler.serve(clock.now, half))

    clock.run()
    traffic = cluster.traffic
    return Outcome(
        max(ends),
        traffic.messages,
        traffic.far_messages,
        max(rank.sent for rank in cluster.ranks),
        traffic.nbytes["nvlink"],
        traffic.nbytes["nic"],
        max(rank.gpu.busy for rank in cluster.ranks),
        max(rank.loop.busy for rank in cluster.ranks),
        max(rank.memory.busy for rank in cluster.ranks),
    )
