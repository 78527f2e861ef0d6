"""All figures of the papers by name."""

from __future__ import annotations

from collections.abc import Iterator

from dgpuhash.bench.papers.drawn import others, thesis

__all__ = ["DRAWN", "left_out"]

DRAWN = {figure.name: figure for figure in (*thesis.FIGURES, *others.FIGURES)}


def left_out(names: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield figures, or lines of figures, that are not drawn, and why."""
    for name, figure in DRAWN.items():
        if names is not None and name not in names:
            continue
        if figure.absent:
            yield name, figure.absent
        for method in figure.missing():
            yield name, f"lines of {method}: there is no such method yet"
