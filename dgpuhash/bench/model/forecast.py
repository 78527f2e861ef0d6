"""Model the time of a verb by phase, calibrated and checked with measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from dgpuhash.bench.peers import OURS
from dgpuhash.bench.report.reading import Row, by_bench, read
from dgpuhash.bench.workers.index_verbs import BULK
from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.errors import FormatError


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
        """Return the seconds of an all-to-all exchange, and its bottleneck.

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
class VerbCosts:
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
        >>> VerbCosts({"insert": 1e6}, 16, 0.5, 0.0).phases(1e6, 2, two).seconds
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


CHANGES = ("build", "insert")
_STEPS = ("partition", "exchange", "insert", "other")


@dataclass(frozen=True, slots=True)
class Points:
    """Measured rows of one file.

    Attributes
    ----------
    verbs : list of dict
        Rows of this package's verbs.
    limits : list of dict
        Rows of the machine's limits.
    exchanges : list of dict
        Rows of the benchmark ``exchange``.
    machine : dict
        The machine of all rows; empty if no row names it.
    """

    verbs: list[Row] = field(default_factory=list)
    limits: list[Row] = field(default_factory=list)
    exchanges: list[Row] = field(default_factory=list)
    machine: Row = field(default_factory=dict)


def read_points(path: str | Path) -> Points:
    """Read the rows of ``bench scaling --json`` from a file.

    Rows of ``bench exchange`` are read, too, if the file has any.

    Raises
    ------
    FormatError
        When the file holds no figures of ``bench scaling``, or figures that do not fit together,
        such as those of different machines.
    OSError
        When the file cannot be read.
    """
    found = by_bench(read([path]))
    rows = found.get("scaling", [])
    verbs = [row for row in rows if "verb" in row and row["library"] == OURS]
    if not verbs:
        raise FormatError(f"{path} has no figure of 'dgpuhash bench scaling --json FILE'")
    limits = [row for row in rows if "limit" in row]
    for row in limits:
        wanted = {"latency": "time", "message": "time", "partition": "rate"}.get(row["limit"])
        if wanted is not None and wanted not in row:
            raise _refuse(path, row["limit"], row, f"has no {wanted!r}")
    for row in verbs:
        if problem := _problem(row, limits):
            raise _refuse(path, row["verb"], row, problem)
    exchanges = found.get("exchange", [])
    machines = [row["machine"] for row in (*rows, *exchanges) if row.get("machine")]
    devices = dict.fromkeys(str(each.get("device", each.get("gpu"))) for each in machines)
    if len(devices) > 1:
        raise FormatError(
            f"{path} has figures of several machines: {', '.join(devices)}; give those of one"
        )
    return Points(verbs, limits, exchanges, next(iter(machines), {}))


def _refuse(path: str | Path, name: str, row: Row, problem: str) -> FormatError:
    return FormatError(
        f"{path}: {name} with --workers {row['workers']} {problem}; measure it again with "
        "'dgpuhash bench scaling --json FILE'"
    )


def _problem(row: Row, limits: list[Row]) -> str | None:
    """Return the reason why the model cannot use a row; None if it can."""
    verb, several = row["verb"], row["workers"] > 1
    if "steps" in row:
        steps = row["steps"]
        for step in _STEPS if verb in CHANGES else ("exchange",):
            if step not in steps:
                return f"has no step {step!r}"
            above = several if step == "exchange" else step != "other"
            if above and not steps[step]:
                return f"has a step {step!r} of 0 ms"
    if verb == "merge" and several and "exchanged_bytes" not in row:
        return "has no 'exchanged_bytes'"
    if verb in BULK:
        if "worker_seconds" not in row:
            return "has no 'worker_seconds'"
        if row["worker_seconds"] > row["seconds"]:
            return "was longer at work than it took"
        beside = {(one["limit"], one["n"]) for one in limits}
        if not several and ("partition", row["n"]) not in beside:
            return f"has no limit 'partition' of {row['n']:,} rows beside it"
    return None
