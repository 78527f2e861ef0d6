"""List the papers' figures by name, as `figures.toml` describes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dgpuhash.bench.figure import read_data
from dgpuhash.bench.papers.drawn import work
from dgpuhash.bench.papers.drawn.figure import Figure, Line, Setting, has_grown
from dgpuhash.tables.stores.mixed import Op

# Pairs of a slab of SlabHash, and the bytes of a pair and of a slab.
_PER_SLAB, _PAIR, _SLAB = 15, 8, 128


def slab_use(chain: float) -> float:
    """Return the share of their bytes that pairs take in slabs of a mean chain.

    Keys of a bucket follow a Poisson distribution.

    Examples
    --------
    >>> round(slab_use(0.2), 2), round(slab_use(0.7), 2)
    (0.19, 0.61)
    """
    mean = _PER_SLAB * chain
    slabs, share = 0.0, math.exp(-mean)
    for keys in range(int(mean + 12 * math.sqrt(mean) + 20)):
        slabs += share * max(1, -(-keys // _PER_SLAB))
        share *= mean / (keys + 1)
    return mean * _PAIR / (_SLAB * slabs)


def chain_for(load: float) -> float | None:
    """Return the mean chain for a used share of slabs, or None if no chain is long enough."""
    chains = [step / 20 for step in range(1, 81)]
    return next((each for each in chains if slab_use(each) >= load), None)


# Settings that follow from the place on the axis.
_VARYING: dict[str, Callable[[float], float | None]] = {
    "x": lambda x: x,
    "1 / x": lambda x: 1 / x,
    "2 (x - 1)": lambda x: 2 * (x - 1),
    "chain_for(x)": chain_for,
    "space_for(x)": lambda x: 1 / slab_use(x),
}


def _setting(value: Any) -> Setting:
    """Return a setting of a line, a function where it varies."""
    if isinstance(value, str) and value.startswith("x from "):
        least = float(value.removeprefix("x from "))
        return lambda x: x if x >= least else None
    return _VARYING.get(value, value)


def _line(label: str, row: dict[str, Any], mixes: dict[str, Any]) -> Line:
    """Return the line of a row of `figures.toml`."""
    flags = {name: row.pop(name) for name in ("in_order", "ordered_queries") if name in row}
    mix = tuple((Op[op], stored, share) for op, stored, share in mixes[row.pop("mix", "")])
    name, method = row.pop("name", label), row.pop("method")
    settings = {setting: _setting(value) for setting, value in row.items()}
    return Line(name, method, settings, mix=mix, **flags)


def _figures() -> Iterator[Figure]:
    """Yield the figures of `figures.toml`."""
    table = read_data(__package__, "figures.toml")
    mixes: dict[str, Any] = {"": (), **table["mixes"]}
    lines = {label: _line(label, row, mixes) for label, row in table["lines"].items()}
    for row in table["figures"]:
        if "lines" in row:
            row["lines"] = tuple(lines[label] for label in row["lines"])
            row["work"] = getattr(work, row.get("work", "pairs"))
        yield Figure(**row)


DRAWN = {figure.name: figure for figure in _figures()}


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
