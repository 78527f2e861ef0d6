"""Tables of text: the programs, a line each, for each verb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

_OF = {"classify": "pairs of reads"}
_SCALES = {"classify": (1e3, "k")}
_ON_DEVICE = "letters"


def tables_of_kmers(rows: Sequence[Row]) -> list[Table]:
    """Return title, header and lines of a table for each verb, rule and number of rows.

    Examples
    --------
    >>> row = {"n": 2000, "verb": "count", "input": "gz", "amount": 3.0, "unit": "CPU s",
    ...        "seconds": 2.0, "floor": 1.0, "ratio": 0.5, "peak_nbytes": 2**30}
    >>> ours = {**row, "library": "dgpuhash", "peer": 4.0}
    >>> theirs = {**row, "library": "KMC", "seconds": 4.0, "ratio": 0.25, "differing": 0}
    >>> ((title, header, lines),) = tables_of_kmers([ours, theirs])
    >>> title
    'count of 2,000 letters, 2 threads'
    >>> for cells in zip(header, *lines):
    ...     print(*cells, sep=" | ")
    input | gz | gz
    program | dgpuhash | KMC
    seconds | 2 | 4
    CPU seconds | 3 | 3
    a second | 0.001 M | 0.0005 M
    reading alone | 1 (50%) | 1 (25%)
    seconds of ours |  | 2.00 times
    answers that differ |  | 0
    GiB at most | 1 | 1
    """
    on_workers = [row for row in rows if "workers" in row]
    rows = [row for row in rows if "workers" not in row]
    made: list[Table] = []
    asked = dict.fromkeys(map(_asked, rows))
    for verb, rule, n, on_device, threads in asked:
        header = (
            *("input", "program", "seconds", "CPU seconds", "a second"),
            "bare accesses" if on_device else "reading alone",
            *("seconds of ours", "answers that differ", "GiB at most"),
        )
        own = [row for row in rows if _asked(row) == (verb, rule, n, on_device, threads)]
        ours = {row["input"]: row["seconds"] for row in own if row["library"] == "dgpuhash"}
        by = f" by the rule of {rule}" if rule else ""
        where = "in the memory of the device" if on_device else f"{threads} threads"
        title = f"{verb}{by} of {n:,} {_OF.get(verb, 'letters')}, {where}"
        made.append((title, header, [_program(row, ours) for row in own]))
    return made + _scaling(on_workers)


def _scaling(rows: Sequence[Row]) -> list[Table]:
    """Return a table for each verb and rule: a line for each number of workers."""
    header = (
        *("mode", "workers", "letters or pairs", "seconds", "CPU seconds", "a second"),
        *("reading alone", "efficiency", "GiB of a worker at most"),
    )
    made: list[Table] = []
    for verb, rule in dict.fromkeys((row["verb"], row["rule"]) for row in rows):
        own = [row for row in rows if (row["verb"], row["rule"]) == (verb, rule)]
        own.sort(key=lambda row: row["mode"])
        lines: list[tuple[str, ...]] = [
            (
                row["mode"],
                str(row["workers"]),
                f"{row['n']:,}",
                *_times(row),
                f"{row['efficiency']:.2f}" if "efficiency" in row else "",
                f"{row['peak_nbytes'] / 2**30:.2g}",
            )
            for row in own
        ]
        made.append((f"{verb} by the rule of {rule}, on workers with as much each", header, lines))
    return made


def _program(row: Row, ours: dict[str, float]) -> tuple[str, ...]:
    is_theirs = row["library"] != "dgpuhash" and row["input"] in ours
    beside = f"{row['seconds'] / ours[row['input']]:.2f} times" if is_theirs else ""
    differing = f"{row['differing']:,}" if "differing" in row else ""
    peak = f"{row['peak_nbytes'] / 2**30:.2g}"
    return row["input"], row["library"], *_times(row), beside, differing, peak


def _times(row: Row) -> tuple[str, ...]:
    scale, unit = _SCALES.get(row["verb"], (1e6, "M"))
    figures = f"{row['seconds']:.3g}", f"{row['amount']:.3g}"
    a_second = f"{row['n'] / row['seconds'] / scale:.3g} {unit}"
    return *figures, a_second, f"{row['floor']:.3g} ({row['ratio']:.0%})"


def _asked(row: Row) -> tuple[str, str, int, bool, int]:
    on_device = row["input"] == _ON_DEVICE
    return row["verb"], row.get("rule", ""), row["n"], on_device, row.get("threads", 2)
