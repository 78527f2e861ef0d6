"""Benchmark of groupbys on workers, on few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench.frames import on_workers
from dgpuhash.bench.frames.on_workers import Expected, GroupedRows, answers_of, made_rows
from dgpuhash.bench.report.grids import grids
from dgpuhash.errors import DgpuhashError, SpecError

CPU = backend.get("cpu")


def test_libraries_are_beside_each_other() -> None:
    row = {"verb": "nunique", "workers": 2, "n": 100, "groups": 7, "unit": "ms", "correct": True}
    rows = [{**row, "library": name, "time": 2.5} for name in ("dgpuhash", "cudf-polars 26.10")]
    (grid,) = grids("groupbys", rows)
    assert grid.header[-2:] == ("dgpuhash", "cudf-polars 26.10")
    assert grid.lines == [("100", "2", "7", "nunique", "2.5", "2.5")]


def expected_of(frame: Any, verb: str) -> Any:
    groups = frame.groupby("k")["v"]
    if verb == "sum + count":
        return groups.agg(["sum", "count"])
    return (groups.nunique() if verb == "nunique" else groups.median()).to_frame()


@pytest.mark.parametrize("verb", on_workers.VERBS)
def test_answers_are_checked(verb: str) -> None:
    frame = made_rows("cpu", 0, 5000, 60)
    keys, values = frame["k"].to_numpy(), frame["v"].to_numpy()
    sample = GroupedRows(5000, 60, 1).sample
    order = np.lexsort([values, keys])
    order = order[np.isin(keys[order], sample)]
    known = Expected(60, keys[order], values[order])
    answer = expected_of(frame, verb)
    known.check(verb, [answers_of(answer, sample)])
    for wrong in (answer.iloc[:-1], answer + 1):
        with pytest.raises(DgpuhashError, match=verb.split()[0]):
            known.check(verb, [answers_of(wrong, sample)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"verbs": ["mode"]}, "verb 'mode'"),
        ({"engines": ["spark"]}, "engine 'spark'"),
        ({"engines": ["cudf-polars"]}, "needs GPUs"),
    ],
)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        bench.run("groupbys", device="cpu", workers=1, quiet=True, **options)
