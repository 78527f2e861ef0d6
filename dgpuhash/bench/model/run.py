"""Forecast times on more GPUs than were measured, and check the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, rate, short
from dgpuhash.bench.model.forecast import CHANGES, Network, Points, VerbCosts, read_points
from dgpuhash.bench.model.simulation.cluster import Cluster
from dgpuhash.bench.model.simulation.exchanges import least_seconds
from dgpuhash.bench.model.simulation.verbs import VERBS, Costs, Outcome, moved_nbytes, simulate
from dgpuhash.bench.options import ChunkSize, Modes, Option
from dgpuhash.bench.report.reading import Row
from dgpuhash.bench.workers.exchange import TRANSPORTS
from dgpuhash.bench.workers.index_verbs import BULK
from dgpuhash.bench.workers.scaling import BULK_NBYTES
from dgpuhash.errors import SpecError

Milliseconds = Annotated[float | None, Option(from_least=True)]
WORKERS = (8, 16, 32, 64, 128, 256, 512, 1024)
_PAIR_NBYTES, _KEY_NBYTES, _ANSWER_NBYTES = 16, 8, 16
_LOOKUPS = ("find", "merge")
# Verbs of which a further worker's time for client and scheduler is a figure.
_OVERHEADS = ("build", "bulk insert")
# The phase of a bulk verb after the partition, and the option that gives its rate.
_BULK_PHASES = dict(zip(BULK, (("insert", "insert"), ("lookup", "find")), strict=True))


def run(
    backend: Backend,
    *,
    measured: Annotated[str | Path | None, Option(metavar="FILE", file=True)] = None,
    workers: Sequence[int] = WORKERS,
    modes: Modes = ("weak",),
    chunk_size: ChunkSize = None,
    partition_rate: float | None = None,
    insert_rate: float | None = None,
    find_rate: float | None = None,
    link: float | None = None,
    infiniband: float = 50.0,
    gpus_per_host: int = 8,
    latency: Milliseconds = None,
    message: Milliseconds = None,
    reduce_rate: float | None = None,
    simulate: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield rows of a model: its figures, then each verb's time by phase.

    The rows are predictions, not measurements. Rows of measured numbers of workers have the
    measured time and the relative error; those from which figures were taken say so
    (``calibrates``), and their error proves nothing. The machine of the rows is that of the
    measured figures.

    Parameters
    ----------
    backend : Backend
        Not used: nothing is measured.
    measured : path, optional
        File from ``bench scaling --json FILE``, for figures that are not given, and to check the
        model. The link is the rate of ``bench exchange`` for the most bytes, if the file has such
        rows, too.
    workers : sequence of int
        Numbers of workers to predict, besides the measured ones.
    modes : sequence of {"weak", "strong"}
        ``weak``: fixed rows per worker; ``strong``: fixed rows in all.
    chunk_size : int, optional
        Rows of a worker (weak), or of all workers (strong); default: as measured.
    partition_rate : float, optional
        Billions of rows a second that a worker partitions.
    insert_rate : float, optional
        Billions of rows a second that a worker inserts, without an exchange.
    find_rate : float, optional
        Billions of rows a second that a worker finds, without an exchange.
    link : float, optional
        GB/s that a worker sends to others of its host.
    infiniband : float
        GB/s that a worker sends to other hosts; 50 are 400 Gbit/s for each GPU, an assumption.
    gpus_per_host : int
        GPUs of a host; default: 8.
    latency : float, optional
        Milliseconds of a single message without rows, and its acknowledgement.
    message : float, optional
        Milliseconds of each of many such messages at once.
    reduce_rate : float, optional
        Billions of rows a second of one worker that are reduced to the states of their groups.
    simulate : bool
        Simulate exchanges, inserts, merges and, with `reduce_rate`, groupbys of `workers` by
        discrete events instead, with each transport. Each rank has `chunk_size` rows.

    Raises
    ------
    SpecError
        When a figure is neither given nor measured.
    FormatError
        When the file holds no figures of `bench scaling`, or some that do not fit together.

    Notes
    -----
    ``bulk insert`` and ``bulk find`` partition the rows of a worker, and then exchange some while
    others are inserted or looked up: the longer of the two counts. ``build`` and ``insert`` are
    those of lazy frames, by Dask tasks, whose phases follow each other; their points are the sums
    of the steps. Verbs without figures are left out.

    One worker's rates are used for any number of workers and rows; this holds for GPUs, but not for
    processes that share a CPU's memory. Messages to all other workers are in flight at once, and
    each keeps the worker's event loop busy. The time of client and scheduler grows linearly with
    the workers, from one worker through the smallest measured cluster of several. Congestion, skew
    and slow workers are not modelled.
    """
    given = {
        "partition": partition_rate, "insert": insert_rate, "find": find_rate, "link": link,
        "infiniband": infiniband, "latency": latency, "message": message,
    }  # fmt: skip
    fit = _Calibration(Points() if measured is None else read_points(measured), given)
    rows = chunk_size or max((row["n"] for row in fit.points), default=0)
    if not rows:
        raise SpecError("how many rows has a worker? give --chunk-size, or --measured FILE")
    if "strong" in modes and rows < max(workers):
        raise SpecError(f"--chunk-size {rows}; give at least {max(workers)} rows")
    network, verbs = fit.network(gpus_per_host), fit.verbs()
    machine = {"machine": fit.machine} if fit.machine else {}
    yield from (row | machine for row in fit.figures(network, verbs))
    if simulate:
        costs = _costs(verbs, reduce_rate)
        yield from (row | machine for row in simulated(network, costs, workers, rows))
        return
    for mode in modes:
        points = {
            (row["verb"], row["workers"]): row for row in fit.points[::-1] if row["mode"] == mode
        }
        counts = sorted({*workers, *(count for _, count in points)})
        for name, verb in verbs.items():
            alone = verb.phases(rows, 1, network).whole / rows
            for count in counts:
                there = rows if mode == "weak" else rows / count
                point = points.get((name, count))
                calibrates = count == 1 or (mode, name, count) in fit.used
                made = _row(mode, name, verb, there, count, network, alone) | machine
                yield made | ({} if point is None else _comparison(made, point, calibrates))


