"""Figure of a paper: axis, lines, and the measurement of each point."""

from __future__ import annotations

import functools
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from dgpuhash.bench.papers.case import FigureRun, SortedArray
from dgpuhash.tables import HashMap
from dgpuhash.tables.stores.method import methods

_LOG = logging.getLogger(__name__)

SORTED = "sorted array"
"""What a line names instead of a method, for the baseline."""
# Method whose builds take longer where its functions are unlucky; the median of seeds counts.
_CUCKOO, _SEEDS = "cuckoo", (1, 2, 3, 4, 5)
# Footprints of bare accesses that differ by less than an eighth are one.
_FOOTPRINT_BITS = 3
Setting = int | float | str | Callable[[float], float | None]


@dataclass(frozen=True)
class Line:
    """One line of a figure.

    Attributes
    ----------
    name : str
        As the legend has it.
    method : str
        One of `dgpuhash.methods`, or `SORTED`.
    settings : mapping
        Settings of the method; a function of the place on the axis returns one, or None where the
        line has no point.
    in_order : bool
        Whether searches answer in the order in which they are asked.
    ordered_queries : bool
        Whether the keys that are asked for are sorted.
    mix : tuple
        Parts of a mixed batch, where the figure has such.
    """

    name: str
    method: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    in_order: bool = True
    ordered_queries: bool = False
    mix: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper.

    Attributes
    ----------
    name : str
        What ``--only`` takes.
    paper, number, title : str
        Whose it is, its number there, and what it shows.
    axis, at : str and tuple of float
        What varies, and the places at which it is measured.
    lines : tuple of Line
        The methods that it compares.
    work : callable
        Yields the rows of a `Point`.
    verbs : tuple of str
        What is measured.
    n : int
        Rows, where they do not vary.
    held : str
        What is held fixed besides.
    absent : str
        Why nothing is measured; empty where something is.
    """

    name: str
    paper: str
    number: str
    title: str
    axis: str = ""
    at: tuple[float, ...] = ()
    lines: tuple[Line, ...] = ()
    work: Callable[[Point], Iterator[dict[str, Any]]] | None = None
    verbs: tuple[str, ...] = ("build", "find")
    n: int = 10_000_000
    held: str = ""
    absent: str = ""

    def missing(self) -> list[str]:
        """Return the methods of the figure that do not exist here."""
        known = (SORTED, *methods())
        return list(dict.fromkeys(it.method for it in self.lines if it.method not in known))

    def measure(
        self, case: FigureRun, seconds: float | None = None,
        points: dict[str, list[dict[str, Any]]] | None = None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Yield the rows of all points, those of one together; each is added to `points`.

        What `points` has is not measured again. Lines whose method does not exist are left out, and
        after `seconds` so are points that are not measured yet.
        """
        assert self.work is not None
        points = {} if points is None else points
        end = None if seconds is None else time.monotonic() + seconds
        left_out, late = self.missing(), 0
        for x in self.at:
            for line in self.lines:
                name, point = f"{line.name} at {x:.10g}", Point(case, self, line, x)
                if line.method in left_out or point.options is None:
                    continue
                if name not in points:
                    if end is not None and time.monotonic() > end:
                        late += 1
                        continue
                    points[name] = list(self.work(point))
                if any(has_grown(line, row) for row in points[name]):
                    _LOG.warning("%s: %s: the table has grown, and is left out", self.name, name)
                    continue
                yield from points[name]
        if late:
            _LOG.warning("%s: cut short after %g s, %d points left", self.name, seconds, late)


# Slots beyond those of the load that was asked for, with what stands beside them.
_GROWN = 1.05


def has_grown(line: Line, row: dict[str, Any]) -> bool:
    """Return whether a line's table has more slots than its row's load implies."""
    by_slots = bool(line.settings.keys() & {"load", "max_load", "space"})
    return by_slots and row.get("memory", 0) * row.get("load", 0) > _GROWN


