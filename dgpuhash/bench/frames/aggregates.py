"""Benchmark each aggregate of a groupby against cuDF or pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench.frames.compared import Case, compared_engines, measure
from dgpuhash.bench.memory import rows_that_fit
from dgpuhash.bench.options import Option
from dgpuhash.bench.timing import REPEATS

#: Columns and aggregates; integers and floats have the same values, but for a factor.
VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sum + count": ("v", ("sum", "count")),
    "sum of floats": ("f", ("sum",)),
    **{how: ("v", (how,)) for how in ("var", "first", "median", "nunique")},
}
GROUPS = {"cuda": (100, 2**16, 2**20, 2**24), "cpu": (100, 2**16, 2**20)}
ROWS = {"cuda": 2**27, "cpu": 2**21}
_ROW_NBYTES = 24


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    groups: Sequence[int] = (),
    verbs: Annotated[Sequence[str], Option(choices=tuple(VERBS))] = (),
    compare: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of groups, aggregate and library.

    The frame is cuDF's on a GPU, else pandas'; the groups are made anew for each aggregate.

    Parameters
    ----------
    backend : Backend
    n : sequence of int, optional
        Rows; default: 2**27 on a GPU, 2**21 on the CPU, or what the memory has room for.
    groups : sequence of int, optional
        Keys are below each of them; default: several, up to the number of rows.
    verbs : sequence of str
        Aggregates of `VERBS`; default: all.
    compare : bool
        Measure cuDF, or pandas and Polars, on the same frame, too; the answers are compared anyway.
    repeats : int, optional
        Turns, of which the least time counts.

    Raises
    ------
    SpecError
        When an option is impossible, or cuDF is not installed.

    Notes
    -----
    A library that fails, or whose answer is not that of cuDF or pandas, has a row with a
    ``problem`` in place of figures.
    """
    engines = compared_engines(backend)
    for rows in n or (rows_that_fit(backend, ROWS[backend.name], _ROW_NBYTES),):
        for number in groups or [most for most in GROUPS[backend.name] if most <= rows] or [rows]:
            for verb in verbs or VERBS:
                column, hows = VERBS[verb]
                case = Case(verb, "aggregate", rows, groups=number, column=column, aggregates=hows)
                yield from measure(
                    backend, case, engines, repeats or REPEATS[backend.name], peers=compare
                )
