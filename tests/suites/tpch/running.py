"""Runs of queries: what each gave, how long it took, and the table of all."""

from __future__ import annotations

import faulthandler
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from suites.tpch.answers import difference, expected_of, first_rows
from suites.tpch.data import Tables
from suites.tpch.libraries import CUDF, on_host
from suites.tpch.queries import QUERIES, Verbs

__all__ = ["GivenUp", "Outcome", "at_most", "outcomes", "table_of"]


@dataclass(frozen=True)
class Outcome:
    """What came of a query.

    Attributes
    ----------
    query, rows : int
    seconds : float
        The median of the runs that count, reading the files included.
    reason : str or None
        Why its answer is not DuckDB's; None where it is.
    pdsh : float or None
        Seconds of cudf-polars' runner, where it was asked and has the query.
    """

    query: int
    rows: int
    seconds: float
    reason: str | None
    pdsh: float | None = None

    @property
    def ratio(self) -> float | None:
        """Our seconds, those of cudf-polars' runner being 1."""
        return self.seconds / self.pdsh if self.pdsh and self.reason is None else None

    def record(self, **what: Any) -> dict[str, Any]:
        """Return all of it as what JSON can hold."""
        return {**what, **asdict(self), "ratio": self.ratio, "right": self.reason is None}


def outcomes(
    queries: Sequence[int],
    tables_of: Callable[[int], Tables],
    verbs: Verbs,
    database: duckdb.DuckDBPyConnection,
    *,
    repeats: int,
    timeout: float,
    limit: float,
    guarded: Callable[[], AbstractContextManager[None]],
    peer: Mapping[int, float],
    traces: bool = False,
) -> Iterator[Outcome]:
    """Run queries, and compare the last answer of each with DuckDB's; yield what came of it.

    With repeats, one more run comes first, which does not count. A run that takes more than `limit`
    seconds is given up, with its query; the first one of several, which also compiles, has twice
    that.
    """
    for number in queries:
        expected = expected_of(number, database)
        # What hangs says where its threads are, and ends the program.
        faulthandler.dump_traceback_later(timeout, exit=True)
        spent: list[float] = []
        rows = 0
        try:
            for run in range(repeats + 1):
                start = time.perf_counter()
                # Whatever the query does must not take another engine where those raise.
                with guarded(), at_most(limit if run or not repeats else 2 * limit):
                    tables = tables_of(number)
                    answer = QUERIES[number](tables, verbs)
                    if tables.library is CUDF:
                        # It sorts faster than the host, where pandas may not do so here.
                        answer = first_rows(number, answer)
                    answer = on_host(answer)
                answer = first_rows(number, answer)
                spent.append(time.perf_counter() - start)
            reason, rows = difference(answer, expected), len(answer)
        except Exception as error:
            reason = _told(error)
            if traces:
                traceback.print_exc()
        faulthandler.cancel_dump_traceback_later()
        counted = spent[1:] if repeats else spent
        seconds = statistics.median(counted) if counted else 0.0
        told = "right" if reason is None else reason
        print(f"query {number}: {rows} rows, {seconds:.3f} s, {told}", file=sys.stderr, flush=True)
        yield Outcome(number, rows, seconds, reason, peer.get(number))


class GivenUp(Exception):
    """A run that took too long."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise GivenUp in the block when it takes longer; code that waits in C ends first."""

    def give_up(*_: Any) -> None:
        raise GivenUp(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _told(error: Exception) -> str:
    """Return what was raised, and the place of it."""
    *_, last = traceback.extract_tb(error.__traceback__)
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({last.filename}:{last.lineno})"


def table_of(found: Sequence[Outcome], *, compared: bool) -> str:
    """Return all outcomes as lines of text, with sums of the queries that both answered."""
    named = f"{'query':>5}{'rows':>7}{'seconds':>9}" + f"{'pdsh':>9}{'ratio':>7}" * compared
    lines = [f"{named}  right"]
    for each in found:
        line = f"{each.query:>5}{each.rows:>7}{each.seconds:>9.3f}"
        if compared:
            line += _number(each.pdsh, 9, 3) + _number(each.ratio, 7, 2)
        lines.append(f"{line}  {each.reason or 'yes'}")
    right = [each for each in found if each.reason is None]
    lines.append(f"{'sum':>5}{len(right):>7}{sum(each.seconds for each in right):>9.3f}")
    both = [each for each in right if each.pdsh]
    if both:
        ours, theirs = sum(each.seconds for each in both), sum(each.pdsh or 0 for each in both)
        lines[-1] += f"{theirs:>9.3f}{ours / theirs:>7.2f}"
        if len(both) < len(right):
            lines[-1] += f"  of {len(both)} queries that both answered, ours {ours:.3f}"
    return "\n".join(lines)


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"
