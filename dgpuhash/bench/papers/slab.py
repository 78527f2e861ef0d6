"""SlabHash's figures: bulk builds and searches, mixed batches, and its allocator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import kernel_named
from dgpuhash.bench.figure import require
from dgpuhash.bench.floors import cas_rate
from dgpuhash.bench.papers.case import Case
from dgpuhash.bench.papers.mix import Mix, Part
from dgpuhash.tables import HashMap
from dgpuhash.tables.stores.mixed import Op

_ROWS = 2**22
# Slabs that are allocated, and rows of a tile; slabs and words of bitmap of a memory block.
_ALLOCATED, _SEGMENT_ROWS = 2**20, 32
_BLOCK_SLABS, _BLOCK_WORDS, _NO_SLAB = 1024, 32, 2**32 - 1
_CHAIN = 0.6
_SOURCE = "SlabHash's code, H200"
_BULK = {"build": 11.0, "search": 21.0, "absent": 20.6}
# Shares of new inserts, erased keys, searches of stored and of absent keys (§VI-C).
MIXES = {
    "Γ0": ((0.5, 0.5, 0.0, 0.0), 11.7),
    "Γ1": ((0.2, 0.2, 0.3, 0.3), 13.5),
    "Γ2": ((0.1, 0.1, 0.4, 0.4), 14.7),
}


def parts_of(shares: tuple[float, ...]) -> list[Part]:
    """Return the parts of a batch with such shares."""
    kinds = ((Op.INSERT, False), (Op.ERASE, True), (Op.FIND, True), (Op.FIND, False))
    return [(op, there, each) for (op, there), each in zip(kinds, shares, strict=True)]


def bulk(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rates of a bulk build, of searches that find all keys, and none."""
    n = case.rows(_ROWS)
    keys, others = case.keys(1, n), case.keys(n + 1, n)
    values = case.values(keys)
    table = _table(case, n)
    what: dict[str, Any] = {"pairs": "32/32", "chain": _CHAIN}
    seconds, fresh = case.time(partial(table.insert, keys, values), before=table.clear)
    require(int(fresh.sum()) == n == len(table), "a key was not new", **what)
    floor = case.floors.insert(32, n, table.nbytes // 64 * 64)
    yield _row(case, "build", n, seconds, floor, what)
    floor = case.floors.lookup(32, n, table.nbytes // 64 * 64)
    for verb, asked, there in (("search", keys, True), ("absent", others, False)):
        seconds, (got, found) = case.time(partial(table.find, asked), again=True)
        require((found == there).all(), "a search was wrong", verb=verb, **what)
        if there:
            require((got == values).all(), "a value was wrong", verb=verb, **what)
        yield _row(case, verb, n, seconds, floor, what)


def mixed(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rates of batches that insert, erase and search at once."""
    n = case.rows(_ROWS)
    stored = case.keys(1, n)
    values = case.values(stored)
    table = _table(case, n)
    for name, (shares, theirs) in MIXES.items():
        batch = Mix(case, n, parts_of(shares))

        def refill() -> None:
            table.clear()
            table.insert(stored, values)

        seconds, (got, flags) = case.time(
            partial(table.execute, batch.ops, batch.keys, batch.values), before=refill
        )
        batch.check(table, got, flags, n)
        floor = case.floors.lookup(32, n, table.nbytes // 64 * 64)
        row = case.row("slab mixed", name, n, seconds, floor, theirs=theirs, source=_SOURCE,
                       pairs="32/32", chain=_CHAIN)  # fmt: skip
        yield row


def allocations(case: Case) -> Iterator[dict[str, Any]]:
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


def _table(case: Case, n: int) -> HashMap:
    return HashMap("u4", "u4", n, method="slab", chain=_CHAIN, device=case.backend.name)


def _row(
    case: Case, verb: str, n: int, seconds: float, floor: float, what: dict[str, Any]
) -> dict[str, Any]:
    return case.row("slab", verb, n, seconds, floor, theirs=_BULK[verb], source=_SOURCE, **what)
