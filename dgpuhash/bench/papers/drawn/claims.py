"""What the papers claim of their figures, and whether ours say the same: a sentence each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpuhash.bench.papers.drawn.figure import peaks
from dgpuhash.bench.papers.drawn.table import DRAWN

Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A ratio of two lines of a figure that a paper states, or only which of them is ahead.

    Attributes
    ----------
    figure : str
        Name of the figure whose rows tell.
    text : str
        What the paper says: a clause.
    over, under : mapping
        Fields of the rows that are divided, and of those that they are divided by.
    paper : float
        The paper's ratio; infinity or zero where it only says which is ahead.
    how : str
        ``mean``: geometric mean of the ratios of rows at the same place; ``peak``: the ratio of the
        largest; ``each``: the least favourable ratio.
    where : callable
        Which places count.
    """

    figure: str
    text: str
    over: Row
    under: Row
    paper: float = math.inf
    how: str = "mean"
    where: Callable[[float], bool] = field(default=lambda _: True)

    def ratio(self, rows: Sequence[Row]) -> float | None:
        """Return our ratio; None where rows are missing."""
        above, below = (self._rates(rows, wanted) for wanted in (self.over, self.under))
        if self.how == "peak":
            return max(above.values()) / max(below.values()) if above and below else None
        # Lines that are told apart by their place alone have one row each.
        if len(above) == len(below) == 1:
            return next(iter(above.values())) / next(iter(below.values()))
        ratios = [above[place] / below[place] for place in above.keys() & below.keys()]
        if not ratios:
            return None
        if self.how == "each":
            return min(ratios) if self.paper > 1 else max(ratios)
        return math.exp(sum(map(math.log, ratios)) / len(ratios))

    def sentence(self, rows: Sequence[Row]) -> str | None:
        """Return whether it holds here, in words; None where rows are missing."""
        ours = self.ratio(rows)
        if ours is None:
            return None
        told = f", ratio {self.paper:.3g}" if 0 < self.paper < math.inf else ""
        says = f"{DRAWN[self.figure].paper}, {DRAWN[self.figure].number}: {self.text}{told}."
        holds = "It holds here" if (ours > 1) == (self.paper > 1) else "It does not hold here"
        return f"{says} {holds}: {ours:.3g}."

    def _rates(self, rows: Sequence[Row], wanted: Row) -> dict[float, float]:
        axis = DRAWN[self.figure].axis
        return {
            row[axis]: row["rate"] if "rate" in row else row["amount"]
            for row in rows
            if row["figure"] == self.figure
            and axis in row
            and self.where(row[axis])
            and all(row.get(name) == each for name, each in wanted.items())
        }