def _costs(verbs: dict[str, VerbCosts], reduce_rate: float | None) -> Costs:
    """Return the costs for a simulated rank."""
    if not verbs.keys() >= set(BULK):
        raise SpecError("a simulation needs the rates of bulk verbs; give --partition-rate, "
                        "--insert-rate and --find-rate, or --measured FILE")  # fmt: skip
    insert, find = (verbs[name] for name in BULK)
    rates = (insert.rates["partition"], insert.rates["insert"], find.rates["lookup"])
    return Costs(*rates, (reduce_rate or 0.0) * 1e9, insert.fixed, insert.each)


class _Calibration:
    """Rates and times that are given, or taken from measured rows.

    Attributes
    ----------
    points : list of dict
        Measured rows of verbs.
    machine : dict
        Of the measured rows.
    used : set
        Mode, verb and workers of rows of several workers that figures are taken from.
    """

    def __init__(self, found: Points, given: dict[str, float | None]) -> None:
        self.points, self._limits, self.machine = found.verbs, found.limits, found.machine
        self._exchanges, self._given = found.exchanges, given
        self._alone = {row["verb"]: row for row in self.points if row["workers"] == 1}
        self.used: set[tuple[str, str, int]] = set()
        self._each, self._further = self._overheads()

    def _several(self, verb: str) -> list[Row]:
        """Return a verb's rows of several workers, those of the fewest first."""
        several = [row for row in self.points if row["verb"] == verb and row["workers"] > 1]
        return sorted(several, key=lambda row: row["workers"])

    def _rows_with_steps(self, verb: str) -> list[Row]:
        """Return those of weak scaling with steps."""
        return [row for row in self._several(verb) if row["mode"] == "weak" and "steps" in row]

    def _use(self, row: Row) -> Row:
        self.used.add((row["mode"], row["verb"], row["workers"]))
        return row

    def _overheads(self) -> tuple[dict[str, float], set[str]]:
        """Return the seconds that each further worker adds for client and scheduler.

        They are of ``build`` and ``bulk insert``, and the names of those that were measured.
        """
        each, measured = dict.fromkeys(_OVERHEADS, 0.0), set[str]()
        if (rows := self._rows_with_steps("build")) and "build" in self._alone:
            row = self._use(rows[0])
            more = row["steps"]["other"] - self._alone["build"]["steps"]["other"]
            each["build"] = max(0.0, more / 1e3 / (row["workers"] - 1))
            measured.add("build")
        bulky = [name for name in BULK if name in self._alone and self._several(name)]
        for name in bulky[:1]:
            row = self._use(self._several(name)[0])
            more = _idle(row) - _idle(self._alone[name])
            each["bulk insert"] = max(0.0, more) / (row["workers"] - 1)
            measured.add("bulk insert")
        return each, measured

    def _message_seconds(self, name: str) -> float:
        """Return the seconds of a message: given, or measured with the most workers."""
        rows = [row for row in self._limits if row["limit"] == name]
        if (given := self._given[name]) is not None:
            return given / 1e3
        if not rows:
            raise SpecError(f"what does a message take? give --{name} in milliseconds, or "
                            "--measured FILE with several workers")  # fmt: skip
        return float(max(rows, key=lambda row: row["workers"])["time"] / 1e3)

    def _link(self) -> float | None:
        """Return the GB/s that is given, or measured: the default transport's, for most bytes."""
        there = {row["exchange"] for row in self._exchanges}
        ways = [way for way in TRANSPORTS["cuda"] if way in there]
        theirs = [row for row in self._exchanges if row["exchange"] == ways[0]] if ways else []
        most = max(theirs, key=lambda row: row["leaving"], default={"rate": None})
        return self._given["link"] or most["rate"]

    def network(self, host: int) -> Network:
        """Return the network between workers, with `host` of them on each host."""
        infiniband = (self._given["infiniband"] or 0.0) * 1e9
        waits = [self._message_seconds(name) for name in ("latency", "message")]
        if (link := self._link()) is not None:
            return Network(link * 1e9, infiniband, host, *waits)
        if not (rows := self._rows_with_steps("build") or self._rows_with_steps("bulk insert")):
            raise SpecError("how fast is the link between GPUs? give --link, or --measured FILE "
                            "with several workers and --mode weak")  # fmt: skip
        row = self._use(rows[0])
        seconds = row["steps"]["exchange"] / 1e3
        nbytes = _PAIR_NBYTES * row["n"] * (1 - 1 / row["workers"])
        # A link so fast that only messages take time. Where these alone exceed the measured time,
        # the whole time is attributed to the link.
        silent = Network(1e30, 1e30, host, *waits)
        waiting, _ = silent.seconds(_PAIR_NBYTES * row["n"], row["workers"])
        bare = seconds - waiting if waiting < seconds else seconds
        return Network(nbytes / bare, infiniband, host, *waits)

    def verbs(self) -> dict[str, VerbCosts]:
        """Return the verbs with figures, those that exchange while they work last."""
        each, made = self._each["build"], dict[str, VerbCosts]()
        for verb in CHANGES:
            row = self._alone.get(verb)
            if self.points and (row is None or "steps" not in row):
                continue
            rates = {step: self._rate(row, step) for step in ("partition", "insert")}
            fixed = 0.0 if row is None else row["steps"]["other"] / 1e3
            made[verb] = VerbCosts(rates, _PAIR_NBYTES, fixed, each)
        for verb in _LOOKUPS:
            row = self._alone.get(verb)
            if self.points and row is None:
                continue
            if self._given["find"] is None and row is None:
                raise SpecError("how fast are lookups? give --find-rate, or --measured FILE with 1 "
                                "worker")  # fmt: skip
            nbytes = _KEY_NBYTES + float(_ANSWER_NBYTES)
            if verb == "merge":
                several = [one for one in self.points if one["verb"] == verb and one["workers"] > 1]
                if not several:
                    continue
                away = several[0]["rows"] * (1 - 1 / several[0]["workers"])
                nbytes = several[0]["exchanged_bytes"] / away
            given = self._given["find"]
            alike = given if given is not None else row["rate"]  # type: ignore[index]
            made[verb] = VerbCosts({"lookup": alike * 1e9}, nbytes, 0.0, each)
        return made | self._bulk_verbs()

    def _rate(self, row: Row | None, step: str) -> float:
        if (given := self._given[step]) is not None:
            return given * 1e9
        if row is None:
            raise SpecError(
                f"how fast is {step}? give --{step}-rate, or --measured FILE with 1 worker"
            )
        return float(row["n"] / (row["steps"][step] / 1e3))

    def _bulk_verbs(self) -> dict[str, VerbCosts]:
        """Return the verbs that exchange some rows while they work on others."""
        made: dict[str, VerbCosts] = {}
        fixed = 0.0
        for name, (phase, limit) in _BULK_PHASES.items():
            row, rate = self._alone.get(name), self._given[limit]
            parted = self._given["partition"]
            if row is not None:
                fixed = _idle(row)
                rate = rate or row["n"] / row["worker_seconds"] / 1e9
                limits = [one for one in self._limits if one["limit"] == "partition"]
                parted = parted or min(one["rate"] for one in limits if one["n"] == row["n"])
            if (self.points and row is None) or not (rate and parted):
                continue
            rates = {"partition": parted * 1e9, phase: rate * 1e9}
            each = self._each["bulk insert"]
            made[name] = VerbCosts(rates, BULK_NBYTES[name], fixed, each, pipelined=True)
        return made

    def figures(self, network: Network, verbs: dict[str, VerbCosts]) -> Iterator[dict[str, Any]]:
        """Yield the rows of the figures that the model is made of."""
        for name in ("link", "infiniband"):
            each = getattr(network, name)
            yield _figure(name, self._source(name), per_second=each, unit="GB/s")
        for name in ("latency", "message"):
            yield _figure(name, self._source(name), seconds=getattr(network, name))
        for name, verb in verbs.items():
            for phase, each in verb.rates.items():
                source = self._source("find" if phase == "lookup" else phase)
                yield _figure(f"{phase} of {name}", source, per_second=each)
        for name in [name for name in verbs if name not in _LOOKUPS]:
            source = "measured" if name in self._alone else "left out"
            yield _figure(f"other of {name}", source, seconds=verbs[name].fixed)
        for name in [name for name in _OVERHEADS if name in verbs]:
            source = "measured" if name in self._further else "left out"
            what = f"other of {name}, for each further worker"
            yield _figure(what, source, seconds=verbs[name].each)

    def _source(self, name: str) -> str:
        return "measured" if self._given.get(name) is None else "given, not measured"


