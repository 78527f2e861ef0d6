"""Model of a verb's time by phase, for any number of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dgpuhash.distributed.partition.hash_partition import chunk_nbytes


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths and message times between workers.

    Attributes
    ----------
    link, infiniband : float
        Bytes each second that a worker sends to others of its host, and to other hosts.
    host : int
        Workers of a host.
    latency : float
        Seconds of a message and its acknowledgement.
    message : float
        Seconds that a worker is busy for each pair of a message that it sends and one that it
        answers.
    """

    link: float
    infiniband: float
    host: int
    latency: float
    message: float

    def seconds(self, nbytes: float, workers: int) -> tuple[float, str]:
        """Return the seconds of an all-to-all exchange, and what bounds it.

        Each worker splits `nbytes` equally over all workers, itself included. Links inside a host
        and between hosts are used at the same time. A worker has one message to every other worker
        in flight; it sends these one after the other.

        Examples
        --------
        >>> four = Network(link=100e9, infiniband=50e9, host=4, latency=0, message=0)
        >>> four.seconds(4e9, 4), four.seconds(4e9, 8)
        ((0.03, 'exchange in a host'), (0.04, 'exchange between hosts'))
        """
        # Workers fill one host after the other: those of the last have most peers on other hosts.
        near, far = min(workers, self.host) - 1, workers - (workers % self.host or self.host)
        inside = nbytes * near / workers / self.link
        between = nbytes * far / workers / self.infiniband
        rounds = math.ceil(nbytes / workers / chunk_nbytes("cuda")) if workers > 1 else 0
        messages = rounds * ((workers - 1) * self.message + self.latency)
        ways = {"exchange in a host": inside, "exchange between hosts": between}
        ways["messages"] = messages
        way = max(ways, key=lambda name: ways[name])
        return max(inside, between) + messages, way


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of a verb by phase, and the phase that takes longest.

    Attributes
    ----------
    seconds : dict
    bound : str
    overlap : float
        Seconds in which two phases run at once; otherwise phases follow each other.
    """

    seconds: dict[str, float]
    bound: str
    overlap: float = 0.0

    @property
    def whole(self) -> float:
        """Seconds of the whole verb."""
        return sum(self.seconds.values()) - self.overlap


@dataclass(frozen=True, slots=True)
class Verb:
    """Costs of a verb: rates of its phases on a worker, and bytes sent.

    Attributes
    ----------
    rates : dict
        Rows each second of each phase on a worker.
    nbytes : float
        Bytes sent for each row whose key another worker owns.
    fixed : float
        Seconds that do not depend on rows.
    each : float
        Seconds that every further worker adds for the client and the scheduler.
    pipelined : bool
        Whether some rows are exchanged while the last phase works on others; a single worker then
        has no partition phase.
    """

    rates: dict[str, float]
    nbytes: float
    fixed: float
    each: float
    pipelined: bool = False

    def phases(self, rows: float, workers: int, network: Network) -> Phases:
        """Return the seconds of each phase with `rows` rows on each worker.

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
