"""Counts of keys by distribution, and Bloom filters within the L2 cache and beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.bench.distribution import Sample
from dgpuhash.bench.figure import require
from dgpuhash.bench.floors import cas_rate
from dgpuhash.bench.keys import keys_of, uniform_floats
from dgpuhash.bench.papers.case import Case
from dgpuhash.tables import BloomFilter, CountMap

_ROWS = 2**27
_DISTINCT = 2**24
_EXPONENT = 1.2
# Bytes of a filter, keys of a batch, and their bits: within the L2 cache, and beyond it.
_FILTERS = ((2**25, 2**24, 32), (2**34, 2**28, 64))
_BITS_A_KEY = 12


def count(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rates of counts of skewed keys, of one key, and of distinct ones."""
    n = case.rows(_ROWS)
    for name, sample in _samples(case, n):
        keys = keys_of(sample.numbers, np.dtype("u4"))
        table = CountMap("u4", device=case.backend.name)
        seconds, _ = case.time(partial(table.insert, keys), before=table.clear)
        expected = sample.counts()
        present = case.backend.xp.flatnonzero(expected)
        counts, found = table.find(keys_of(present, np.dtype("u4")))
        right = found.all() and (counts == expected[present].astype(np.uint64)).all()
        require(right and len(table) == len(present), "a count was wrong", distribution=name)
        moved = keys.nbytes
        floor = n / (moved / case.floors.copy(moved))
        yield case.row("count", "insert", n, seconds, floor, distribution=name)
        del table, counts, found


def _samples(case: Case, n: int) -> Iterator[tuple[str, Sample]]:
    xp, most = case.backend.xp, max(1, n * _DISTINCT // _ROWS)
    reached = xp.arange(1, most + 1, dtype=np.float64)
    reached **= -_EXPONENT
    reached = xp.cumsum(reached)
    points = uniform_floats(case.backend, n, 0) * reached[-1]
    ranks = xp.minimum(xp.searchsorted(reached, points, side="right"), most - 1) + 1
    yield f"zipf:{_EXPONENT:g} of {most:,}", Sample(case.backend, ranks, most)
    yield "one key", Sample(case.backend, xp.ones(n, np.int64), 1)
    yield "unique", Sample(case.backend, xp.arange(1, n + 1), n, every=True)


def bloom(case: Case) -> Iterator[dict[str, Any]]:
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
