"""Dask's own programs, run with `dgpuhash.dask.enable()` and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import dask
import pandas as pd

import dgpuhash
from suites.generated import groupbys, merges, oracle
from suites.generated.columns import NULL, Value, read
from suites.generated.frames import CUTS, Outcome, cuts, frame_code, unlike_meta
from suites.generated.groupbys import Groupby
from suites.generated.merges import Merge

__all__ = ["Program", "draw_program", "failure"]

# Verbs of Dask's own groups.
_GROUPED = {
    "count", "size", "sum", "prod", "mean", "median", "var", "std", "min", "max", "first", "last",
    "nunique", "idxmin", "idxmax", "value_counts", "unique",
}  # fmt: skip
VERBS = ("merge", "merge", "merge", "groupby", "groupby", "drop_duplicates", "value_counts",
         "nunique")  # fmt: skip
Rows = list[oracle.Row]


@dataclass(frozen=True)
class Program:
    """A program of Dask.

    Attributes
    ----------
    verb : str
        One of `VERBS`.
    case : Merge or Groupby
        Its frames, and what is done with them.
    cut : str
        How the frames are cut; the right side of a merge in the next way.
    """

    verb: str
    case: Merge | Groupby
    cut: str

    def fewer(self) -> Iterator[Program]:
        """Yield programs with one thing less."""
        yield from (replace(self, case=case) for case in self.case.fewer())

    def __str__(self) -> str:
        title = f"# Dask's {self.verb}, cut {self.cut!r}\n"
        if self.verb in ("merge", "groupby"):
            return title + str(self.case)
        assert isinstance(self.case, Groupby)
        frame = frame_code({label: self.case.columns[label] for label in self.case.by})
        return f"{title}p = {frame}\np.{self.verb}(){self.case.lazily}"

    @property
    def how(self) -> str:
        """The verb of groups, empty for other programs."""
        grouped = self.verb == "groupby" and isinstance(self.case, Groupby)
        return self.case.hows[0] if grouped else ""

    @property
    def miscounts(self) -> bool:
        """Whether Dask's verb leaves out rows of null keys, which it is to count."""
        if not isinstance(self.case, Groupby) or self.how != "value_counts":
            return False
        frame = self.case.frame()
        return any(NULL in read(frame[label]) for label in self.case.by)

    def run(self) -> Any:
        """Return the lazy result of Dask's verb, whoever answers it."""
        case = self.case
        if isinstance(case, Merge):
            sides = [
                merges.cuts_of(case, side, number)[CUTS[(CUTS.index(self.cut) + number) % 5]]
                for number, side in enumerate(case.frames())
            ]
            left, right = (case.lazily.of(side) for side in sides)
            return left.merge(right, case.how, **case.by)
        frame = case.frame()
        given = case.lazily.of(cuts(frame, frame["k"])[self.cut])
        if self.verb == "groupby":
            groups = given.groupby(case.by, observed=True, **case.options)
            return groupbys.call(groups, case.hows[0])
        if self.verb == "drop_duplicates":
            return given[case.by].drop_duplicates()
        return getattr(given["k"], self.verb)()

    def rows(self, made: Any) -> tuple[Rows, list[bool]]:
        """Return the rows of a result."""
        if isinstance(self.case, Merge):
            return merges.rows_of(self.case, made)[1:]
        if not hasattr(made, "index"):
            return [(Value("number", int(made), "int"),)], [False]
        if self.verb == "drop_duplicates":
            # Any of the rows with a key may be the one that stays.
            columns = [made[label] for label in made]
            rows = list(zip(*map(read, columns), strict=True))
            return rows, [oracle.is_float(column.dtype) for column in columns]
        return groupbys.rows_of(made)

    def right(self) -> Rows | None:
        """Return the rows by plain Python, None where it has no rule."""
        case = self.case
        if isinstance(case, Merge):
            return merges.wanted_of(case, *case.frames()).rows
        frame = case.frame()
        if self.verb == "groupby":
            groups = Outcome.of(lambda: frame.groupby(case.by, observed=True, **case.options))
            theirs = Outcome.of(lambda: groupbys.call(groups.made, case.hows[0]))
            return None if theirs.error else groupbys.rule(case, frame, case.hows[0], theirs.made)
        keys = list(dict.fromkeys(zip(*(read(frame[label]) for label in case.by), strict=True)))
        if self.verb == "drop_duplicates":
            return keys
        there = [value for value in read(frame["k"]) if value != NULL]
        if self.verb == "nunique":
            return [(Value("number", len({value.key for value in there}), "int"),)]
        if frame["k"].dtype.name == "category" or len(set(there)) > len({v.key for v in there}):
            # Categories that nobody has are counted, and equal values may have several types.
            return None
        return [(value, Value("number", n, "int")) for value, n in Counter(there).items()]


