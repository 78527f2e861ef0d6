"""Simulate ranks on hosts, the messages between them, and the event clock."""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from dgpuhash.bench.model.forecast import Network
from dgpuhash.distributed.collective.two_level.layout import HostLayout


class Clock:
    """Simulated time, with a queue of events.

    Attributes
    ----------
    now : float
        Seconds.

    Examples
    --------
    >>> clock, seen = Clock(), []
    >>> clock.at(2.0, seen.append, "late")
    >>> clock.at(1.0, seen.append, "early")
    >>> clock.run(), seen
    (2.0, ['early', 'late'])
    """

    def __init__(self) -> None:
        self.now: float = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        # Events of one time happen in the order in which they were planned.
        self._numbers = count()

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        """Call ``call(*args)`` at a time."""
        heapq.heappush(self._due, (time, next(self._numbers), call, args))

    def run(self) -> float:
        """Process all events; return the time of the last one."""
        due, pop, collecting = self._due, heapq.heappop, gc.isenabled()
        # Looking for cycles among a million events takes as long as the events.
        gc.disable()
        try:
            while due:
                self.now, _, call, args = pop(due)
                call(*args)
        finally:
            if collecting:
                gc.enable()
        return self.now

    def start(self, program: Program, ended: Callable[[], None]) -> None:
        """Start a coroutine, resumed when a signal that it yields is given or a time comes."""
        try:
            wait = next(program)
        except StopIteration:
            ended()
            return
        if isinstance(wait, Signal):
            wait.then(self.start, program, ended)
        else:
            self.at(max(wait, self.now), self.start, program, ended)


class Signal:
    """Signal that is given once, after `count` calls of `tell`.

    Examples
    --------
    >>> both = Signal(2)
    >>> both.then(print, "both")
    >>> both.tell()
    >>> both.tell()
    both
    """

    __slots__ = ("_left", "_waiting")

    def __init__(self, count: int = 1) -> None:
        self._left = count
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def tell(self) -> None:
        """Count one of the calls."""
        self._left -= 1
        if self._left == 0:
            waiting, self._waiting = self._waiting, []
            for call, args in waiting:
                call(*args)

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """Call ``call(*args)`` when the signal is given, or at once if it was."""
        if self._left <= 0:
            call(*args)
        else:
            self._waiting.append((call, args))


# What a rank does: it yields signals that it waits for, and times until which it is busy.
Program = Generator[Signal | float, None, None]


class Resource:
    """Resource that serves one request after the other: a link, an event loop, a GPU.

    Attributes
    ----------
    free : float
        When it has served all requests so far.
    busy : float
        Seconds in which it was busy.

    Examples
    --------
    >>> link = Resource()
    >>> link.serve(0.0, 2.0), link.serve(1.0, 2.0), link.serve(9.0, 1.0), link.busy
    (2.0, 4.0, 10.0, 5.0)
    """

    __slots__ = ("busy", "free")

    def __init__(self) -> None:
        self.free: float = 0.0
        self.busy: float = 0.0

    def serve(self, time: float, seconds: float) -> float:
        """Return the end of a request that takes `time`; requests come in order of time."""
        start = self.free if self.free > time else time
        self.free = start + seconds
        self.busy += seconds
        return self.free


# Rows whose arrival takes this part of a message's handling at most are there at once for the event
# loop: one event less.
BRIEF = 20


class Rank:
    """One GPU with its worker.

    Attributes
    ----------
    number, host : int
    loop : Server
        The event loop, which sends messages and answers them.
    gpu : Server
        Kernels, one after the other.
    memory : Server
        Copies between the GPU and the host's memory, and within it.
    out, into : dict
        Links by name: ``"nvlink"`` to GPUs of the host, ``"nic"`` to other hosts.
    """

    __slots__ = ("gpu", "host", "into", "loop", "memory", "number", "out", "sent")

    def __init__(self, number: int, host: int) -> None:
        self.number: int = number
        self.host: int = host
        self.loop: Resource = Resource()
        self.gpu: Resource = Resource()
        self.memory: Resource = Resource()
        self.out: dict[str, Resource] = {"nvlink": Resource(), "nic": Resource()}
        self.into: dict[str, Resource] = {"nvlink": Resource(), "nic": Resource()}
        self.sent: int = 0


