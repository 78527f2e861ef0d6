"""WarpCore's figures: COPS by load and tile width, bucket lists by multiplicity."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.bench.distribution import draw
from dgpuhash.bench.figure import require
from dgpuhash.bench.keys import keys_of
from dgpuhash.bench.papers.case import Case
from dgpuhash.tables import HashMap, MultiMap

_SOURCE = "WarpCore's code, H200"
# Insert and find by load, at its best width, which is 2; ours is 4.
_COPS = {0.5: (12.1, 23.5), 0.8: (10.0, 17.4), 0.95: (7.6, 11.9)}
_WIDTHS = (2, 4)
# Insert and retrieval by multiplicity: its best widths, 4 and 8.
_LISTS = {8: (1.5, 7.0), 64: (2.8, 34.6), 512: (4.5, 82.6)}


def cops(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rates of inserts and finds by load and width."""
    n = case.rows(2**28)
    keys = case.keys(1, n)
    values = case.values(keys)
    for load, theirs in _COPS.items():
        for width in _WIDTHS:
            table = HashMap(
                "u4", "u4", n, method="cops", load=load, width=width, device=case.backend.name
            )
            what: dict[str, Any] = {"pairs": "32/32", "load": load, "width": width}
            seconds, fresh = case.time(partial(table.insert, keys, values), before=table.clear)
            require(int(fresh.sum()) == n == len(table), "a key was not new", **what)
            nbytes = table.nbytes // 64 * 64
            floor = case.floors.insert(32, n, nbytes)
            yield case.row("cops", "insert", n, seconds, floor, theirs=theirs[0], source=_SOURCE,
                           **what)  # fmt: skip
            seconds, (got, found) = case.time(partial(table.find, keys), again=True)
            require(found.all() and (got == values).all(), "a find was wrong", **what)
            floor = case.floors.lookup(32, n, nbytes)
            yield case.row("cops", "find", n, seconds, floor, theirs=theirs[1], source=_SOURCE,
                           **what)  # fmt: skip
            del table, fresh, got, found


def bucket_list(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rates of inserts and retrievals by mean multiplicity."""
    n = case.rows(2**27)
    for multiplicity, theirs in _LISTS.items():
        sample = draw(case.backend, n, max(1, n // multiplicity))
        present = sample.present()
        keys, values = (
            keys_of(sample.numbers, np.dtype("u4")),
            case.backend.xp.arange(n, dtype="u4"),
        )
        table = MultiMap("u4", "u4", len(present), method="bucket_list", device=case.backend.name)
        what: dict[str, Any] = {"pairs": "32/32", "multiplicity": multiplicity}
        seconds, _ = case.time(partial(table.insert, keys, values), before=table.clear)
        require(len(table) == n, "a pair was lost", **what)
        moved = 8 * n + table.nbytes
        floor = n / (moved / case.floors.copy(moved))
        yield case.row("bucket list", "insert", n, seconds, floor, theirs=theirs[0],
                       source=_SOURCE, **what)  # fmt: skip
        asked = keys_of(present, np.dtype("u4"))
        seconds, (read, offsets) = case.time(partial(table.find, asked), again=True)
        counts = sample.counts()[present]
        require((offsets[1:] - offsets[:-1] == counts).all(), "a list has another length", **what)
        seen = case.backend.zeros(n, bool)
        seen[read] = True
        owners = sample.numbers[read]
        require(seen.all() and (owners[1:] >= owners[:-1]).all(), "a value was lost", **what)
        bare = len(present) / case.floors.lookup(32, len(present), table.nbytes // 64 * 64)
        floor = n / (bare + 8 * n / case.floors.copy(8 * n))
        yield case.row("bucket list", "retrieve", n, seconds, floor, theirs=theirs[1],
                       source=_SOURCE, **what)  # fmt: skip
