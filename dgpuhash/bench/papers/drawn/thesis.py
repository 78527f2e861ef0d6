"""Figures and tables of Alcantara's thesis of 2011."""

from __future__ import annotations

from dgpuhash.bench.papers.drawn import work
from dgpuhash.bench.papers.drawn.figure import SORTED, Figure, Line, X, at_least

PAPER = "Alcantara 2011"
_SIZES = (2.0**16, 2.0**18, 2.0**20, 2.0**22, 1e7, 2.0**24)
_SPACES = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
_COMPARED = (1.05, 1.25, 2.0)
_FAILED = (0.0, 0.1, 0.25, 0.5, 0.8, 1.0)
_COPIES = (1.0, 4.0, 16.0, 128.0, 1024.0, 4096.0)
# Fewest slots a key with which 2, 3, 4 and 5 functions place all keys.
_LEAST = {2: 2.1, 3: 1.15, 4: 1.05, 5: 1.03}
_SEARCHED = (Line("sorted array", SORTED), Line("sorted array, sorted queries", SORTED,
                                                ordered_queries=True))  # fmt: skip
_SORTED = (Line("sorted array", SORTED),)


def _of(method: str, *spaces: float) -> tuple[Line, ...]:
    """Return a line of a method for each size of its tables, in multiples of N · 8 bytes."""
    return tuple(Line(f"{method} {space:g} N", method, _sized(method, space)) for space in spaces)


def _sized(method: str, space: float) -> dict[str, float]:
    # A bucket is an index of 4 bytes beside pairs of 8.
    return {"buckets": 2 * (space - 1)} if method == "chained" else {"space": space}


def _axis(method: str) -> Line:
    if method == "chained":
        return Line(method, method, {"buckets": lambda x: 2 * (x - 1)})
    return Line(method, method, {"space": X})


_PROBED = ("linear", "quadratic", "double")
_BUCKETS = (0.1, 0.25, 0.5, 0.84, 2.0)
_CHAINED = tuple(Line(f"B = {each:g} N", "chained", {"buckets": each}) for each in _BUCKETS)
_AT_142 = (
    Line("two_level_cuckoo", "two_level_cuckoo", {"bucket_keys": 512}),
    *(Line(each, each, {"space": 1.42}) for each in ("quadratic", "cuckoo")),
    Line("chained", "chained", {"buckets": 0.84}),
)
_CUCKOOS = _of("cuckoo", 1.05, 1.25, 1.42, 2.0)
_FUNCTIONS = tuple(
    Line(f"{each} functions", "cuckoo", {"functions": each, "space": at_least(least)})
    for each, least in _LEAST.items()
)
_REPEATED = (Line("two_level_cuckoo", "two_level_cuckoo"), *_SORTED)
_REPEATED_TOO = (Line("cuckoo", "cuckoo"), Line("auto", "auto"), *_REPEATED)
_LISTS = {"work": work.lists, "verbs": ("build", "count")}


def _figure(number: str, title: str, axis: str, at: tuple[float, ...], lines: tuple[Line, ...],
            **more: object) -> Figure:  # fmt: skip
    name = number.replace("Table ", "table-").replace("Fig. ", "")
    made: dict[str, object] = {"work": work.pairs, **more}
    return Figure(f"thesis-{name}", PAPER, number, title, axis, at, lines, **made)  # type: ignore[arg-type]


def _not_drawn(number: str, title: str, why: str) -> Figure:
    return Figure(f"thesis-{number}", PAPER, f"Fig. {number}", title, absent=why)


