"""List all figures of the papers by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dgpuhash.bench.papers.drawn import others, thesis
from dgpuhash.bench.papers.drawn.figure import has_grown

DRAWN = {figure.name: figure for figure in (*thesis.FIGURES, *others.FIGURES)}


def as_asked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop rows of grown tables, whose load is not the one on the axis.

    Examples
    --------
    >>> row = {"figure": "warpcore-5", "line": "linear", "load": 0.97, "memory": 1.134}
    >>> as_asked([row, row | {"memory": 1.031}])
    []
    >>> len(as_asked([row | {"memory": 1.031}]))
    1
    """
    lines: dict[tuple[Any, Any], Any] = {
        (name, line.name): line for name, each in DRAWN.items() for line in each.lines
    }
    points = [(row["figure"], row.get("line"), row.get("load")) for row in rows]
    grown = {
        point
        for point, row in zip(points, rows, strict=True)
        if point[:2] in lines and has_grown(lines[point[:2]], row)
    }
    return [row for point, row in zip(points, rows, strict=True) if point not in grown]


def left_out(names: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield figures and lines that are not drawn, with the reason."""
    for name, figure in DRAWN.items():
        if names is not None and name not in names:
            continue
        if figure.absent:
            yield name, figure.absent
        for method in figure.missing():
            yield name, f"lines of {method}: there is no such method yet"
