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
BENCHES = ("limits", "tables", "multi", "group", "join", "cpu", "exchange", "scaling", "model")


def read(paths: Sequence[str | Path]) -> list[Row]:
    """The rows of files that ``dgpuhash bench … --json`` wrote, and of receipts of ``make gpu``.

    Raises
    ------
    FormatError
        When a file, or a line of it, is no figure of a benchmark.
    OSError
        When a file cannot be read.
    """
    rows = []
    for path in paths:
        text = Path(path).read_text()
        if text.startswith("{\n"):
            rows += _of_receipt(text, path)
            continue
        for number, line in enumerate(text.splitlines(), 1):
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


def _of_receipt(text: str, path: str | Path) -> list[Row]:
    """The figures of a receipt, with its machine."""
    try:
        receipt = json.loads(text)
        return [{**row, "machine": receipt["machine"]} for row in receipt["figures"]]
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            f"{path} is neither figures of a benchmark nor a receipt of 'make gpu'; give a file "
            "that 'dgpuhash bench tables --json FILE' wrote, or receipts/figures.json"
        ) from error