_OLDER = "not drawn: the thesis' older card, a GTX 280, with the work of "
FIGURES = (
    _not_drawn("1.2", "two animated models, intersected in each frame", "not drawn: the thesis' "
               "models are not public; 'examples/intersect.py' tells ms a frame of others"),
    _figure("abstract", "the thesis' own summary of its tables", "space", (1.05, 2.0),
            tuple(map(_axis, ("quadratic", "chained", "cuckoo"))),
            verbs=("build", "find", "absent")),
    _figure("Fig. 3.2", "probing by input size", "n", _SIZES,
            tuple(Line(each, each, {"space": 1.25}) for each in _PROBED), held="1.25 N slots"),
    _figure("Fig. 3.3", "probing by space", "space", _SPACES, tuple(map(_axis, _PROBED))),
    _figure("Fig. 3.4", "probing by failed searches", "failed", _FAILED,
            tuple(each for method in _PROBED for each in _of(method, *_COMPARED)),
            work=work.failing, verbs=("find",)),
    _figure("Fig. 3.5", "builds: a sorted array and quadratic probing", "n", _SIZES,
            (*_of("quadratic", *_COMPARED), *_SORTED), verbs=("build",)),
    _figure("Fig. 3.6", "searches: binary search and quadratic probing", "n", _SIZES,
            (*_of("quadratic", *_COMPARED), *_SEARCHED), verbs=("find",)),
    _figure("Fig. 3.7", "failed searches: binary search and quadratic probing", "failed", _FAILED,
            (*_of("quadratic", *_COMPARED), *_SEARCHED), work=work.failing, verbs=("find",)),
    _figure("Table 3.2", "probes of a search", "space", _COMPARED, tuple(map(_axis, _PROBED)),
            work=work.probes, verbs=("find", "absent")),
    _figure("Fig. 4.4", "chaining: builds by input size", "n", _SIZES, (*_CHAINED, *_SORTED),
            verbs=("build",)),
    _figure("Fig. 4.5", "chaining: searches by input size", "n", _SIZES, _CHAINED,
            verbs=("find",)),
    _figure("Fig. 4.6", "chaining: failed searches", "failed", _FAILED, _CHAINED,
            work=work.failing, verbs=("find",)),
    _figure("Fig. 4.7", "chaining: number of buckets, in multiples of N", "buckets",
            (0.1, 0.25, 0.5, 0.84, 1.25, 2.0), (Line("chained", "chained", {"buckets": X}),),
            verbs=("build", "find", "absent")),
    _figure("Fig. 4.8", "builds: chaining, probing, sorting", "n", _SIZES,
            (*_of("chained", *_COMPARED), *_of("quadratic", *_COMPARED), *_SORTED),
            verbs=("build",)),
    _figure("Fig. 4.9", "searches: chaining, probing, binary search", "n", _SIZES,
            (*_of("chained", *_COMPARED), *_of("quadratic", *_COMPARED), *_SEARCHED),
            verbs=("find",)),
    _figure("Fig. 4.10", "failed searches: chaining, probing, binary search", "failed", _FAILED,
            (*_of("chained", *_COMPARED), *_of("quadratic", *_COMPARED), *_SEARCHED),
            work=work.failing, verbs=("find",)),
    _figure("Table 4.1", "probes of a search, without the two reads of a bucket's ends", "space",
            _COMPARED, (_axis("chained"), _axis("quadratic")), work=work.probes,
            verbs=("find", "absent")),
    _not_drawn("5.7", "two-level cuckoo hashing by input size", f"{_OLDER}thesis-5.8"),
    _figure("Fig. 5.8", "two-level cuckoo hashing by input size", "n", _SIZES,
            (*_AT_142, *_SEARCHED), held="1.42 N · 8 bytes"),
    _figure("Fig. 5.9", "two-level cuckoo hashing: failed searches", "failed", _FAILED,
            (*_AT_142, *_SEARCHED), work=work.failing, verbs=("find",), held="1.42 N · 8 bytes"),
    _figure("Fig. 5.10", "compacting tables by rows of a key", "multiplicity", _COPIES, _REPEATED,
            work=work.compact),
    _figure("Fig. 5.11", "multi-value tables by rows of a key", "multiplicity", _COPIES, _REPEATED,
            **_LISTS),
    _figure("restarts", "two-level cuckoo hashing: builds that draw the first function anew, as a "
            "model has it", "n", (1e6, 5e6), (Line("two_level_cuckoo", "two_level_cuckoo"),),
            work=work.restarts, verbs=("build",)),
    _figure("Fig. 6.3", "cuckoo hashing: builds by input size", "n", _SIZES, _CUCKOOS,
            verbs=("build",), held="4 functions"),
    _figure("Fig. 6.4", "cuckoo hashing: searches by input size", "n", _SIZES, _CUCKOOS,
            verbs=("find",), held="4 functions"),
    _figure("Fig. 6.5", "cuckoo hashing: failed searches", "failed", _FAILED, _CUCKOOS,
            work=work.failing, verbs=("find",), held="4 functions"),
    _figure("Fig. 6.6", "cuckoo hashing: functions and space", "space",
            (1.05, 1.15, 1.25, 1.5, 2.1, 3.0, 4.0, 6.0), _FUNCTIONS, n=1_000_000),
    *(_not_drawn(number, f"all tables with {space} N", f"{_OLDER}thesis-table-6.1")
      for number, space in (("6.7", 1.05), ("6.9", 1.42), ("6.11", 2))),
    *(_not_drawn(number, f"all tables with {space} N", f"the lines of {space} N in "
                 "thesis-table-6.1; where searches fail, thesis-3.7, thesis-4.6 and thesis-6.5")
      for number, space in (("6.8", 1.05), ("6.10", 1.42), ("6.12", 2))),
    _figure("Table 6.1", "where each table is ahead", "n", _SIZES,
            tuple(each for method in ("quadratic", "chained", "cuckoo")
                  for each in _of(method, 1.05, 1.42, 2.0)), verbs=("build", "find", "absent")),
    _figure("Fig. 6.13", "compacting tables of both kinds by rows of a key", "multiplicity",
            _COPIES, _REPEATED_TOO, work=work.compact),
    _figure("Fig. 6.14", "multi-value tables of both kinds by rows of a key", "multiplicity",
            _COPIES, _REPEATED_TOO, **_LISTS),
)  # fmt: skip
