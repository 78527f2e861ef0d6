"""Check the claims of the papers, listed in `claims.json`, against our figures."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from dgpuhash.bench.papers.drawn.figure import peaks
from dgpuhash.bench.papers.drawn.table import DRAWN

Row = dict[str, Any]
_COMPARISONS = {"=": operator.eq, ">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Claim:
    """A paper's claim: the ratio of two lines of a figure, or which one is ahead.

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
    where : tuple of str and float, optional
        Which places count: a comparison of `_COMPARISONS`, and what places are compared with.
    """

    figure: str
    text: str
    over: Row
    under: Row
    paper: float = math.inf
    how: str = "mean"
    where: tuple[str, float] = (">=", -math.inf)

    def ratio(self, rows: Sequence[Row]) -> float | None:
        """Return our ratio; None if rows are missing."""
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
        """Return in words whether the claim holds here; None if rows are missing."""
        ours = self.ratio(rows)
        if ours is None:
            return None
        told = f", ratio {self.paper:.3g}" if 0 < self.paper < math.inf else ""
        says = f"{DRAWN[self.figure].paper}, {DRAWN[self.figure].number}: {self.text}{told}."
        holds = "It holds here" if (ours > 1) == (self.paper > 1) else "It does not hold here"
        return f"{says} {holds}: {ours:.3g}."

    def _rates(self, rows: Sequence[Row], wanted: Row) -> dict[float, float]:
        axis, (sign, place) = DRAWN[self.figure].axis, self.where
        compare = _COMPARISONS[sign]
        return {
            row[axis]: row["rate"] if "rate" in row else row["amount"]
            for row in rows
            if row["figure"] == self.figure
            and axis in row
            and compare(row[axis], place)
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
    yield from _rate_claims(rows)
    yield from _count_claims(rows)


def _rate_claims(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each largest rate that a paper states."""
    for name, line, verb, paper, source in peaks():
        wanted = {"figure": name, "line": line, "verb": verb}
        ours = [row["rate"] for row in rows if wanted.items() <= row.items()]
        if ours:
            says = f"{DRAWN[name].paper}, {DRAWN[name].number}: {line}, {verb}, reaches {paper:.3g}"
            yield name, f"{says} G/s ({source}). Here it reaches {max(ours):.3g}."


def _count_claims(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
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


CLAIMS = tuple(
    Claim(**each) for each in json.loads(files(__package__).joinpath("claims.json").read_text())
)
