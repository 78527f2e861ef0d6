"""Tables of text: the libraries side by side, a line for each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["tables_of_frames"]

Row = dict[str, Any]
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables_of_frames(rows: Sequence[Row]) -> list[Table]:
    """Return title, header and lines of the tables that show the rows.

    For each number of rows there is one of CPU times, with what ours take beside the best of the
    other libraries, and one of wall times.

    Examples
    --------
    >>> row = {"n": 1000, "verb": "j1", "how": "inner", "unit": "CPU s", "seconds": 0.25}
    >>> theirs = {**row, "library": "pandas", "amount": 0.5}
    >>> ours = {**row, "library": "dgpuhash", "amount": 0.25, "peer": 0.5}
    >>> cpu, wall = tables_of_frames([theirs, ours])
    >>> cpu[1:]
    (('question', 'verb', 'pandas', 'dgpuhash', 'dgpuhash / best'),
     [('j1', 'inner', '0.5', '0.25', '0.50')])
    >>> wall[1:]
    (('question', 'verb', 'pandas', 'dgpuhash'), [('j1', 'inner', '0.25', '0.25')])
    """
    made = []
    for n in dict.fromkeys(row["n"] for row in rows):
        own = [row for row in rows if row["n"] == n]
        ours = dict.fromkeys(row["library"] for row in own if "peer" in row)
        cpu = _table(
            f"CPU seconds of all processes, {n:,} rows, of joins on the left, and ours beside the "
            "best of the others in the same process, or on a cluster as large",
            own,
            "amount",
        )
        ratios = [
            tuple(_ratio(_row_of(own, line[0], library)) for library in ours) for line in cpu[2]
        ]
        lines = [(*line, *more) for line, more in zip(cpu[2], ratios, strict=True)]
        header = (*cpu[1], *(f"{library} / best" for library in ours))
        made.append((cpu[0], header, lines))
        made.append(_table(f"wall seconds, {n:,} rows, of joins on the left", own, "seconds"))
    return made


def _table(title: str, rows: Sequence[Row], figure: str) -> Table:
    libraries = dict.fromkeys(row["library"] for row in rows)
    questions = dict.fromkeys((row["verb"], row["how"]) for row in rows)
    lines = []
    for verb, how in questions:
        found = (_row_of(rows, verb, library) for library in libraries)
        lines.append((verb, how, *(f"{row[figure]:.3g}" if row else "" for row in found)))
    return title, ("question", "verb", *libraries), lines


def _row_of(rows: Sequence[Row], verb: str, library: str) -> Row | None:
    wanted = (row for row in rows if (row["verb"], row["library"]) == (verb, library))
    return next(wanted, None)


def _ratio(row: Row | None) -> str:
    return f"{row['amount'] / row['peer']:.2f}" if row and "peer" in row else ""
