"""Tables of text: the libraries, a line each, over the numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["tables_of_cpu"]

Row = dict[str, Any]
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables_of_cpu(rows: Sequence[Row]) -> list[Table]:
    """Return title, header and lines of a table for each kind of keys.

    Examples
    --------
    >>> row = {"n": 1000, "keys": "random", "verb": "find", "unit": "us"}
    >>> ours = {**row, "library": "dgpuhash", "time": 20.0, "cpu": 30.0}
    >>> theirs = {**row, "library": "pandas 3", "time": 40.0, "cpu": 30.0, "ratio": 2.0,
    ...           "cpu_ratio": 1.0}
    >>> ((title, header, lines),) = tables_of_cpu([ours, theirs])
    >>> title
    "random keys: microseconds of a call, in brackets the wall and the CPU time in dgpuhash's"
    >>> header, lines
    (('verb', 'library', '1,000'),
     [('find', 'dgpuhash', '20'), ('find', 'pandas 3', '40 (2.0, 1.0)')])
    """
    made: list[Table] = []
    for kind in dict.fromkeys(row["keys"] for row in rows):
        own = [row for row in rows if row["keys"] == kind]
        numbers = sorted({row["n"] for row in own})
        cells = {(row["verb"], row["library"], row["n"]): _cell(row) for row in own}
        lines = [
            (verb, library, *(cells.get((verb, library, n), "") for n in numbers))
            for verb in dict.fromkeys(row["verb"] for row in own)
            for library in dict.fromkeys(row["library"] for row in own if row["verb"] == verb)
        ]
        title = (
            f"{kind} keys: microseconds of a call, in brackets the wall and the CPU time in "
            "dgpuhash's"
        )
        made.append((title, ("verb", "library", *(f"{n:,}" for n in numbers)), lines))
    return made


def _cell(row: Row) -> str:
    time = f"{row['time']:.3g}" if row["time"] < 1000 else f"{row['time']:,.0f}"
    if "ratio" not in row:
        return time
    return f"{time} ({_ratio(row['ratio'])}, {_ratio(row['cpu_ratio'])})"


def _ratio(number: float) -> str:
    return f"{number:.1f}" if number >= 1 else f"{number:.2f}"
