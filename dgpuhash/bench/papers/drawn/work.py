"""Measure one point of a figure: maps, probes, value lists or mixed batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.bench.figure import require
from dgpuhash.bench.keys import KeyDraw, draw, keys_of
from dgpuhash.bench.papers.case import FigureRun, Mix, SortedArray
from dgpuhash.bench.papers.drawn.figure import SORTED, Point
from dgpuhash.tables import KeyIds, MultiMap

Rows = Iterator[dict[str, Any]]
_U4 = np.dtype("u4")
# Keys that are stored have the numbers from 1 on, others those from here on.
_OTHERS = 2**31
_MILESTONES = (50, 80, 90, 99, 100)


class Batch:
    """Keys, shuffled before each run, with their expected results."""

    def __init__(self, case: FigureRun, keys: Any, there: int, *, ordered: bool = False) -> None:
        self._xp, self._ordered = case.backend.xp, ordered
        self._keys, self._there = keys, there
        self._case, self._drawn = case, 0
        self.shuffle()

    def shuffle(self) -> None:
        """Reorder the keys randomly, or in ascending order."""
        ranks = self._keys
        if not self._ordered:
            # Ranks of other numbers each time are another order, and wider than keys, another hash.
            ranks = self._case.keys(1 + self._drawn * len(ranks), len(ranks), 64)
            self._drawn += 1
        order = self._xp.argsort(ranks)
        self.keys: Any = self._keys[order]
        self.expected: Any = order < self._there
        self.values: Any = self._case.values(self.keys)


def restart_share(n: int, most: int = 512, filled: float = 0.8) -> float:
    """Return the share of builds that restart because a first-level bucket overflows.

    A hash function deals `n` keys to buckets of `most`, filled to a share on average: the keys of a
    bucket follow a Poisson distribution (thesis, §5.2 and §5.5).

    Examples
    --------
    >>> round(restart_share(1_000_000), 4)
    0.0011
    """
    buckets = math.ceil(n / (most * filled))
    mean = n / buckets
    over = math.exp((most + 1) * math.log(mean) - mean - math.lgamma(most + 2))
    tail = over
    for keys in range(most + 2, 2 * most):
        over *= mean / keys
        tail += over
    return -math.expm1(buckets * math.log1p(-tail))


def restarts(point: Point) -> Rows:
    """Yield the share of builds that restart, by the model of `restart_share`."""
    n = int(point.x)
    yield point.amount("build", n, restart_share(n), "share")


def pairs(point: Point) -> Rows:
    """Yield the rates of a build, and of searches that find all keys, or none."""
    n, verbs = point.n, point.figure.verbs
    table, stored = _build(point, n)
    if "build" in verbs:
        seconds, _, more = point.time_build(
            lambda: table.insert(stored.keys, stored.values), table, before=stored.shuffle
        )
        require(len(table) == n, "a key was lost", figure=point.figure.name, line=point.line.name)
        memory = round(table.nbytes / (8 * n), 3)
        floor = point.floor("build", n, table.nbytes)
        yield point.row("build", n, seconds, floor, memory=memory, **more)
    for verb, share in (("find", 0.0), ("absent", 1.0)):
        if verb in verbs:
            yield _search_row(point, table, verb, n, share)


def failing(point: Point) -> Rows:
    """Yield the rate of searches with a share of absent keys, the position on the axis."""
    table, _ = _build(point, point.n)
    yield _search_row(point, table, "find", point.n, point.x)


def probes(point: Point) -> Rows:
    """Yield the mean number of probes of a search, and how many serve most of the searches.

    ``p50`` to ``p100`` are probes within which that share of the searches ends.
    """
    n, xp = point.n, point.case.backend.xp
    table, stored = _build(point, n)
    for verb, asked in (("find", stored.keys), ("absent", point.case.keys(_OTHERS, n))):
        counts = point.case.backend.empty(n, np.uint32)
        total = table._opened().table.probes(asked, counts)
        require(total == int(counts.sum(dtype=np.uint64)), "probes were lost", line=point.line.name)
        counts = xp.sort(counts)
        milestones = {f"p{each}": int(counts[-(-n * each // 100) - 1]) for each in _MILESTONES}
        yield point.amount(verb, n, total / n, "probes", **milestones)


def compact(point: Point) -> Rows:
    """Yield the rates of ids built for repeated keys, and of the ids of each row's key."""
    n, case = point.n, point.case
    sample, keys = _repeat(point)
    if point.line.method == SORTED:
        make: Any = partial(SortedArray.of_distinct, case.backend)
    else:
        make = partial(KeyIds.from_keys, method=point.line.method, **point.options or {})
    seconds, made, more = point.time_build(partial(make, keys))
    require(len(made) == sample.distinct(), "a key was lost", line=point.line.name)
    memory = round(made.nbytes / (8 * n), 3)
    floor = point.floor("build", n, made.nbytes)
    yield point.row("build", n, seconds, floor, memory=memory, **more)
    seconds, (ids, found) = case.time(partial(made.ids_of, keys), again=True)
    require(found.all() and (made.keys_of(ids) == keys).all(), "an id was another key's")
    yield point.row("find", n, seconds, point.floor("find", n, made.nbytes))