@dataclass(frozen=True)
class Point:
    """One line of a figure at one position of its axis."""

    case: FigureRun
    figure: Figure
    line: Line
    x: float

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.case.rows(int(self.x) if self.figure.axis == "n" else self.figure.n)

    @functools.cached_property
    def options(self) -> dict[str, Any] | None:
        """Arguments of a table; None if the line has no point here."""
        kinds = methods()[self.line.method].settings if self.line.method in methods() else {}
        made: dict[str, int | float | str] = {}
        for name, each in self.line.settings.items():
            chosen = each(self.x) if callable(each) else each
            if chosen is None:
                return None
            whole = name in kinds and isinstance(kinds[name].default, int)
            made[name] = int(chosen) if whole else chosen
        return made

    def opened(self, kind: Any, *dtypes: str, n: int) -> Any:
        """Return an empty table of the line's method for `n` keys."""
        options = {"method": self.line.method, "device": self.case.backend.name}
        return kind(*dtypes, n, **options, **(self.options or {}))

    def pairs(self, n: int) -> Any:
        """Return an empty map, or the baseline, for `n` pairs of 4 + 4 bytes."""
        if self.line.method == SORTED:
            return SortedArray(self.case.backend)
        return self.opened(HashMap, "u4", "u4", n=n)

    def time_build(
        self, build: Callable[..., Any], *tables: Any, before: Callable[[], Any] = lambda: None
    ) -> tuple[float, Any, dict[str, Any]]:
        """Return the median seconds of a build, its result, and fields of its row.

        Where a key finds no place, cuckoo hashing builds another table with other functions: its
        time is the median of five seeds, and the field ``attempts`` has the tables that each took
        beyond the first.

        Parameters
        ----------
        build : callable
            Fills `tables`, which are emptied before; without any it returns a new one, and takes a
            `seed`.
        *tables
            The tables.
        before : callable, optional
            Run before each build, outside the time.
        """

        def clear() -> None:
            for table in tables:
                table.clear()
            before()

        if self.line.method != _CUCKOO:
            return *self.case.time(build, before=clear), {}
        times, attempts = [], []
        for seed in _SEEDS:
            clear()
            for table in tables:
                table.rehash(seed)
            work = build if tables else functools.partial(build, seed=seed)
            seconds, result = self.case.time(work, before=clear)
            times.append(seconds)
            figures = [table.stats().details for table in tables or [result]]
            attempts.append(sum(each["attempts"] for each in figures))
        return statistics.median(times), result, {"attempts": attempts}

    def floor(self, verb: str, n: int, nbytes: int) -> float:
        """Return bare inserts or lookups each second, within about as many bytes."""
        step = 1 << max(6, nbytes.bit_length() - _FOOTPRINT_BITS)
        bare = self.case.floors.insert if verb == "build" else self.case.floors.lookup
        return bare(32, n, -(-nbytes // step) * step)

    def row(
        self, verb: str, n: int, seconds: float, floor: float | None, **more: Any
    ) -> dict[str, Any]:
        """Return the row of a rate, with the paper's rate."""
        whole = n == (int(self.x) if self.figure.axis == "n" else self.figure.n)
        mark = mark_of(self.figure.name, self.line.name, verb, self.x) if whole else {}
        beside = {"theirs": mark["peer"], "source": mark["source"]} if mark else {}
        return self.case.row(
            self.figure.name, verb, n, seconds, floor, **self._labels, **more, **beside
        )

    def amount(self, verb: str, n: int, amount: float, unit: str, **more: Any) -> dict[str, Any]:
        """Return the row of a count, with the paper's."""
        mark = mark_of(self.figure.name, self.line.name, verb, self.x)
        return {
            "figure": self.figure.name, "verb": verb, "n": n, **self._labels, **more,
            "amount": float(f"{amount:.4g}"), "unit": unit, **mark, "correct": True,
        }  # fmt: skip

    @property
    def _labels(self) -> dict[str, Any]:
        labels: dict[str, Any] = {"line": self.line.name}
        return labels if self.figure.axis == "n" else labels | {self.figure.axis: _short(self.x)}


def _short(x: float) -> float:
    return int(x) if x == int(x) else x


@functools.cache
def _told() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(files(__package__).joinpath("marks.json").read_text())
    return told


def mark_of(figure: str, line: str, verb: str, x: float) -> dict[str, Any]:
    """Return fields ``peer`` and ``source`` of a rate stated in the text; empty without one.

    Examples
    --------
    >>> mark_of("thesis-abstract", "cuckoo", "find", 2.0)
    {'peer': 0.67, 'source': 'thesis, GTX 470'}
    >>> mark_of("thesis-abstract", "cuckoo", "find", 1.5)
    {}
    """
    told = _told()
    value = told["marks"].get(figure, {}).get(line, {}).get(verb, {}).get(f"{x:.10g}")
    if value is None:
        return {}
    return {"peer": value, "source": _source(figure)}


def peaks() -> Iterator[tuple[str, str, str, float, str]]:
    """Yield figure, line, verb, and the largest rate stated in the text in G/s, with its source."""
    for figure, lines in _told()["peaks"].items():
        for line, verbs in lines.items():
            for verb, value in verbs.items():
                yield figure, line, verb, value, _source(figure)


def _source(figure: str) -> str:
    told = _told()["sources"]
    source: str = told[max(filter(figure.startswith, told), key=len)]
    return source
