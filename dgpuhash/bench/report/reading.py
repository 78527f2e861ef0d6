"""Read and validate the figures in benchmarks' output files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgpuhash.bench.figure import read_data
from dgpuhash.errors import FormatError

_TEXT, _OBJECT, _PARTS = "a text", "an object", "an object of numbers from 0 on"
_COUNT, _POSITIVE = "a whole number from 1 on", "a number above 0"
_AMOUNT, _NUMBER = "a number from 0 on", "a number"
_ROWS = read_data(__package__, "rows.toml")
#: Titles, in the order of a report.
BENCHES: dict[str, str] = _ROWS["titles"]
_KIND_OF = {name: kind for kind, names in _ROWS["kinds"].items() for name in names.split()}
# Required fields by benchmark, or by a field that only some of its rows have.
_NEEDED: dict[str, str] = _ROWS["required"]
_LARGEST = 1e300


def problem_of(row: Any) -> str | None:
    """Return the reason why `row` is not a benchmark's figure; None if it is.

    Examples
    --------
    >>> problem_of({"bench": "join", "verb": "inner", "time": 4.0})
    >>> problem_of({"bench": "join", "verb": "inner", "time": None})
    'time is None, and should be a number from 0 on'
    >>> problem_of({"bench": "join", "time": 4.0})
    "it has no 'verb'"
    """
    if not isinstance(row, dict):
        return "it is no JSON object"
    if "bench" not in row:
        return "it has no 'bench'"
    if row["bench"] not in BENCHES:
        return f"no benchmark is called {row['bench']!r}"
    if lacking := [name for name in _needed(row) if name not in row]:
        return f"it has no {lacking[0]!r}"
    for name, value in row.items():
        if name in _KIND_OF and not _fits(value, _KIND_OF[name]):
            return f"{name} is {value!r}, and should be {_KIND_OF[name]}"
    return None


def _needed(row: dict[str, Any]) -> list[str]:
    figure = next((name for name in ("amount", "time") if name in row), "rate")
    figure = "rate" if row.get("unit") == "TB/s" else figure
    bench = row["bench"]
    if bench in ("frames", "aggregates") and "problem" in row:
        return _NEEDED["problem"].split()
    if bench == "frames" and figure == "time":
        bench = "cases"
    parts = [bench]
    if beside := {"scaling": ("limit",), "model": ("figure", "messages")}.get(bench):
        parts = [name for name in beside if name in row]
        if parts != ["messages"] and (not parts or "verb" in row or "steps" in row):
            parts += [bench, *(name for name in ("steps", "error") if name in row)]
    elif bench not in _NEEDED and row.get("verb") == "memory":
        return _NEEDED["memory"].split()
    needed = [name for part in parts for name in _NEEDED.get(part, "verb").split()]
    return [*needed, figure]


def _fits(value: Any, kind: str) -> bool:
    if kind == _TEXT:
        return isinstance(value, str)
    if kind in (_OBJECT, _PARTS):
        if not isinstance(value, dict):
            return False
        return kind == _OBJECT or all(_fits(each, _AMOUNT) for each in value.values())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind == _COUNT:
        return isinstance(value, int) and 0 < value < 2**63
    least = {_POSITIVE: 0.0, _AMOUNT: 0.0, _NUMBER: -_LARGEST}[kind]
    return least <= value < _LARGEST and (kind != _POSITIVE or value > 0)


Row = dict[str, Any]


def read(paths: Sequence[str | Path]) -> list[Row]:
    """Read the rows of benchmark files and of receipts of ``make gpu``.

    Benchmark files are those of ``dgpuhash bench … --json``.

    Raises
    ------
    FormatError
        When a file, or a line of it, is not a figure of a benchmark.
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
            f"{where} is not a figure of a benchmark: {problem}; give files that 'dgpuhash bench "
            "tables --json FILE' and its like wrote"
        )


def _foreign(path: str | Path) -> FormatError:
    return FormatError(
        f"{path} is neither figures of a benchmark nor a receipt of 'make gpu'; give a file "
        "that 'dgpuhash bench tables --json FILE' wrote, or receipts/figures.json"
    )