def lists(point: Point) -> Rows:
    """Yield the rates of a multimap's build, of each row's number of values, and of all values.

    ``count`` asks for the key of each row, as the thesis does; ``retrieve`` reads the values of the
    keys of 1 to n, most of which are absent where keys have many values, as WarpCore does.
    """
    n, case, verbs = point.n, point.case, point.figure.verbs
    sample, keys = _repeat(point)
    values, counts = case.backend.xp.arange(n, dtype="u4"), sample.counts()
    distinct = sample.distinct()
    if point.line.method == SORTED:
        table: Any = SortedArray(case.backend)
        build = table.group
    else:
        table = point.opened(MultiMap, "u4", "u4", n=distinct)
        build = table.insert
    seconds, _, more = point.time_build(partial(build, keys, values), table)
    require(len(table) == (distinct if point.line.method == SORTED else n), "a pair was lost")
    moved = 8 * n + table.nbytes
    floor = n / (moved / case.floors.copy(moved))
    memory = round(table.nbytes / (8 * n), 3)
    yield point.row("build", n, seconds, floor, memory=memory, **more)
    if "count" in verbs:
        seconds, told = case.time(partial(table.count, keys), again=True)
        require((told == counts[sample.numbers]).all(), "a list has another length")
        yield point.row("count", n, seconds, point.floor("find", n, table.nbytes))
    if "retrieve" in verbs:
        asked = keys_of(case.backend.xp.arange(1, n + 1), _U4)
        seconds, (read, offsets) = case.time(partial(table.find, asked), again=True)
        counts = case.backend.xp.pad(counts, (0, n + 1 - len(counts)))[1:]
        require((offsets[1:] - offsets[:-1] == counts).all(), "a list has another length")
        seen = case.backend.zeros(n, bool)
        seen[read] = True
        require(seen.all() and len(read) == n, "a value was lost")
        bare = n / point.floor("find", n, table.nbytes)
        yield point.row("retrieve", n, seconds, n / (bare + 8 * n / case.floors.copy(8 * n)))


def _repeat(point: Point) -> tuple[KeyDraw, Any]:
    n = point.n
    sample = draw(point.case.backend, n, max(1, round(n / point.x)))
    return sample, keys_of(sample.numbers, _U4)


def _build(point: Point, n: int) -> tuple[Any, Batch]:
    table = point.pairs(n)
    stored = Batch(point.case, point.case.keys(1, n), n)
    table.insert(stored.keys, stored.values)
    require(len(table) == n, "a key was lost", figure=point.figure.name, line=point.line.name)
    return table, stored


def _search_row(point: Point, table: Any, verb: str, n: int, share: float) -> dict[str, Any]:
    """Return the row of searches with a share of absent keys."""
    case, line = point.case, point.line
    there = n - round(n * share)
    asked = case.backend.xp.concatenate([case.keys(1, there), case.keys(_OTHERS, n - there)])
    batch = Batch(case, asked, there, ordered=line.ordered_queries)
    search = partial(table.find) if line.in_order else partial(table.find, in_order=False)
    seconds, answer = case.time(lambda: search(batch.keys), before=batch.shuffle)
    values, found = answer[:2]
    expected, right = batch.expected, batch.values
    if not line.in_order:
        rows = answer[2]
        require(len(case.backend.xp.unique(rows)) == n, "a row was lost", line=line.name)
        expected, right = expected[rows], right[rows]
    require((found == expected).all(), "a search was wrong", line=line.name, verb=verb)
    require(((values == right) | ~expected).all(), "a value was wrong", line=line.name, verb=verb)
    return point.row(verb, n, seconds, point.floor("find", n, table.nbytes))


# Method whose tables take batches; the others are built anew with each.
_TAKES_BATCHES = "slab"


def mixed_rates(point: Point) -> Rows:
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
    """Yield the rate of arriving batches: inserted, or by a rebuild of the table each time."""
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
    """Yield the share of a table's bytes that pairs use, from its statistics."""
    n, case = point.n, point.case
    table = point.pairs(n)
    keys = case.keys(1, n)
    table.insert(keys, case.values(keys))
    require(len(table) == n, "a key was lost")
    yield point.amount("build", n, float(table.stats().details["utilisation"]), "share")
