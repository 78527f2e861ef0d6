"""Format rows of figures as pivoted text tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Shown = Callable[[Row], str]

WORDS = {
    "pairs": "bits", "n": "rows", "build": "built rows", "load": "load", "groups": "groups",
    "distribution": "keys", "library": "library", "batch": "batch", "limit": "access",
    "leaving": "bytes", "method": "method",
}  # fmt: skip
BRACKETS = "in brackets the share of the bare accesses in the same run"


@dataclass(frozen=True, slots=True)
class Grid:
    """Titled table of text cells."""

    title: str
    header: tuple[str, ...]
    lines: list[tuple[str, ...]]


def figure_text(row: Row) -> str:
    """Format the figure of a row with its ratio to the floor."""
    if "problem" in row:
        return str(row["problem"])
    if "launch" in row:
        parts = (number_text(row[name]) for name in ("time", "launch", "overhead") if name in row)
        return " / ".join(parts)
    if row.get("unit") == "TB/s":
        return f"{row['rate']:.3g} TB/s"
    text = number_text(row[next(name for name in ("rate", "time", "amount") if name in row)])
    return f"{text} ({row['ratio']:.0%})" if "ratio" in row else text


def pivot(
    title: str,
    rows: Sequence[Row],
    index: Sequence[str],
    column: str,
    order: Sequence[str],
    shown: Callable[[Row], str] | None = None,
) -> list[Grid]:
    """Pivot rows: a line for each `index`, a column for each `column` value."""
    if not rows:
        return []
    index = [name for name in index if any(name in row for row in rows)]
    seen = list(dict.fromkeys(row[column] for row in rows))
    columns = [each for each in order if each in seen] + [
        each for each in seen if each not in order
    ]
    lines: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in rows:
        key = tuple(cell_text(name, row.get(name, "")) for name in index)
        lines.setdefault(key, {})[row[column]] = (shown or figure_text)(row)
    # Lines that differ only in the library are adjacent.
    whose = index.index("library") if "library" in index else len(index)
    asked = list(dict.fromkeys(key[:whose] + key[whose + 1 :] for key in lines))
    ordered = sorted(lines, key=lambda key: asked.index(key[:whose] + key[whose + 1 :]))
    header = tuple(WORDS.get(name, name.replace("_", " ")) for name in index)
    return [
        Grid(
            title,
            header + tuple(cell_text(column, each) for each in columns),
            [key + tuple(lines[key].get(each, "") for each in columns) for key in ordered],
        )
    ]


def listing(title: str, rows: Sequence[Row], *columns: str | tuple[str, Shown]) -> Grid:
    """Return a table with a line for each row.

    Columns are fields, or names with the function that formats their cells.

    Examples
    --------
    >>> listing("", [{"n": 2000, "rate": 0.5}], "n", ("share", lambda row: f"{row['rate']:.0%}"))
    Grid(title='', header=('rows', 'share'), lines=[('2,000', '50%')])
    """
    named = [each if isinstance(each, tuple) else _column(each) for each in columns]
    lines = [tuple(shown(row) for _, shown in named) for row in rows]
    return Grid(title, tuple(name for name, _ in named), lines)


def _column(field: str) -> tuple[str, Shown]:
    name = WORDS.get(field, field.replace("_", " "))
    return name, lambda row: cell_text(field, row.get(field, ""))


def number_text(figure: float) -> str:
    """Format a number to three significant digits."""
    return f"{figure:.3g}" if figure < 1000 else f"{figure:,.0f}"


def cell_text(name: str, value: Any) -> str:
    """Format the value of a field."""
    if name in ("footprint", "leaving"):
        return bytes_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def bytes_text(nbytes: int) -> str:
    """Format bytes in B, KiB, MiB or GiB to three significant digits."""
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"