def draw_program(random: Random) -> Program:
    """Return a program that Dask can run, too."""
    verb, cut = random.choice(VERBS), random.choice(CUTS)
    if verb == "merge":
        while True:
            merge = merges.draw_merge(random)
            if merge.how in ("inner", "left", "right", "outer") and not merge.options:
                return Program(verb, merge, cut)
    while True:
        groups = groupbys.draw_groupby(random, 1)
        if verb != "groupby" or groups.hows[0].removeprefix("transform ") in _GROUPED:
            return Program(verb, groups, cut)


def failure(program: Program) -> str:
    """Return how a program of Dask differs with ours from the one without; empty for nothing.

    What fails without ours may fail or not. What Dask has wrong may be right or as wrong.
    """

    def run() -> tuple[Any, Any]:
        lazily = program.run()
        return lazily._meta, lazily.compute()

    # Without a cluster it takes a tenth of the time.
    with dask.config.set({"scheduler": "sync", "dataframe.shuffle.method": "tasks"}):
        theirs = Outcome.of(run)
    if theirs.error is not None or program.miscounts:
        return ""
    with dgpuhash.dask.enabled(), program.case.lazily.placed():
        ours = Outcome.of(run)
    right = program.right()
    reason = _difference(program, ours, theirs, right)
    return reason and _difference(program, ours, Outcome.of(run), right)


def _difference(program: Program, ours: Outcome, theirs: Outcome, right: Rows | None) -> str:
    if theirs.error is not None:
        return ""
    meta, made = theirs.made
    rows, floats = program.rows(made)
    wrong = right is not None and oracle.difference(rows, right, floats, near=1e-9)
    if ours.error is not None:
        return "" if wrong else f"fails with ours alone: {ours.told}"
    own_meta, own = ours.made
    found, own_floats = program.rows(own)
    both = [one or two for one, two in zip(floats, own_floats, strict=True)]
    # Dask's datetimes between two others are floats on the way.
    between = program.how in groupbys.BETWEEN
    tick = groupbys.size_of_unit(made.dtype) if between else None
    reason = oracle.difference(found, rows, both, near=1e-9, tick=tick)
    if reason and not (wrong and not oracle.difference(found, right or [], both, near=1e-9)):
        return f"unlike Dask: {reason}"
    if not isinstance(made, pd.Series | pd.DataFrame):
        return ""
    pairs = [("result", own, made)]
    if isinstance(program.case, Merge):
        # Dask's own metas of groups are not those of its results.
        pairs.append(("meta", own_meta, meta))
    for name, one, other in pairs:
        case = program.case
        if isinstance(case, Merge):
            free = merges.free_keys(case, one, other)
        else:
            free = groupbys.guessed(one) | groupbys.guessed(other)
            if program.how.split()[-1:] in (["sum"], ["prod"]) and _are_integers(one, other):
                # Ours have 64 bits, and Dask's as few as hold the values.
                free = {*free, "values"}
            if program.how and case.columns["v"].kind.startswith("object"):
                # The dtype of objects of groups is guessed.
                free = {*free, "values"}
        if unlike := unlike_meta(one, other, free):
            return f"{name}: " + unlike.replace("in meta", "by Dask").replace("meta has", "Dask")
    return ""


def _are_integers(*results: Any) -> bool:
    return all(getattr(getattr(each, "dtype", None), "kind", "") in ("i", "u") for each in results)
