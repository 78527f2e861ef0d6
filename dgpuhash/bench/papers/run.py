"""Benchmark all figures of the papers in turn; an interrupted run resumes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench import machine
from dgpuhash.bench.options import Folder, Option
from dgpuhash.bench.papers import workloads
from dgpuhash.bench.papers.case import FigureRun
from dgpuhash.bench.papers.drawn.table import DRAWN, left_out
from dgpuhash.bench.timing import REPEATS
from dgpuhash.errors import SpecError

_LOG = logging.getLogger(__name__)

FIGURES: dict[str, Callable[[FigureRun], Iterator[dict[str, Any]]]] = {
    "slab": workloads.bulk,
    "slab-mixed": workloads.mixed_batch_rates,
    "slab-alloc": workloads.allocations,
    "cops": workloads.cops,
    "bucket-list": workloads.bucket_list,
    "count": workloads.count,
    "bloom": workloads.bloom,
}
"""Workloads beside what the papers' own code reaches; `DRAWN` has the figures of their texts."""


def run(
    backend: Backend, *, only: Annotated[Sequence[str] | None, Option(metavar="FIGURE")] = None,
    folder: Folder = None, divisor: int = 1, repeats: int | None = None,
    seconds: float | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rows of the papers' figures.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    only : sequence of str, optional
        Figures of `FIGURES` and `DRAWN`, e.g. cops or thesis-3.2, or how they begin, e.g. thesis;
        default: all.
    folder : path, optional
        Folder for a JSON file a figure, where a run that was stopped goes on. A point that is there
        already, of the same device, commit and sizes, is not measured again.
    divisor : int
        Divides the rows of each figure. On a CPU each has 1/128 of them besides.
    repeats : int, optional
        Runs whose median counts.
    seconds : float, optional
        After this time, the points of a drawn figure that are not measured yet are left out.

    Raises
    ------
    SpecError
        When no figure has a name of `only`.
    DgpuhashError
        When an answer on the timed data is wrong.

    Notes
    -----
    Floors: of inserts, bare inserts into as many bytes as the table has; of searches, bare lookups
    there; of lists, a copy of what is moved, and of their retrieval a gathered slot for each key
    besides; of counts, a copy of the keys; of Bloom filters, random compare-and-swaps.
    """
    names = _names(only)
    case = FigureRun(backend, repeats or REPEATS[backend.name], divisor)
    mark = {"machine": machine.describe(backend), "divisor": divisor, "repeats": case.repeats}
    for name, reason in left_out(names):
        _LOG.warning("%s: %s", name, reason)
    for name in names:
        if name in DRAWN and DRAWN[name].absent:
            continue
        path = None if folder is None else Path(folder) / f"{name}.json"
        points = {} if path is None else _earlier_rows(path, mark)
        written = len(points)
        if name in DRAWN:
            found = DRAWN[name].measure(case, seconds, points)
        else:
            found = iter(points[name]) if points else _together(name, case, points)
        for row in found:
            if path is not None and len(points) > written:
                _keep(path, mark, points)
                written = len(points)
            yield row
        if path is not None and len(points) > written:
            _keep(path, mark, points)


def _together(name: str, case: FigureRun, points: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a workload, and add all of them to `points` at its end."""
    rows = []
    for row in FIGURES[name](case):
        rows.append(row)
        yield row
    points[name] = rows


def _names(only: Sequence[str] | None) -> list[str]:
    """Return the requested figures."""
    known = [*FIGURES, *DRAWN]
    chosen: list[str] = []
    for asked in only or known:
        theirs = [asked] if asked in known else [it for it in known if it.startswith(f"{asked}-")]
        if not theirs:
            raise SpecError(f"no figure is called {asked!r}; use {', '.join(known)}")
        chosen += [each for each in theirs if each not in chosen]
    return chosen


def _keep(path: Path, mark: dict[str, Any], points: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({**mark, "points": points}, indent=1) + "\n")
    partial.replace(path)


def _earlier_rows(path: Path, mark: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of points that an earlier run with the same `mark` measured."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    same = all(found.get(name) == told for name, told in mark.items())
    points: dict[str, Any] = found.get("points", {}) if same else {}
    return points
