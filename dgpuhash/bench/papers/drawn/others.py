"""Figures of SlabHash, DACHash and WarpCore."""

from __future__ import annotations

import math
from typing import Any

from dgpuhash.bench.papers.drawn import work
from dgpuhash.bench.papers.drawn.figure import SORTED, Figure, Line, X
from dgpuhash.bench.papers.workloads import MIXES, parts_of
from dgpuhash.tables.stores.mixed import Op

SLABHASH, DACHASH, WARPCORE = "SlabHash 2018", "DACHash 2021", "WarpCore 2020"
_N = 2**22
# Pairs of a slab of SlabHash, and the bytes of a pair and of a slab.
_PER_SLAB, _PAIR, _SLAB = 15, 8, 128
_CHAINS = (0.2, 0.4, 0.6, 0.7, 0.9, 1.1, 2.0)
_LENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_MORE_SIZES = (2.0**19, 2.0**21, 2.0**22, 2.0**23, 2.0**25)
_SIZES = (2.0**16, 2.0**18, 2.0**20, 2.0**22, 2.0**24)
_NONE, _ALL = 0.0, 8.0  # as tau: no table is under it, and every table is
_BOTH = ("build", "find", "absent")


def used(chain: float) -> float:
    """Return the share of slabs' bytes that pairs use, for a mean chain length.

    Keys of a bucket follow a Poisson distribution.

    Examples
    --------
    >>> round(used(0.2), 2), round(used(0.7), 2)
    (0.19, 0.61)
    """
    mean = _PER_SLAB * chain
    slabs, share = 0.0, math.exp(-mean)
    for keys in range(int(mean + 12 * math.sqrt(mean) + 20)):
        slabs += share * max(1, -(-keys // _PER_SLAB))
        share *= mean / (keys + 1)
    return mean * _PAIR / (_SLAB * slabs)


def chain_for(load: float) -> float | None:
    """Return the mean chain length for a share of used bytes; None if no chain is long enough."""
    chains = [step / 20 for step in range(1, 81)]
    return next((each for each in chains if used(each) >= load), None)


def space_for(chain: float) -> float:
    """Return the slots per key of a table with a mean chain length."""
    return 1 / used(chain)


def _figure(paper: str, number: str, title: str, axis: str, at: tuple[float, ...],
            lines: tuple[Line, ...], **more: Any) -> Figure:  # fmt: skip
    name = paper.split()[0].lower() + "-" + number.lower().replace(" ", "-")
    shown = number if number.startswith("Table") else f"Fig. {number}"
    return Figure(
        name, paper, shown, title, axis, at, lines, **{"n": _N, "work": work.pairs, **more}
    )


def _node(name: str, *, in_order: bool = True, mix: Any = (), **settings: Any) -> Line:
    return Line(name, "supernode", settings, in_order, mix=mix)


_SLAB_LINE = Line("slab", "slab", {"chain": X})
_CUCKOO_BY_CHAIN = Line("cuckoo", "cuckoo", {"space": space_for})
_SLABHASH = (
    _figure(SLABHASH, "4", "builds and searches by the mean chain β, cuckoo as full as the slabs",
            "chain", _CHAINS, (_SLAB_LINE, _CUCKOO_BY_CHAIN), verbs=_BOTH),
    _figure(SLABHASH, "4c", "share of the bytes that pairs take, by β", "chain",
            (*_CHAINS, 4.0), (_SLAB_LINE,), work=work.utilisation, verbs=("build",)),
    _figure(SLABHASH, "5", "builds and searches by input size", "n", _SIZES,
            (Line("slab", "slab", {"chain": 0.7}), Line("cuckoo", "cuckoo", {"space": 1 / 0.6})),
            verbs=_BOTH, held="used to 60 %"),
    _figure(SLABHASH, "6", "2 million pairs that come in batches", "rows_a_batch",
            (2.0**15, 2.0**16, 2.0**17),
            (Line("slab", "slab", {"chain": 0.9}), Line("cuckoo", "cuckoo", {"space": 1 / 0.65})),
            work=work.growing, verbs=("insert",), n=2**21,
            held="used to 65 %; cuckoo is built anew with each batch"),
    _figure(SLABHASH, "7", "mixed batches by β", "chain", _CHAINS,
            tuple(Line(name, "slab", {"chain": X}, mix=tuple(parts_of(shares)))
                  for name, (shares, _) in MIXES.items()),
            work=work.mixed, verbs=("mixed",), n=10**6),
    Figure("slabhash-7-at-90", SLABHASH, "Fig. 7, 90 %", "mixed batches of slabs used to 90 %",
           absent="not drawn: it takes 12 slabs a chain; a new table has at most 4, used to 84 %"),
    Figure("slabhash-light", SLABHASH, "§V", "searches with SlabAlloc and with its light form",
           "chain", _CHAINS,
           (_SLAB_LINE, Line("light", "slab", {"chain": X, "allocator": "light"})),
           work=work.pairs, verbs=("find", "absent"), n=_N),
)  # fmt: skip

# Searches, updates of stored keys and deletions.
_MIXES = {
    name: ((Op.FIND, True, 1 - 2 * each), (Op.UPSERT, True, each), (Op.ERASE, True, each))
    for name, each in (("80/20", 0.1), ("60/40", 0.2))
}
_FINDS = ((Op.FIND, True, 1.0),)
_HALF: dict[str, Any] = {"length": 0.5}
_REORDERED: dict[str, Any] = {"combined": 256, "in_order": False}
_LONGER = (*_LENGTHS, 2.0, 4.0)
_FREE = (
    Line("slab", "slab", {"chain": X}),
    _node("supernode", length=X),
    _node("supernode, any order", length=X, in_order=False),
)
_DACHASH = (
    _figure(DACHASH, "4", "searches by bytes of a super node", "node_nbytes",
            (16.0, 32.0, 64.0, 128.0),
            tuple(_node(f"ε = {each:g}", node_nbytes=X, length=each, **_REORDERED)
                  for each in (0.5, 1.0)), verbs=("find",)),
    _figure(DACHASH, "5", "searches by combined buckets", "combined",
            (1.0, 16.0, 64.0, 256.0, 1024.0, 4096.0),
            (_node("reorder", combined=X, in_order=False, **_HALF), _node("none", **_HALF)),
            verbs=("find",), n=7 * 2**18, held="2¹⁹ buckets"),
    _figure(DACHASH, "6a", "mappings: batches of searches by expected length", "length", _LONGER,
            (_node("one-to-one", tau=_ALL, length=X, mix=_FINDS),
             _node("many-to-one", tau=_NONE, length=X, mix=_FINDS)),
            work=work.mixed, verbs=("mixed",)),
    _figure(DACHASH, "6b", "mappings: mixed batches by expected length", "length", _LONGER,
            (_node("one-to-one", tau=_ALL, length=X, mix=_MIXES["80/20"]),
             _node("many-to-one", tau=_NONE, length=X, mix=_MIXES["80/20"])),
            work=work.mixed, verbs=("mixed",)),
    _figure(DACHASH, "7", "reorder on and off by expected length", "length", _LENGTHS,
            (_node("on", length=X, **_REORDERED), _node("off", length=X)), verbs=("find",)),
    Figure("dachash-table-i", DACHASH, "Table I", "L2 bandwidth and hits with and without reorder",
           absent="not measured: it needs hardware counters, which this benchmark does not read"),
    _figure(DACHASH, "8", "builds by expected length", "length", _LENGTHS, _FREE[:2],
            verbs=("build",)),
    _figure(DACHASH, "9a", "searches by input size", "n", _MORE_SIZES,
            (Line("slab", "slab", {"chain": 0.5}), _node("supernode", **_HALF),
             _node("supernode, any order", in_order=False, **_HALF)),
            verbs=("find",), held="ε = 0.5"),
    _figure(DACHASH, "9b", "searches by expected length", "length", _LENGTHS, _FREE,
            verbs=("find",)),
    _figure(DACHASH, "10", "mixed batches by expected length", "length", _LENGTHS,
            tuple(Line(f"{method} {name}", method, {setting: X}, mix=mix)
                  for name, mix in _MIXES.items()
                  for method, setting in (("slab", "chain"), ("supernode", "length"))),
            work=work.mixed, verbs=("mixed",)),
)  # fmt: skip

_LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97)
_RARE = (1.0, 8.0, 64.0, 512.0)
_INVERSE = {"space": lambda x: 1 / x}
_LISTS: tuple[Line, ...] = (
    *(Line(f"cops, {width} lanes", "cops", {"load": 0.8, "width": width}) for width in (8, 16, 32)),
    Line("bucket_list", "bucket_list"),
    Line("bucket_list, one bucket", "bucket_list", {"growth": 1.0, "initial_bucket": X}),
)
_WARPCORE = (
    _figure(WARPCORE, "5", "single-value tables by load", "load", _LOADS,
            (*(Line(f"cops, {width} lanes", "cops", {"load": X, "width": width})
               for width in (2, 4, 8)),
             Line("cuckoo", "cuckoo", _INVERSE), Line("linear", "linear", _INVERSE),
             Line("slab", "slab", {"chain": chain_for}), Line("auto", "auto", {"max_load": X}),
             Line("sorted array", SORTED)), n=2**24),
    Figure("warpcore-6", WARPCORE, "Fig. 6", "weak scaling of inserts over eight GPUs",
           absent="it takes several GPUs: 'dgpuhash bench scaling --mode weak --verb insert'"),
    _figure(WARPCORE, "7", "multi-value tables by mean values of a key", "multiplicity", _RARE,
            _LISTS, work=work.lists, verbs=("build", "retrieve"), n=2**24),
    Figure("warpcore-8", WARPCORE, "Fig. 8", "builds of indexes of genomes",
           absent="it takes genomes: 'dgpuhash bench kmer --question construction-metacache', and "
           "'scaling-metacache' for several GPUs; it is among the plots of benchmarks"),
)  # fmt: skip

FIGURES = (*_SLABHASH, *_DACHASH, *_WARPCORE)
