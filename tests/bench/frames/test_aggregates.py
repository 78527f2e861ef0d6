"""Benchmark of aggregates by group of a frame, at tiny sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench.frames.aggregates import VERBS, Expected
from dgpuhash.bench.report.grids import grids
from dgpuhash.cli.bench import bench as commands
from dgpuhash.errors import DgpuhashError, SpecError

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.cudf]),
]


@pytest.mark.parametrize("where", DEVICES)
def test_libraries_agree(where: str) -> None:
    rows = bench.run(
        "aggregates", device=where, n=[3000], groups=[7, 2000], compare=True, repeats=1, quiet=True
    )
    assert [row["verb"] for row in rows] == [verb for verb in VERBS for _ in "12"] * 2
    assert {row["library"].split()[0].lower() for row in rows} == {
        "dgpuhash", "pandas" if where == "cpu" else "cudf",
    }  # fmt: skip
    (grid,) = grids("aggregates", rows)
    assert grid.lines[0][:3] == ("3,000", "7", "sum + count")
    assert [param.opts[0] for param in commands.commands["aggregates"].params][1:3] == [
        "--groups", "--verb",
    ]  # fmt: skip
    (choices,) = [
        each.type for each in commands.commands["aggregates"].params if each.name == "verbs"
    ]
    assert list(choices.choices) == list(VERBS)


def groups_by_hand(keys: Any, values: Any, verb: str) -> list[Any]:
    own = [values[keys == key] for key in np.unique(keys)]
    with np.errstate(invalid="ignore", divide="ignore"):
        made = {
            "sum + count": lambda: [[each.sum() for each in own], [len(each) for each in own]],
            "sum of floats": lambda: [[each.sum() / 1024 for each in own]],
            "var": lambda: [[each.var(ddof=1) if len(each) > 1 else np.nan for each in own]],
            "first": lambda: [[each[0] for each in own]],
            "median": lambda: [[np.median(each) for each in own]],
            "nunique": lambda: [[len(np.unique(each)) for each in own]],
        }
        return [np.array(column, np.float64) for column in made[verb]()]


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_answer_voids_the_figures(verb: str) -> None:
    random = np.random.default_rng(3)
    keys, values = random.integers(0, 60, 200), random.integers(0, 50, 200)
    known, found = Expected(backend.get("cpu"), keys, values), np.unique(keys)[::-1]
    columns = [column[::-1] for column in groups_by_hand(keys, values, verb)]
    known.check(verb, [found, *columns], {})
    with pytest.raises(DgpuhashError, match="a key was wrong"):
        known.check(verb, [found + 1, *columns], {})
    with pytest.raises(DgpuhashError, match="number of groups"):
        known.check(verb, [each[1:] for each in (found, *columns)], {})
    for place in range(len(columns)):
        wrong = [each + (each == each.max()) * (place == n) for n, each in enumerate(columns)]
        if verb == "var":
            wrong = [np.where(each == np.nanmax(each), 0, each) for each in columns]
        with pytest.raises(DgpuhashError, match=f"a {verb.split()[0]}"):
            known.check(verb, [found, *wrong], {})


@pytest.mark.parametrize(
    ("options", "said"), [({"verbs": ["mode"]}, "verb 'mode'"), ({"groups": [2**28]}, "at most")]
)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        bench.run("aggregates", device="cpu", n=[100], quiet=True, **options)
