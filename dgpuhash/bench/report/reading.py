"""Reader of figures from the files that benchmarks write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgpuhash.bench.report.fields import problem_of
from dgpuhash.errors import FormatError

Row = dict[str, Any]


def read(paths: Sequence[str | Path]) -> list[Row]:
    """Read the rows of benchmark files and of receipts of ``make gpu``.

    Benchmark files are those of ``dgpuhash bench … --json``.

    Raises
    ------
    FormatError
        When a file, or a line of it, is no figure of a benchmark.
    OSError
        When a file cannot be read.
    """
    rows = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise _foreign(path) from error
        if text.startswith("{\n"):
            rows += _of_receipt(text, path)
            continue
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            _check(row, f"line {number} of {path}")
            rows.append(row)
    return rows


def by_bench(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by their benchmark.

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
    """Return the figures of a receipt, each with the receipt's machine."""
    try:
        receipt = json.loads(text)
        rows = [{**row, "machine": receipt["machine"]} for row in receipt["figures"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _foreign(path) from error
    for number, row in enumerate(rows, 1):
        _check(row, f"figure {number} of {path}")
    return rows


def _check(row: Any, where: str) -> None:
    if problem := problem_of(row):
        raise FormatError(
            f"{where} is no figure of a benchmark: {problem}; give files that 'dgpuhash bench "
            "tables --json FILE' and its like wrote"
        )


def _foreign(path: str | Path) -> FormatError:
    return FormatError(
        f"{path} is neither figures of a benchmark nor a receipt of 'make gpu'; give a file "
        "that 'dgpuhash bench tables --json FILE' wrote, or receipts/figures.json"
    )
