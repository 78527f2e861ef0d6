"""Workloads of the papers' own benchmarks, with the rates reached by their code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named
from dgpuhash.bench.figure import require
from dgpuhash.bench.keys import KeyDraw, draw, keys_of, uniform_floats
from dgpuhash.bench.limits import cas_rate
from dgpuhash.bench.papers.case import FigureRun, Mix
from dgpuhash.bench.papers.drawn.table import DRAWN
from dgpuhash.tables import BloomFilter, CountMap, HashMap, MultiMap

_WARPCORE, _SLABHASH = "WarpCore's code, H200", "SlabHash's code, H200"
_U4 = np.dtype("u4")
# Insert and find by load, at its best width, which is 2; ours is 4.
_COPS = {0.5: (12.1, 23.5), 0.8: (10.0, 17.4), 0.95: (7.6, 11.9)}
_WIDTHS = (2, 4)
# Insert and retrieval by multiplicity: its best widths, 4 and 8.
_LISTS = {8: (1.5, 7.0), 64: (2.8, 34.6), 512: (4.5, 82.6)}
_SLAB_ROWS = 2**22
# Slabs that are allocated, and rows of a tile; slabs and words of bitmap of a memory block.
_ALLOCATED, _SEGMENT_ROWS = 2**20, 32
_BLOCK_SLABS, _BLOCK_WORDS, _NO_SLAB = 1024, 32, 2**32 - 1
_CHAIN = 0.6
_BULK = {"build": 11.0, "search": 21.0, "absent": 20.6}
# G/s of the mixed batches of `slabhash-7`.
_MIXED = {"Γ0": 11.7, "Γ1": 13.5, "Γ2": 14.7}
_COUNTED = 2**27
_DISTINCT = 2**24
_EXPONENT = 1.2
# Bytes of a filter, keys of a batch, and their bits: within the L2 cache, and beyond it.
_FILTERS = ((2**25, 2**24, 32), (2**34, 2**28, 64))
_BITS_A_KEY = 12


def cops(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of inserts and finds by load and width."""
    n = case.rows(2**28)
    keys = case.keys(1, n)
    for load, theirs in _COPS.items():
        for width in _WIDTHS:
            table = _table(case, n, "cops", load=load, width=width)
            rates = dict(zip(("insert", "find"), theirs, strict=True))
            what: dict[str, Any] = {"load": load, "width": width, "source": _WARPCORE}
            yield from _pairs(case, "cops", table, rates, keys, **what)


