"""How a point of a figure is measured where tables change: mixed batches, many small inserts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from dgpuhash.bench.figure import require
from dgpuhash.bench.papers.drawn.figure import Point
from dgpuhash.bench.papers.mix import Mix

Rows = Iterator[dict[str, Any]]
# Method whose tables take batches; the others are built anew with each.
_TAKES_BATCHES = "slab"


def mixed(point: Point) -> Rows:
    """Yield the rate of a batch that mixes the operations of the line."""
    n, case = point.n, point.case
    table = point.pairs(n)
    stored = case.keys(1, n)
    values = case.values(stored)
    batch = Mix(case, n, point.line.mix)

    def refill() -> None:
        table.clear()
        table.insert(stored, values)

    refill()
    share = table.stats().details.get("utilisation")
    seconds, (got, flags) = case.time(
        partial(table.execute, batch.ops, batch.keys, batch.values), before=refill
    )
    batch.check(table, got, flags, n)
    more = {} if share is None else {"utilisation": round(float(share), 4)}
    yield point.row("mixed", n, seconds, point.floor("find", n, table.nbytes), **more)


def growing(point: Point) -> Rows:
    """Yield the rate at which batches arrive: inserted, or each time with a table built anew."""
    n, case = point.n, point.case
    each = min(n, case.rows(int(point.x)))
    keys = case.keys(1, n)
    values = case.values(keys)
    ends = range(each, n + 1, each)
    if point.line.method == _TAKES_BATCHES:
        grown = point.pairs(n)
        tables = [grown]

        def arrive() -> None:
            for end in ends:
                grown.insert(keys[end - each : end], values[end - each : end])
    else:
        tables = [point.pairs(end) for end in ends]

        def arrive() -> None:
            for end, table in zip(ends, tables, strict=True):
                table.insert(keys[:end], values[:end])

    seconds, _, more = point.time_build(arrive, *tables)
    found = tables[-1].find(keys[: ends[-1]])
    require(found[1].all() and (found[0] == values[: ends[-1]]).all(), "a pair was lost")
    floor = point.floor("build", n, tables[-1].nbytes)
    yield point.row("insert", ends[-1], seconds, floor, **more)


def utilisation(point: Point) -> Rows:
    """Yield the share of a table's bytes that pairs take, as its statistics have it."""
    n, case = point.n, point.case
    table = point.pairs(n)
    keys = case.keys(1, n)
    table.insert(keys, case.values(keys))
    require(len(table) == n, "a key was lost")
    yield point.amount("build", n, float(table.stats().details["utilisation"]), "share")
