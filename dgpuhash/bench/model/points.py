"""Measured points that calibrate the model and check it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dgpuhash.bench.peers import OURS
from dgpuhash.bench.report.reading import Row, by_bench, read
from dgpuhash.bench.workers.index_verbs import BULK
from dgpuhash.errors import FormatError

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
            raise _refused(path, row["limit"], row, f"has no {wanted!r}")
    for row in verbs:
        if problem := _problem(row, limits):
            raise _refused(path, row["verb"], row, problem)
    exchanges = found.get("exchange", [])
    machines = [row["machine"] for row in (*rows, *exchanges) if row.get("machine")]
    devices = dict.fromkeys(str(each.get("device", each.get("gpu"))) for each in machines)
    if len(devices) > 1:
        raise FormatError(
            f"{path} has figures of several machines: {', '.join(devices)}; give those of one"
        )
    return Points(verbs, limits, exchanges, next(iter(machines), {}))


def _refused(path: str | Path, name: str, row: Row, problem: str) -> FormatError:
    return FormatError(
        f"{path}: {name} with --workers {row['workers']} {problem}; measure it again with "
        "'dgpuhash bench scaling --json FILE'"
    )


def _problem(row: Row, limits: list[Row]) -> str | None:
    """Return why the model cannot use a row; None if it can."""
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