def bulk(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of a bulk build of slabs, of searches that find all keys, and none."""
    n = case.rows(_SLAB_ROWS)
    table = _table(case, n, "slab", chain=_CHAIN)
    what: dict[str, Any] = {"chain": _CHAIN, "source": _SLABHASH}
    yield from _pairs(case, "slab", table, _BULK, case.keys(1, n), **what)


def _pairs(
    case: FigureRun, figure: str, table: HashMap, rates: dict[str, float], keys: Any, *,
    source: str, **settings: Any,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rates of an insert of all keys, and of lookups of them, or of absent ones.

    `rates` has the verbs, the insert first, and what others reached.
    """
    n, values = len(keys), case.values(keys)
    what: dict[str, Any] = {"pairs": "32/32", **settings}
    build, *searches = rates
    seconds, fresh = case.time(partial(table.insert, keys, values), before=table.clear)
    require(int(fresh.sum()) == n == len(table), "a key was not new", **what)
    nbytes = table.nbytes // 64 * 64
    beside: dict[str, Any] = {"theirs": rates[build], "source": source}
    yield case.row(figure, build, n, seconds, case.floors.insert(32, n, nbytes), **beside, **what)
    del fresh
    floor = case.floors.lookup(32, n, nbytes)
    for verb in searches:
        there = verb != "absent"
        probes = keys if there else case.keys(n + 1, n)
        seconds, (got, found) = case.time(partial(table.find, probes), again=True)
        require((found == there).all(), "a search was wrong", verb=verb, **what)
        if there:
            require((got == values).all(), "a value was wrong", verb=verb, **what)
        beside["theirs"] = rates[verb]
        yield case.row(figure, verb, n, seconds, floor, **beside, **what)
        del got, found


def _table(case: FigureRun, n: int, method: str, **settings: Any) -> HashMap:
    return HashMap("u4", "u4", n, method=method, device=case.backend.name, **settings)


def bucket_list(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of inserts and retrievals by mean multiplicity."""
    n = case.rows(2**27)
    for multiplicity, theirs in _LISTS.items():
        sample = draw(case.backend, n, max(1, n // multiplicity))
        present = sample.present()
        keys, values = (keys_of(sample.numbers, _U4), case.backend.xp.arange(n, dtype="u4"))
        table = MultiMap("u4", "u4", len(present), method="bucket_list", device=case.backend.name)
        what: dict[str, Any] = {"pairs": "32/32", "multiplicity": multiplicity}
        seconds, _ = case.time(partial(table.insert, keys, values), before=table.clear)
        require(len(table) == n, "a pair was lost", **what)
        moved = 8 * n + table.nbytes
        floor = n / (moved / case.floors.copy(moved))
        yield case.row("bucket list", "insert", n, seconds, floor, theirs=theirs[0],
                       source=_WARPCORE, **what)  # fmt: skip
        asked = keys_of(present, _U4)
        seconds, (read, offsets) = case.time(partial(table.find, asked), again=True)
        sample.check_lists(present, read, offsets, what)
        bare = len(present) / case.floors.lookup(32, len(present), table.nbytes // 64 * 64)
        floor = n / (bare + 8 * n / case.floors.copy(8 * n))
        yield case.row("bucket list", "retrieve", n, seconds, floor, theirs=theirs[1],
                       source=_WARPCORE, **what)  # fmt: skip


def mixed_batch_rates(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of batches that insert, erase and search at once."""
    n = case.rows(_SLAB_ROWS)
    stored = case.keys(1, n)
    values = case.values(stored)
    table = _table(case, n, "slab", chain=_CHAIN)
    for line in DRAWN["slabhash-7"].lines:
        name, theirs, batch = line.name, _MIXED[line.name], Mix(case, n, line.mix)

        def refill() -> None:
            table.clear()
            table.insert(stored, values)

        seconds, (got, flags) = case.time(
            partial(table.execute, batch.ops, batch.keys, batch.values), before=refill
        )
        batch.check(table, got, flags, n)
        floor = case.floors.lookup(32, n, table.nbytes // 64 * 64)
        row = case.row("slab mixed", name, n, seconds, floor, theirs=theirs, source=_SLABHASH,
                       pairs="32/32", chain=_CHAIN)  # fmt: skip
        yield row


def allocations(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rate of slabs taken from a pool of eight times as many (§VI-B)."""
    n, xp = case.rows(_ALLOCATED), case.backend.xp
    blocks = -(-8 * n // _BLOCK_SLABS)
    bitmaps = case.backend.empty(blocks * _BLOCK_WORDS, np.uint32)
    # Where the slabs themselves stand is no matter: nobody writes to them.
    bases = case.backend.zeros(1, np.uint64)
    addresses = case.backend.empty(n, np.uint32)
    kernel = kernel_named("slab_allocate")
    pool = case.backend.pack(
        kernel.args["pool"], bases=bases, bitmaps=bitmaps, blocks=blocks, super_blocks=blocks
    )
    work = partial(
        case.backend.run, kernel, -(-n // _SEGMENT_ROWS),
        pool=pool, addresses=addresses, rows=n, segment_rows=_SEGMENT_ROWS,
    )  # fmt: skip
    seconds, _ = case.time(work, before=lambda: bitmaps.fill(np.uint32(0)))
    taken = xp.unique(addresses)
    require(len(taken) == n and int(taken[-1]) != _NO_SLAB, "a slab was given out twice", n=n)
    floor = cas_rate(case.backend, 1 << (bitmaps.nbytes - 1).bit_length(), n, case.repeats)
    yield case.row("slab alloc", "allocate", n, seconds, floor, theirs=0.6, source="paper, K40c")


def count(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of counts of skewed keys, of one key, and of distinct ones."""
    n = case.rows(_COUNTED)
    for name, sample in _samples(case, n):
        keys = keys_of(sample.numbers, _U4)
        table = CountMap("u4", device=case.backend.name)
        seconds, _ = case.time(partial(table.insert, keys), before=table.clear)
        expected = sample.counts()
        present = case.backend.xp.flatnonzero(expected)
        counts, found = table.find(keys_of(present, _U4))
        right = found.all() and (counts == expected[present].astype(np.uint64)).all()
        require(right and len(table) == len(present), "a count was wrong", distribution=name)
        moved = keys.nbytes
        floor = n / (moved / case.floors.copy(moved))
        yield case.row("count", "insert", n, seconds, floor, distribution=name)
        del table, counts, found


def _samples(case: FigureRun, n: int) -> Iterator[tuple[str, KeyDraw]]:
    xp, most = case.backend.xp, max(1, n * _DISTINCT // _COUNTED)
    reached = xp.arange(1, most + 1, dtype=np.float64)
    reached **= -_EXPONENT
    reached = xp.cumsum(reached)
    points = uniform_floats(case.backend, n, 0) * reached[-1]
    ranks = xp.minimum(xp.searchsorted(reached, points, side="right"), most - 1) + 1
    yield f"zipf:{_EXPONENT:g} of {most:,}", KeyDraw(case.backend, ranks, most)
    yield "one key", KeyDraw(case.backend, xp.ones(n, np.int64), 1)
    yield "unique", KeyDraw(case.backend, xp.arange(1, n + 1), n, every=True)


def bloom(case: FigureRun) -> Iterator[dict[str, Any]]:
    """Yield the rates of inserts and lookups, beside bare compare-and-swaps."""
    for nbytes, batch, bits in _FILTERS:
        nbytes, n = case.rows(nbytes), case.rows(batch)
        made = BloomFilter(f"u{bits // 8}", nbytes=nbytes, device=case.backend.name)
        floor = cas_rate(case.backend, 1 << (nbytes.bit_length() - 1), n, case.repeats)
        what: dict[str, Any] = {"footprint": nbytes, "bits_per_key": _BITS_A_KEY}
        # All but one batch of the keys that the filter is for.
        for first in range(n, 8 * nbytes // _BITS_A_KEY - n, n):
            made.insert(case.keys(first + 1, n, bits))
        keys, others = case.keys(1, n, bits), case.keys(1 << (bits - 1), n, bits)
        seconds, _ = case.time(partial(made.insert, keys))
        yield case.row("bloom", "insert", n, seconds, floor, **what)
        for verb, asked in (("find", keys), ("absent", others)):
            seconds, passed = case.time(partial(made.contains, asked), again=True)
            require(verb != "find" or passed.all(), "an inserted key did not pass", **what)
            share = float(passed.mean())
            require(verb == "find" or share < 0.1, "the filter passes too much", **what)
            yield case.row("bloom", verb, n, seconds, floor, **what, passed=round(share, 5))
        del made