def sentences(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the figure and the sentence of each claim that the rows can answer.

    Examples
    --------
    >>> rows = [
    ...     {"figure": "dachash-8", "line": line, "verb": "build", "length": 0.5, "rate": rate}
    ...     for line, rate in (("supernode", 3.0), ("slab", 2.0))
    ... ]
    >>> [figure for figure, _ in sentences(rows)]
    ['dachash-8', 'dachash-8', 'dachash-8', 'dachash-8']
    """
    for claim in CLAIMS:
        sentence = claim.sentence(rows)
        if sentence is not None:
            yield claim.figure, sentence
    yield from _reached(rows)
    yield from _counted(rows)


def _reached(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each largest rate that a paper states."""
    for name, line, verb, paper, source in peaks():
        wanted = {"figure": name, "line": line, "verb": verb}
        ours = [row["rate"] for row in rows if wanted.items() <= row.items()]
        if ours:
            says = f"{DRAWN[name].paper}, {DRAWN[name].number}: {line}, {verb}, reaches {paper:.3g}"
            yield name, f"{says} G/s ({source}). Here it reaches {max(ours):.3g}."


def _counted(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each table of numbers that do not depend on the machine."""
    for name, figure in DRAWN.items():
        apart = [
            abs(row["amount"] / row["peer"] - 1)
            for row in rows
            if row["figure"] == name and "amount" in row and "peer" in row
        ]
        if apart:
            mean = sum(apart) / len(apart)
            says = f"{figure.paper}, {figure.number}: {len(apart)} numbers do not depend on the"
            how_far = f"{mean:.1%} in the mean and {max(apart):.1%} at most"
            yield name, f"{says} machine; ours differ by {how_far}."


def _line(name: str, verb: str, **more: Any) -> Row:
    return {"line": name, "verb": verb, **more}


def _thesis(text: str, over: tuple[str, float], under: tuple[str, float], verb: str,
            paper: float) -> Claim:  # fmt: skip
    return Claim("thesis-abstract", text, _line(over[0], verb, space=over[1]),
                 _line(under[0], verb, space=under[1]), paper)  # fmt: skip


def _versus(figure: str, text: str, over: str, under: str, verb: str, paper: float = math.inf,
            how: str = "mean",
            where: Callable[[float], bool] = lambda _: True) -> Claim:  # fmt: skip
    return Claim(figure, text, _line(over, verb), _line(under, verb), paper, how, where)


def _at(place: float) -> Callable[[float], bool]:
    return lambda x: x == place


def _above(least: float) -> Callable[[float], bool]:
    return lambda x: x >= least


def _below(most: float) -> Callable[[float], bool]:
    return lambda x: x <= most


_Q, _CH, _CU = "quadratic", "chained", "cuckoo"
CLAIMS = (
    _versus("thesis-3.2", "quadratic probing builds faster than linear", _Q, "linear", "build"),
    _versus("thesis-3.2", "quadratic probing finds faster than double hashing, which jumps further",
            _Q, "double", "find"),
    _versus("thesis-3.3", "with 2 N slots and more linear probing finds faster than quadratic",
            "linear", _Q, "find", where=_above(2.0)),
    _versus("thesis-3.4", "with a cache quadratic probing at 1.05 N is faster than double hashing "
            "where all searches fail",
            "quadratic 1.05 N", "double 1.05 N", "find", where=_above(1.0)),
    _versus("thesis-3.5", "sorting builds faster than quadratic probing from 10 million pairs on",
            "sorted array", "quadratic 1.25 N", "build", where=_above(1e7)),
    _versus("thesis-3.6", "quadratic probing with 2 N finds faster than a binary search of sorted "
            "queries", "quadratic 2 N", "sorted array, sorted queries", "find", where=_above(1e6)),
    _versus("thesis-3.6", "sorted queries are searched faster than shuffled ones",
            "sorted array, sorted queries", "sorted array", "find", 140 / 17,
            where=_at(1e7)),
    _versus("thesis-3.7", "where all searches fail, quadratic probing with 1.05 N is slower than a "
            "binary search of shuffled queries", "quadratic 1.05 N", "sorted array", "find", 0.0,
            where=_above(1.0)),
    _thesis("quadratic probing finds faster with 2 N than with 1.05 N", (_Q, 2.0), (_Q, 1.05),
            "find", 723 / 208),
    _thesis("where keys are absent quadratic probing is faster with 2 N than with 1.05 N", (_Q,
            2.0), (_Q, 1.05), "absent", 539 / 46),
    _thesis("cuckoo hashing finds faster than quadratic probing with 1.05 N", (_CU, 1.05),
            (_Q, 1.05), "find", 386 / 208),
    _thesis("with 1.05 N cuckoo hashing builds about half as fast as with 2 N", (_CU, 1.05),
            (_CU, 2.0), "build", 133 / 366),
    _thesis("with 2 N quadratic probing finds faster than cuckoo hashing", (_Q, 2.0), (_CU, 2.0),
            "find", 723 / 670),
    _thesis("with 1.05 N chaining builds faster than quadratic probing", (_CH, 1.05), (_Q, 1.05),
            "build", 449 / 162),
    _thesis("with 2 N chaining is fastest where keys are absent, before quadratic probing",
            (_CH, 2.0), (_Q, 2.0), "absent", 624 / 539),
    _versus("thesis-4.4", "tables of fewer buckets are built faster: 0.1 N beside 2 N",
            "B = 0.1 N", "B = 2 N", "build", where=_above(1e6)),
    _versus("thesis-4.5", "with 2 N buckets keys are found faster than with 0.1 N",
            "B = 2 N", "B = 0.1 N", "find", where=_above(1e6)),
    Claim("thesis-4.7", "above 0.5 N buckets it is quicker to miss an absent key than to find one",
          _line("chained", "absent"), _line("chained", "find"), where=_above(0.84)),
    _versus("thesis-4.6", "with 2 N buckets absent keys are searched faster than with 0.1 N",
            "B = 2 N", "B = 0.1 N", "find", where=_above(1.0)),
    _versus("thesis-4.8", "chaining with 1.05 N builds faster than quadratic probing in as much",
            "chained 1.05 N", "quadratic 1.05 N", "build", where=_above(1e6)),
    _versus("thesis-4.9", "quadratic probing with 1.25 N finds faster than chaining with 2 N from "
            "a million pairs on", "quadratic 1.25 N", "chained 2 N", "find", where=_above(1e6)),
    _versus("thesis-5.8", "quadratic probing finds faster than two-level cuckoo hashing", _Q,
            "two_level_cuckoo", "find"),
    _versus("thesis-5.9", "where all searches fail two-level cuckoo hashing is ahead of a binary "
            "search of shuffled queries", "two_level_cuckoo", "sorted array", "find",
            where=_above(1.0)),
    _versus("thesis-5.11", "multi-value tables are always slower to build than a sorted array",
            "two_level_cuckoo", "sorted array", "build", 0.0, how="each"),
    _versus("thesis-5.10", "compacting tables find faster than a sorted array where few keys are "
            "repeated", "two_level_cuckoo", "sorted array", "find", where=_below(16.0)),
    _versus("thesis-5.10", "compacting tables take longer to build than a sorted array",
            "two_level_cuckoo", "sorted array", "build", 0.0),
    _versus("thesis-4.10", "with a cache quadratic probing with 2 N is ahead of as much chaining",
            "quadratic 2 N", "chained 2 N", "find", where=lambda x: x < 0.5),
    _versus("thesis-4.10", "with 1.05 N chaining is ahead of quadratic probing where searches fail",
            "chained 1.05 N", "quadratic 1.05 N", "find", where=_above(0.5)),
    _versus("thesis-6.3", "with 1.05 N tables are built half as fast as with 2 N",
            "cuckoo 1.05 N", "cuckoo 2 N", "build", 0.5, where=_above(1e6)),
    _versus("thesis-6.4", "larger tables find faster: 2 N beside 1.05 N",
            "cuckoo 2 N", "cuckoo 1.05 N", "find", where=_above(1e6)),
    _versus("thesis-6.5", "cuckoo hashing withstands failed searches: of 1.25 N it is ahead of "
            "1.05 N where all fail", "cuckoo 1.25 N", "cuckoo 1.05 N", "find", where=_above(1.0)),
    _versus("thesis-6.6", "two functions find faster than four with 3 N slots and more",
            "2 functions", "4 functions", "find", where=_above(3.0)),
    Claim("thesis-6.6", "four functions build fastest with about 4 N slots, faster than with 6 N",
          _line("4 functions", "build", space=4.0), _line("4 functions", "build", space=6.0)),
    _versus("thesis-table-6.1", "with 1.05 N cuckoo hashing finds faster than quadratic probing",
            "cuckoo 1.05 N", "quadratic 1.05 N", "find"),
    _versus("thesis-table-6.1", "with 1.42 N cuckoo hashing builds faster than chaining below a "
            "million pairs", "cuckoo 1.42 N", "chained 1.42 N", "build", where=_below(1e6)),
    _versus("thesis-table-6.1", "with 1.42 N chaining builds faster above a million",
            "chained 1.42 N", "cuckoo 1.42 N", "build", where=_above(1e6)),
    _versus("thesis-table-6.1", "with 2 N quadratic probing finds faster than cuckoo hashing from "
            "500,000 pairs on", "quadratic 2 N", "cuckoo 2 N", "find", where=_above(5e5)),
    _versus("thesis-table-6.1", "with 2 N cuckoo hashing finds faster below 500,000",
            "cuckoo 2 N", "quadratic 2 N", "find", where=_below(5e5)),
    _versus("thesis-6.13", "one level builds compacting tables faster than two", _CU,
            "two_level_cuckoo", "build"),
    _versus("thesis-6.14", "multi-value tables find faster than a binary search up to about 2,000 "
            "values a key", _CU, "sorted array", "count", how="each", where=_below(2000.0)),
    _versus("thesis-6.14", "multi-value tables take longer to build than the sorted array", _CU,
            "sorted array",
            "build", 0.0),
    _versus("slabhash-4", "cuckoo hashing that is as full builds faster than the slabs", _CU,
            "slab", "build", 1.33),
    _versus("slabhash-4", "cuckoo hashing that is as full finds faster than the slabs", _CU, "slab",
            "find", 2.08),
    _versus("slabhash-4", "where keys are absent cuckoo hashing is faster", _CU, "slab", "absent",
            2.04),
    Claim("slabhash-5", "searches of slabs that find are faster than those that do not",
          _line("slab", "find"), _line("slab", "absent"), 861 / 793),
    *(_versus("slabhash-6", f"batches of {each} thousand are inserted faster than tables are built "
              "anew", "slab", _CU, "insert", paper, where=_at(1024.0 * each))
      for each, paper in ((128, 6.4), (64, 10.4), (32, 17.3))),
    _versus("slabhash-7", "batches with fewer updates are faster", "Γ2", "Γ0", "mixed"),
    Claim("dachash-4", "nodes of 64 bytes are searched faster than those of 128",
          _line("ε = 0.5", "find", node_nbytes=64), _line("ε = 0.5", "find", node_nbytes=128)),
    Claim("dachash-4", "nodes of 64 bytes are searched faster than those of 32",
          _line("ε = 0.5", "find", node_nbytes=64), _line("ε = 0.5", "find", node_nbytes=32)),
    Claim("dachash-5", "256 combined buckets are searched faster than one at a time",
          _line("reorder", "find", combined=256), _line("reorder", "find", combined=1)),
    _versus("dachash-6a", "where all rows search, one-to-one is always ahead", "one-to-one",
            "many-to-one", "mixed", how="each"),
    _versus("dachash-6b", "in mixed batches one-to-one is ahead below an expected length of 0.6",
            "one-to-one", "many-to-one", "mixed", how="each", where=_below(0.59)),
    _versus("dachash-6b", "in mixed batches many-to-one is ahead above an expected length of 0.6",
            "many-to-one", "one-to-one", "mixed",
            how="each", where=_above(0.61)),
    _versus("dachash-7", "reordered batches are searched faster", "on", "off", "find", 4.33),
    _versus("dachash-8", "super nodes reach a higher rate of builds than slabs", "supernode",
            "slab", "build", 3.42 / 2.9, "peak"),
    _versus("dachash-8", "super nodes build faster than slabs up to an expected length of 0.6",
            "supernode", "slab", "build", where=_below(0.6)),
    _versus("dachash-9a", "over input sizes super nodes find faster than slabs",
            "supernode, any order", "slab", "find", 1.071),
    _versus("dachash-9a", "super nodes find faster than slabs in input order, too", "supernode",
            "slab", "find"),
    _versus("dachash-9a", "at 2^22 rows and ε = 0.5 super nodes are ahead of slabs in any order",
            "supernode, any order", "slab", "find", where=_at(2.0**22)),
    _versus("dachash-9a", "at 2^22 rows and ε = 0.5 super nodes are ahead of slabs in input order",
            "supernode", "slab", "find", where=_at(2.0**22)),
    _versus("dachash-9b", "over expected lengths super nodes find faster than slabs",
            "supernode, any order", "slab", "find", 1.4153),
    _versus("dachash-9b", "super nodes find faster than slabs in input order, too", "supernode",
            "slab", "find"),
    _versus("dachash-10", "mixed batches, 80/20, are faster with super nodes than with slabs",
            "supernode 80/20", "slab 80/20", "mixed", 1.1992),
    _versus("dachash-10", "mixed batches, 60/40, are faster with super nodes than with slabs",
            "supernode 60/40", "slab 60/40", "mixed", 1.1992),
    _versus("warpcore-5", "at a load of 0.8 COPS inserts faster than linear probing, as cuDF's",
            "cops, 4 lanes", "linear", "build", 1.6, where=_at(0.8)),
    _versus("warpcore-5", "at a load of 0.8 COPS finds faster than linear probing, as cuDF's",
            "cops, 4 lanes", "linear", "find", 8.76,
            where=_at(0.8)),
    _versus("warpcore-5", "at 0.97 COPS inserts faster than cuckoo hashing, as cuDPP's",
            "cops, 4 lanes", "cuckoo", "build", 3.95, where=_at(0.97)),
    _versus("warpcore-5", "at 0.9 COPS finds faster than cuckoo hashing", "cops, 4 lanes", "cuckoo",
            "find", 1.64, where=_at(0.9)),
    _versus("warpcore-7", "bucket lists are slower to build than open addressing below 32 values",
            "bucket_list", "cops, 8 lanes", "build", 0.0, where=_below(32.0)),
    _versus("warpcore-7", "bucket lists are always faster to read", "bucket_list", "cops, 8 lanes",
            "retrieve", how="each"),
)  # fmt: skip
