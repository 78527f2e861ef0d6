"""Report the library chosen for each call of Dask's verbs, and the reason."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

from dgpuhash.distributed.runs.kept import KeptStats
from dgpuhash.tables.stats import format_bytes

# The most characters of a reason in a line of the table.
REASON_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """Number of calls of one verb that one library ran for one reason.

    Attributes
    ----------
    verb : str
        As Dask calls it, of groupbys with the aggregate: ``"groupby.sum"``.
    by : {"dgpuhash", "Dask"}
    times : int
    reason : str
        The error with which ours refused; empty where it answered.
    """

    verb: str
    by: str
    times: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rounding:
    """Number of partitions in which merges rounded integers of a column to floats.

    They do so where pandas does: in partitions of which a row has no value.

    Attributes
    ----------
    column : str
    partitions : int
        In how many partitions, counted each time that they are computed.

    Examples
    --------
    >>> Rounding("id", partitions=2)
    Rounding(column='id', partitions=2)
    """

    column: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Report:
    """Calls under `enable()` by library, columns rounded and builds cached.

    It is shown as a table.

    Attributes
    ----------
    enabled : bool
        Whether verbs of Dask are answered by ours now.
    answers : tuple of Answer
        Ours first, and of each library the most frequent ones first.
    kept : tuple of KeptStats
        Of each client that verbs were answered with: builds that stay, with their bytes.
    rounded : tuple of Rounding
        The columns of which merges of ours have rounded integers, the most frequent first.

    Examples
    --------
    >>> answers = Answer("merge", "dgpuhash", 3, ""), Answer("merge", "Dask", 1, "no client")
    >>> Report(True, answers, rounded=(Rounding("id", 2),))
    Dask's verbs are answered by dgpuhash where it can: enabled
    verb   answered by  times  why not
    merge  dgpuhash         3
    merge  Dask             1  no client
    integers beyond 2**53 rounded beside rows without a match: 'id' in 2 partitions
    """

    enabled: bool
    answers: tuple[Answer, ...]
    kept: tuple[KeptStats, ...] = ()
    rounded: tuple[Rounding, ...] = ()

    def times(self, verb: str, by: str) -> int:
        """Return how often a library ran a verb, for any reason."""
        return sum(each.times for each in self.answers if (each.verb, each.by) == (verb, by))

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("verb", "answered by", "times", "why not")
        return [
            head,
            *(
                (each.verb, each.by, f"{each.times:,}", _shorten(each.reason))
                for each in self.answers
            ),
        ]

    def _title(self) -> str:
        state = "enabled" if self.enabled else "disabled"
        return f"Dask's verbs are answered by dgpuhash where it can: {state}"

    def _end(self) -> list[str]:
        columns = [f"{each.column!r} in {each.partitions:,} partitions" for each in self.rounded]
        beside = f"integers beyond 2**53 rounded beside rows without a match: {', '.join(columns)}"
        return [beside] * bool(columns) + [
            f"builds that stay: {kept.builds}, {format_bytes(kept.nbytes)} of at most "
            f"{format_bytes(kept.limit)}; asked again {kept.again:,} times, {kept.dropped:,} "
            "without room"
            for kept in self.kept
        ]

    def __repr__(self) -> str:
        rows = self._rows()
        if len(rows) == 1:
            return "\n".join([self._title(), "no verb was called", *self._end()])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{verb:<{widths[0]}}  {by:<{widths[1]}}  {times:>{widths[2]}}  {reason}".rstrip()
            for verb, by, times, reason in rows
        ]
        return "\n".join([self._title(), *lines, *self._end()])

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
        )
        end = "".join(f"<p>{escape(line)}</p>" for line in self._end())
        caption = f"<caption>{escape(self._title())}</caption>"
        return f"<table>{caption}<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{end}"


def _shorten(reason: str) -> str:
    return textwrap.shorten(reason, REASON_WIDTH, placeholder=" …")
