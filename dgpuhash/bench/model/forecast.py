"""The model behind `bench model`: what a verb takes on any number of workers, phase by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dgpuhash.distributed.partition.hash_partition import parcel_nbytes

__all__ = ["Network", "Phases", "Verb"]


@dataclass(frozen=True, slots=True)
class Network:
    """How workers reach each other.

    Attributes
    ----------
    link, infiniband : float
        Bytes each second that leave a worker to others of its host, and to other hosts.
    host : int
        Workers of a host.
    latency : float
        Seconds of a message and its acknowledgement.
    message : float
        Seconds that each message keeps its sender, and its receiver's answer to another, busy.
    """

    link: float
    infiniband: float
    host: int
    latency: float
    message: float

    def seconds(self, nbytes: float, workers: int) -> tuple[float, str]:
        """Until each worker's `nbytes` are with all others, an equal part with each; and by which
        way the last ones came.

        Both ways are used at the same time. Each worker has one message to every other on its way;
        it puts them there one after the other.

        Examples
        --------
        >>> four = Network(link=100e9, infiniband=50e9, host=4, latency=0, message=0)
        >>> four.seconds(4e9, 4), four.seconds(4e9, 8)
        ((0.03, 'exchange in a host'), (0.04, 'exchange between hosts'))
        """
        # Workers fill one host after the other: those of the last have most others elsewhere.
        near, far = min(workers, self.host) - 1, workers - (workers % self.host or self.host)
        inside = nbytes * near / workers / self.link
        between = nbytes * far / workers / self.infiniband
        rounds = math.ceil(nbytes / workers / parcel_nbytes("cuda")) if workers > 1 else 0
        messages = rounds * ((workers - 1) * self.message + self.latency)
        ways = {"exchange in a host": inside, "exchange between hosts": between}
        ways["messages"] = messages
        way = max(ways, key=lambda name: ways[name])
        return max(inside, between) + messages, way


@dataclass(frozen=True, slots=True)
class Phases:
    """What a verb takes, in seconds, and the phase that takes longest.

    Attributes
    ----------
    seconds : dict
    bound : str
    overlap : float
        Seconds in which two of them go on at once; else they come one after the other.
    """

    seconds: dict[str, float]
    bound: str
    overlap: float = 0.0

    @property
    def whole(self) -> float:
        """Until all is done."""
        return sum(self.seconds.values()) - self.overlap


@dataclass(frozen=True, slots=True)
class Verb:
    """What one worker does by itself, and what it sends.

    Attributes
    ----------
    rates : dict
        Rows each second of each phase on a worker.
    nbytes : float
        Bytes of a row that travel, unless its key is its own worker's.
    fixed : float
        Seconds that do not depend on rows.
    each : float
        Seconds that every further worker adds for the client and the scheduler.
    pipelined : bool
        Whether one part of the rows is exchanged while the last phase works on another; a worker
        alone has nothing to part then.
    """

    rates: dict[str, float]
    nbytes: float
    fixed: float
    each: float
    pipelined: bool = False

    def phases(self, rows: float, workers: int, network: Network) -> Phases:
        """With `rows` on each worker.

        Examples
        --------
        >>> two = Network(link=1e9, infiniband=1e9, host=2, latency=0, message=0)
        >>> Verb({"insert": 1e6}, 16, 0.5, 0.0).phases(1e6, 2, two).seconds
        {'insert': 1.0, 'exchange': 0.008, 'other': 0.5}
        """
        seconds = {phase: rows / rate for phase, rate in self.rates.items()}
        *_, last = seconds.values() or (0.0,)
        if self.pipelined and workers == 1:
            seconds.pop("partition")
        seconds["exchange"], way = network.seconds(rows * self.nbytes, workers)
        seconds["other"] = self.fixed + self.each * (workers - 1)
        longest = max(seconds, key=lambda phase: seconds[phase])
        overlap = min(last, seconds["exchange"]) if self.pipelined else 0.0
        return Phases(seconds, way if longest == "exchange" else longest, overlap)
