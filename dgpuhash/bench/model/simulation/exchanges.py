"""Simulate all-to-all exchanges: direct, in two levels, and within a host."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from dgpuhash.bench.model.simulation.cluster import BRIEF, Cluster, Rank, Signal
from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.distributed.collective.dask_comm import CHUNKS, SMALL_NBYTES
from dgpuhash.distributed.collective.two_level.collective import small_nbytes

# Seconds of a gather through the memory that the ranks of a host share.
SHARED = 1e-4
# Ranks from which on the messages from each to each are not simulated one by one.
MANY = 48
_CHUNK = chunk_nbytes("cuda")


class Exchange(ABC):
    """One all-to-all exchange with equally many bytes between all ranks.

    Parameters
    ----------
    cluster : Cluster
    nbytes : float
        Bytes of the rows of a rank for all ranks, itself included.
    """

    def __init__(self, cluster: Cluster, nbytes: float) -> None:
        self.cluster: Cluster = cluster
        self.size: int = len(cluster.ranks)
        self.part: float = nbytes / self.size
        self._done = [Signal() for _ in cluster.ranks]
        self._came = [0] * self.size
        self._acknowledged = [0] * self.size
        # What a rank must have got, and must know to have arrived.
        self.expected: list[int] = [0] * self.size
        self.owed: list[int] = [0] * self.size

    def start(self, rank: Rank) -> Signal:
        """Start a rank; return the signal that it has received and sent all rows."""
        self._begin(rank)
        self._look(rank)
        return self._done[rank.number]

    @abstractmethod
    def _begin(self, rank: Rank) -> None: ...

    def others(self, rank: Rank) -> Sequence[Rank]:
        """Return the other ranks, starting with the next one."""
        ranks, first = self.cluster.ranks, rank.number + 1
        return [*ranks[first:], *ranks[: first - 1]]

    def got(self, rank: Rank) -> None:
        """Count a message of rows or counts that a rank has received."""
        came = self._came[rank.number] = self._came[rank.number] + 1
        if came == self.expected[rank.number]:
            self._look(rank)

    def acknowledge(self, rank: Rank) -> None:
        """Count a message of a rank that arrived."""
        arrived = self._acknowledged[rank.number] = self._acknowledged[rank.number] + 1
        if arrived == self.owed[rank.number]:
            self._look(rank)

    def _look(self, rank: Rank) -> None:
        number = rank.number
        if (
            self._came[number] == self.expected[number]
            and self._acknowledged[number] == self.owed[number]
        ):
            self._done[number].tell()


class Chunks:
    """Large parts of a rank, sent in chunks with a few in flight.

    Of those that may leave, they leave in the order of the layout, so that the ranks do not all
    send to the same one.

    Parameters
    ----------
    exchange : Exchange
    source : Rank
    """

    def __init__(self, exchange: Exchange, source: Rank) -> None:
        self._exchange, self._source = exchange, source
        self._order = exchange.cluster.layout.order(source.number)
        self._turns = {number: turn for turn, number in enumerate(self._order)}
        self._waiting: list[tuple[int, int, float]] = []
        self._room, self._planned = CHUNKS, False

    def add(self, target: Rank) -> None:
        """Send a rank its part."""
        turn = self._turns[target.number]
        for number in range(chunks_of(self._exchange.part)):
            left = self._exchange.part - number * _CHUNK
            heapq.heappush(self._waiting, (turn, number, min(left, _CHUNK)))
        if not self._planned and self._room:
            # Once all that happens now has happened.
            self._planned = True
            clock = self._exchange.cluster.clock
            clock.at(clock.now, self._go_on)

    def _go_on(self) -> None:
        self._planned = False
        cluster = self._exchange.cluster
        while self._room and self._waiting:
            turn, _, nbytes = heapq.heappop(self._waiting)
            target = cluster.ranks[self._order[turn]]
            self._room -= 1
            cluster.send(self._source, target, nbytes, self._taken, target)

    def _taken(self, target: Rank) -> None:
        cluster = self._exchange.cluster
        self._exchange.got(target)
        cluster.clock.at(cluster.clock.now + cluster.flight, self._arrival)

    def _arrival(self) -> None:
        self._room += 1
        self._exchange.acknowledge(self._source)
        self._go_on()


def chunks_of(part: float) -> int:
    """Return the messages of a large part."""
    return math.ceil(part / _CHUNK)


class Flat(Exchange):
    """Direct messages between all ranks, with counts and the rows of small parts.

    The chunks of larger parts follow when the receiver has the counts of all ranks.
    """

    def __init__(self, cluster: Cluster, nbytes: float) -> None:
        super().__init__(cluster, nbytes)
        self._small = self.part <= SMALL_NBYTES
        each = (self.size - 1) * (1 if self._small else 1 + chunks_of(self.part))
        self.expected: list[int] = [each] * self.size
        self.owed: list[int] = [each] * self.size
        self._chunks = [] if self._small else [Chunks(self, rank) for rank in cluster.ranks]
        self._known = [0] * self.size
        self._asking: list[list[Rank]] = [[] for _ in cluster.ranks]

    def _begin(self, rank: Rank) -> None:
        nbytes = self.part if self._small else 0.0
        for other in self.others(rank):
            self.cluster.send(rank, other, nbytes, self._told, rank, other)
        self._know(rank)

    def _told(self, source: Rank, target: Rank) -> None:
        self.got(target)
        self._asking[target.number].append(source)
        self._know(target)

    def _know(self, rank: Rank) -> None:
        """Acknowledge the others once this rank has begun and all counts are there."""
        number, clock = rank.number, self.cluster.clock
        self._known[number] += 1
        if self._known[number] < self.size:
            return
        clock.at(clock.now + self.cluster.flight, self._answered, self._asking[number], rank)

    def _answered(self, sources: Sequence[Rank], target: Rank) -> None:
        for source in sources:
            self.acknowledge(source)
            if not self._small:
                self._chunks[source.number].add(target)


class FlatOfMany(Flat):
    """Direct messages between many ranks, computed at once instead of by events.

    They are as many as the square of the ranks, and all alike: a rank sends its own as soon as it
    begins, and takes the others' in the order in which they arrive. Rows of a small part must take
    far less time on a link than a message takes an event loop.
    """

    def __init__(self, cluster: Cluster, nbytes: float) -> None:
        super().__init__(cluster, nbytes)
        self._began = np.full(self.size, np.inf)

    def _begin(self, rank: Rank) -> None:
        self._began[rank.number] = self.cluster.clock.now
        if np.isfinite(self._began).all():
            self._work_out()

    def _work_out(self) -> None:
        cluster, began, others = self.cluster, self._began, self.size - 1
        half, ranks = cluster.network.message / 2, cluster.ranks
        host = np.array(cluster.layout.host_numbers)
        far = host[:, None] != host
        rates = np.where(far, cluster.network.infiniband, cluster.network.link)
        part = self.part if self._small else 0.0
        numbers = np.arange(self.size)
        turns = (numbers - numbers[:, None]) % self.size
        way = turns * half + part / rates + cluster.flight
        arriving = np.full((self.size, self.size), np.inf)
        free = np.array([rank.loop.free for rank in ranks])
        for source in np.argsort(began, kind="stable"):
            # What has come before a rank begins is taken before it sends.
            early = np.sort(arriving[:, source])
            early = early[early < began[source]]
            left = max(began[source], free[source], last_served(early, half, free[source]))
            arriving[source] = left + way[source]
            arriving[source, source] = np.inf
        ready = [0.0] * self.size
        for rank in ranks:
            came = np.sort(arriving[:, rank.number])[:others]
            start = float(began[rank.number])
            own = int(np.searchsorted(came, start))
            taken = last_served(came[:own], half, rank.loop.free)
            taken = max(start, taken) + others * half
            taken = last_served(came[own:], half, taken)
            rank.loop.free = taken
            rank.loop.busy += 2 * others * half
            rank.sent += others
            ready[rank.number] = max(taken, start)
        cluster.count(far, part)
        for rank, time in zip(ranks, ready, strict=True):
            cluster.clock.at(time, self._all_told, rank)
        if self._small:
            cluster.clock.at(max(ready) + cluster.flight, self._all_answered)

    def _all_told(self, rank: Rank) -> None:
        self._came[rank.number] += self.size - 1
        self._look(rank)
        if not self._small:
            clock = self.cluster.clock
            clock.at(clock.now + self.cluster.flight, self._answered, self.others(rank), rank)

    def _all_answered(self) -> None:
        for rank in self.cluster.ranks:
            self._acknowledged[rank.number] += self.size - 1
            self._look(rank)


def last_served(arriving: np.ndarray, seconds: float, free: float) -> float:
    """Return when a server that is idle from `free` on has served all arrivals.

    Parameters
    ----------
    arriving : array
        Ascending times.
    seconds : float
        Each takes so long.
    """
    if not len(arriving):
        return free
    waits = arriving + seconds * np.arange(len(arriving), 0, -1)
    return float(max(waits.max(), free + seconds * len(arriving)))


def flat(cluster: Cluster, nbytes: float) -> Exchange:
    """Return an exchange from each rank to each other."""
    seconds = nbytes / len(cluster.ranks) / min(cluster.network.link, cluster.network.infiniband)
    brief = seconds * BRIEF <= cluster.network.message / 2
    many = len(cluster.ranks) > MANY and (brief or nbytes / len(cluster.ranks) > SMALL_NBYTES)
    return FlatOfMany(cluster, nbytes) if many else Flat(cluster, nbytes)


class TwoLevel(Exchange):
    """Counts and small parts through gateways of hosts, as `TwoLevelCollective` sends them."""

    def __init__(self, cluster: Cluster, nbytes: float) -> None:
        super().__init__(cluster, nbytes)
        self._layout = layout = cluster.layout
        self._small = self.part <= small_nbytes(layout, "cuda")
        self._carried = self.part if self._small else 0.0
        chunks = 0 if self._small else (self.size - 1) * chunks_of(self.part)
        self._chunks = [] if self._small else [Chunks(self, rank) for rank in cluster.ranks]
        steps = ("within", "between", "spread")
        self._steps: dict[str, list[Signal]] = {name: [] for name in steps}
        for rank in range(self.size):
            peers, served = layout.peers(rank), layout.served(rank)
            servers = [each for each in layout.servers(rank) if each != rank]
            # A step begins when the rank has ended the one before, too.
            awaited = (len(peers), len(served), len(servers))
            for name, came in zip(steps, awaited, strict=True):
                self._steps[name].append(Signal(1 + came))
            self.expected[rank] = sum(awaited) + chunks
            self.owed[rank] = len(peers) + len(served) + len(peers) * bool(served) + chunks

    def _begin(self, rank: Rank) -> None:
        for peer in self._layout.peers(rank.number):
            pairs = len(self._layout.routed_ranks(peer))
            self._send(rank, peer, pairs, "within")
        step = self._steps["within"][rank.number]
        step.then(self._between, rank)
        step.tell()

    def _between(self, rank: Rank) -> None:
        layout = self._layout
        for host in layout.served(rank.number):
            pairs = len(layout.hosts[host]) * len(layout.hosts[rank.host])
            self._send(rank, layout.gateway(host, rank.host), pairs, "between")
        step = self._steps["between"][rank.number]
        step.then(self._spread, rank)
        step.tell()

    def _spread(self, rank: Rank) -> None:
        layout = self._layout
        if layout.served(rank.number):
            pairs = len(layout.far(rank.number))
            for peer in layout.peers(rank.number):
                self._send(rank, peer, pairs, "spread")
        step = self._steps["spread"][rank.number]
        step.then(self._send_large, rank)
        step.tell()

    def _send_large(self, rank: Rank) -> None:
        if not self._small:
            for other in self.others(rank):
                self._chunks[rank.number].add(other)

    def _send(self, rank: Rank, target: int, pairs: int, step: str) -> None:
        """Send the parts of some pairs of ranks, after copying them in host memory."""
        cluster, nbytes = self.cluster, pairs * self._carried
        other = cluster.ranks[target]
        copied = rank.memory.serve(cluster.clock.now, nbytes / cluster.copies)
        if copied > cluster.clock.now:
            cluster.clock.at(copied, self._post, rank, other, nbytes, step)
        else:
            self._post(rank, other, nbytes, step)

    def _post(self, rank: Rank, other: Rank, nbytes: float, step: str) -> None:
        self.cluster.send(rank, other, nbytes, self._taken, rank, other, step)

    def _taken(self, source: Rank, target: Rank, step: str) -> None:
        clock = self.cluster.clock
        clock.at(clock.now + self.cluster.flight, self.acknowledge, source)
        self._steps[step][target.number].tell()
        self.got(target)


class Peer(Exchange):
    """Rows written to other GPUs of a host, with counts in shared memory."""

    def __init__(self, cluster: Cluster, nbytes: float) -> None:
        super().__init__(cluster, nbytes)
        self.expected: list[int] = [self.size - 1] * self.size

    def _begin(self, rank: Rank) -> None:
        for other in self.others(rank):
            self.cluster.put(rank, other, self.part, self.got, other)


class SharedGather(Exchange):
    """Small values through the memory of each host, and a message per pair of hosts."""

    def __init__(self, cluster: Cluster, nbytes: float = 0.0) -> None:
        super().__init__(cluster, nbytes)
        hosts = cluster.layout.hosts
        self._near = [Signal(len(ranks)) for ranks in hosts]
        self._far = [Signal(len(ranks)) for ranks in hosts]
        self._between = [Signal(1 + len(cluster.layout.served(rank))) for rank in range(self.size)]
        self.expected: list[int] = [1] * self.size

    def _begin(self, rank: Rank) -> None:
        self._near[rank.host].then(self._later, self._send, rank)
        self._between[rank.number].then(self._far[rank.host].tell)
        self._far[rank.host].then(self._later, self.got, rank)
        self._near[rank.host].tell()

    def _later(self, call: Callable[[Rank], None], rank: Rank) -> None:
        self.cluster.clock.at(self.cluster.clock.now + SHARED, call, rank)

    def _send(self, rank: Rank) -> None:
        layout, ranks = self.cluster.layout, self.cluster.ranks
        for host in layout.served(rank.number):
            target = layout.gateway(host, rank.host)
            self.cluster.send(rank, ranks[target], 0.0, self._between[target].tell)
        self._between[rank.number].tell()


def gather(cluster: Cluster, way: str) -> Exchange:
    """Return a gather of small values over the transport `way`."""
    return flat(cluster, 0.0) if way == "comm" else SharedGather(cluster)


EXCHANGES: dict[str, Callable[[Cluster, float], Exchange]] = {
    "peer": Peer,
    "comm": flat,
    "two-level": TwoLevel,
}


def least_seconds(cluster: Cluster, nbytes: float) -> float:
    """Return the seconds in which links alone could carry an exchange."""
    layout, part = cluster.layout, nbytes / len(cluster.ranks)
    near = max(len(ranks) - 1 for ranks in layout.hosts)
    far = len(cluster.ranks) - min(map(len, layout.hosts))
    far = far if len(layout.hosts) > 1 else 0
    network = cluster.network
    return max(near * part / network.link, far * part / network.infiniband)
