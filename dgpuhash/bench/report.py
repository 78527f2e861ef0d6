"""Figures as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["progress", "summary"]


def progress(row: dict[str, Any]) -> None:
    """One line to standard error, so that a long run shows what it does."""
    Console(stderr=True).print(
        " ".join(f"{name}={value}" for name, value in row.items()), style="dim"
    )


def summary(name: str, machine: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """The whole benchmark to standard output."""
    console = Console()
    console.print(", ".join(f"{what} {value}" for what, value in machine.items()), style="dim")
    console.print(_limits(rows) if name == "limits" else _tables(rows))


def _limits(rows: list[dict[str, Any]]) -> Table:
    footprints = sorted({row["footprint"] for row in rows})
    made = Table("random access", *(f"{nbytes / 2**20:,.0f} MiB" for nbytes in footprints))
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        cells.setdefault(row["limit"], {})[row["footprint"]] = f"{row['rate']:.3g} {row['unit']}"
    for limit, by_footprint in cells.items():
        made.add_row(limit, *(by_footprint.get(nbytes, "") for nbytes in footprints))
    return made


def _tables(rows: list[dict[str, Any]]) -> Table:
    made = Table("pairs", "n", "load", "verb", "G/s", "floor", "ratio")
    for row in rows:
        figures = (f"{row['rate']:.3g}", f"{row['floor']:.3g}", f"{row['ratio']:.2f}")
        made.add_row(row["pairs"], f"{row['n']:,}", str(row["load"]), row["verb"], *figures)
    return made
