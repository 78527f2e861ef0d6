"""Figures from the files that benchmarks wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgpuhash.errors import FormatError

__all__ = ["BENCHES", "Row", "by_bench", "read"]

Row = dict[str, Any]
# In the order of a report.
BENCHES = ("limits", "tables", "multi", "group", "join", "cpu")


def read(paths: Sequence[str | Path]) -> list[Row]:
    """The rows of files that ``dgpuhash bench … --json`` wrote, one after the other.

    Raises
    ------
    FormatError
        When a line is no figure of a benchmark.
    OSError
        When a file cannot be read.
    """
    rows = []
    for path in paths:
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                row = json.loads(line)
                if row["bench"] not in BENCHES:
                    raise ValueError(f"no benchmark is called {row['bench']!r}")
            except (ValueError, TypeError, KeyError) as error:
                raise FormatError(
                    f"line {number} of {path} is no figure of a benchmark; give files that "
                    "'dgpuhash bench tables --json FILE' and its like wrote"
                ) from error
            rows.append(row)
    return rows


def by_bench(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each benchmark.

    Examples
    --------
    >>> by_bench([{"bench": "join", "n": 1}, {"bench": "cpu", "n": 2}])["cpu"]
    [{'bench': 'cpu', 'n': 2}]
    """
    made: dict[str, list[Row]] = {}
    for row in rows:
        made.setdefault(row["bench"], []).append(row)
    return made