@dataclass(slots=True)
class Traffic:
    """Messages, and bytes by link.

    Attributes
    ----------
    messages, far_messages : int
        All messages, and those between hosts.
    nbytes : dict
        Bytes of rows that each kind of link carried.
    """

    messages: int
    far_messages: int
    nbytes: dict[str, float]


class Cluster:
    """Ranks that fill hosts one after the other.

    A message keeps the sender's event loop busy for half of the network's `message`, and the
    receiver's for the other half. Between the two it is on its way for `flight`. Its rows leave
    over the sender's link and arrive over the receiver's at the same time; both carry one message
    after the other. The network between hosts has room for what all links carry.

    Parameters
    ----------
    network : Network
    size : int
        The number of ranks.
    copies : float
        Bytes each second that a rank copies in host memory, or between it and its GPU.

    Examples
    --------
    >>> two = Cluster(Network(link=1e9, infiniband=1e9, host=1, latency=0.004, message=0.002), 2)
    >>> two.send(*two.ranks, 1e9, print, "there")
    1.001
    >>> round(two.clock.run(), 6), two.traffic.nbytes["nic"]
    there
    (1.003, 1000000000.0)
    """

    def __init__(self, network: Network, size: int, copies: float = math.inf) -> None:
        self.clock: Clock = Clock()
        self.network: Network = network
        self.copies: float = copies
        self.layout: HostLayout = HostLayout.of([number // network.host for number in range(size)])
        self.ranks: list[Rank] = [
            Rank(number, host) for number, host in enumerate(self.layout.host_numbers)
        ]
        self.traffic: Traffic = Traffic(0, 0, {"nvlink": 0.0, "nic": 0.0})
        self.flight: float = max(0.0, network.latency - network.message) / 2
        self._half = network.message / 2
        self._rates = {"nvlink": network.link, "nic": network.infiniband}

    def send(
        self, source: Rank, target: Rank, nbytes: float, then: Callable[..., None], *args: Any
    ) -> float:
        """Send a message now; call ``then(*args)`` when the receiver's event loop has it.

        Returns when its rows have left.
        """
        far = source.host != target.host
        link = "nic" if far else "nvlink"
        traffic = self.traffic
        traffic.messages += 1
        traffic.far_messages += far
        source.sent += 1
        left = source.loop.serve(self.clock.now, self._half)
        seconds = 0.0
        if nbytes:
            traffic.nbytes[link] += nbytes
            seconds = nbytes / self._rates[link]
            left = source.out[link].serve(left, seconds)
        arriving = left - seconds + self.flight
        self.clock.at(arriving, self._arrive, target, link, seconds, then, args)
        return left

    def put(
        self, source: Rank, target: Rank, nbytes: float, then: Callable[..., None], *args: Any
    ) -> None:
        """Write rows into the memory of another GPU of the host, without a message."""
        self.traffic.nbytes["nvlink"] += nbytes
        seconds = nbytes / self._rates["nvlink"]
        left = source.out["nvlink"].serve(self.clock.now, seconds)
        self.clock.at(left - seconds, self._write, target, seconds, then, args)

    def count(self, far: np.ndarray, nbytes: float) -> None:
        """Count a message of some bytes from each rank to each other.

        `far` says which pairs of ranks are on two hosts.
        """
        size, between = len(self.ranks), int(far.sum())
        self.traffic.messages += size * (size - 1)
        self.traffic.far_messages += between
        self.traffic.nbytes["nic"] += between * nbytes
        self.traffic.nbytes["nvlink"] += (size * (size - 1) - between) * nbytes

    def _write(
        self, target: Rank, seconds: float, then: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self.clock.at(target.into["nvlink"].serve(self.clock.now, seconds), then, *args)

    def _arrive(
        self,
        target: Rank,
        link: str,
        seconds: float,
        then: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        came = target.into[link].serve(self.clock.now, seconds) if seconds else self.clock.now
        if seconds > self._half / BRIEF:
            self.clock.at(came, self._take, target, then, args)
        else:
            self.clock.at(target.loop.serve(came, self._half), then, *args)

    def _take(self, target: Rank, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.clock.at(target.loop.serve(self.clock.now, self._half), then, *args)
