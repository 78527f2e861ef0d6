"""Output on the terminal: progress while a benchmark runs, then tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from dgpuhash.bench.report.grid import figure_text
from dgpuhash.bench.report.grids import grids

Row = dict[str, Any]
_FILE_WIDTH = 300
_NAMES = (
    "mode", "exchange", "workers", "leaving", "limit", "figure", "verb", "keys", "rule", "input",
    "scale", "fraction",
    "library", "pairs", "n",
    "build", "groups", "distribution", "multiplicity", "load", "width", "hit_rate",
    "batch", "footprint", "line", "space", "failed", "chain", "length",
)  # fmt: skip


def show_progress(bench: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, printing each as one line on standard error."""
    console = Console(stderr=True)
    start = time.monotonic()
    with console.status(f"measuring {bench} …") as status:
        for count, row in enumerate(rows, 1):
            console.print(_line(row), style="dim", highlight=False)
            status.update(f"measuring {bench}: {count} rows in {time.monotonic() - start:.0f} s …")
            yield row


def summary(bench: str, machine: dict[str, str], rows: Sequence[Row]) -> None:
    """Print all tables of a benchmark on standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    console.print(", ".join(f"{what} {value}" for what, value in machine.items()), style="dim")
    for grid in grids(bench, rows):
        made = Table(title=grid.title, title_justify="left")
        for name in grid.header:
            made.add_column(name, justify="right")
        for line in grid.lines:
            made.add_row(*line)
        console.print(made)


def _line(row: Row) -> str:
    what = " ".join(f"{name}={row[name]}" for name in _NAMES if name in row)
    if row.get("model"):
        what = f"model: {what}"
    if row.get("verb") == "memory":
        return f"{what} at_rest={row['at_rest']} while_built={row['while_built']}"
    unit = row.get("unit", "TB/s")
    return f"{what}: {figure_text(row)} {'' if unit == 'TB/s' else unit}"