def _idle(row: Row) -> float:
    """Return the seconds in which no worker was working."""
    return float(row["seconds"] - row["worker_seconds"])


def _figure(
    name: str, source: str, *, per_second: float | None = None, seconds: float = 0.0,
    unit: str = "G/s",
) -> dict[str, Any]:  # fmt: skip
    what: dict[str, Any] = {"model": True, "figure": name, "source": source}
    if per_second is None:
        return duration(seconds, None, **what)
    return rate(per_second, None, unit=unit, **what)


def _row(
    mode: str, name: str, verb: VerbCosts, rows: float, count: int, network: Network, alone: float
) -> dict[str, Any]:
    phases = verb.phases(rows, count, network)
    what: dict[str, Any] = {
        "model": True, "mode": mode, "verb": name, "workers": count,
        "hosts": -(-count // network.host), "n": round(rows), "rows": round(rows * count),
    }  # fmt: skip
    row = rate(rows * count / phases.whole, None, **what)
    each = {phase: short(1e3 * took) for phase, took in phases.seconds.items()}
    efficiency = short(alone * rows / phases.whole)
    return row | {
        "seconds": short(phases.whole), "phases": each, "bound": phases.bound,
        "overlap": short(1e3 * phases.overlap), "efficiency": efficiency,
    }  # fmt: skip


def _comparison(row: dict[str, Any], point: dict[str, Any], calibrates: bool) -> dict[str, Any]:
    """Return the fields that compare a predicted row with its measurement.

    There are none if the measurement had another number of rows.
    """
    if point["rows"] != row["rows"]:
        return {}
    steps = point.get("steps") if row["verb"] in CHANGES else None
    seconds = sum(steps.values()) / 1e3 if steps else point["seconds"]
    error = float(f"{row['seconds'] / seconds - 1:.3g}")
    return {"measured_seconds": seconds, "error": error, "calibrates": calibrates}


# Bytes each second that a worker copies in host memory or between it and its GPU: an assumption.
COPIES = 20e9


def simulated(
    network: Network, costs: Costs, workers: Sequence[int], rows: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of workers, verb and transport.

    GPUs of one host exchange rows in each other's memory, ``"peer"``. Those of several use Dask's
    comm, ``"comm"``, or, where it has two levels, ``"two-level"``.

    Parameters
    ----------
    network : Network
    costs : Costs
    workers : sequence of int
    rows : int
        Of a worker.
    """
    for count in sorted(set(workers)):
        for verb in VERBS:
            if verb == "groupby" and not costs.reduce:
                continue
            for way in _ways(count, network.host):
                cluster = Cluster(network, count, COPIES)
                outcome = simulate(cluster, verb, way, costs, rows)
                yield _simulated_row(cluster, verb, way, rows, outcome)


def _ways(count: int, host: int) -> tuple[str, ...]:
    if count <= host:
        return ("peer",)
    return ("comm", "two-level") if host > 1 else ("comm",)


def _simulated_row(
    cluster: Cluster, verb: str, way: str, rows: int, outcome: Outcome
) -> dict[str, Any]:
    count = len(cluster.ranks)
    links = least_seconds(cluster, moved_nbytes(verb, rows))
    ways = {"kernels": outcome.working, "messages": outcome.talking, "links": links}
    ways["copies"] = outcome.copying
    what: dict[str, Any] = {
        "model": True, "verb": verb, "exchange": way, "workers": count,
        "hosts": len(cluster.layout.hosts), "n": rows, "rows": rows * count,
    }  # fmt: skip
    row = rate(rows * count / outcome.seconds, None, **what)
    return row | {
        "seconds": short(outcome.seconds),
        "working": short(1e3 * outcome.working),
        "links": short(1e3 * links),
        "talking": short(1e3 * outcome.talking),
        "copying": short(1e3 * outcome.copying),
        "bound": max(ways, key=lambda name: ways[name]),
        "messages": outcome.messages,
        "far_messages": outcome.far_messages,
        "most_messages": outcome.most_messages,
        "nvlink_bytes": round(outcome.nvlink),
        "nic_bytes": round(outcome.nic),
    }
