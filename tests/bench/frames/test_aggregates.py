"""Benchmark of aggregates by group of a frame, at tiny sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import peers
from dgpuhash.bench.frames import aggregates
from dgpuhash.bench.frames.aggregates import VERBS
from dgpuhash.bench.report.grids import grids
from dgpuhash.cli.bench import bench as commands
from dgpuhash.errors import SpecError

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.cudf]),
]


@pytest.mark.parametrize("where", DEVICES)
def test_libraries_agree(where: str) -> None:
    rows = bench.run(
        "aggregates", device=where, n=[3000], groups=[7, 2000], compare=True, repeats=1, quiet=True
    )
    peers = ["pandas", "polars"] if where == "cpu" else ["cudf"]
    named = [*peers, "dgpuhash"]
    assert [row["verb"] for row in rows] == [verb for verb in VERBS for _ in named] * 2
    assert [row["library"].split()[0].lower() for row in rows] == named * len(VERBS) * 2
    (grid,) = grids("aggregates", rows)
    assert grid.lines[0][:3] == ("3,000", "7", "sum + count")
    assert [param.opts[0] for param in commands.commands["aggregates"].params][1:3] == [
        "--groups", "--verb",
    ]  # fmt: skip
    (choices,) = [
        each.type for each in commands.commands["aggregates"].params if each.name == "verbs"
    ]
    assert list(choices.choices) == list(VERBS)


@pytest.mark.parametrize("compare", [False, True])
def test_a_wrong_answer_has_no_figure(monkeypatch: pytest.MonkeyPatch, compare: bool) -> None:
    class Wrong(peers.Ours):
        def group(self, *given: Any) -> Any:
            made = super().group(*given)()
            made.iloc[3] += 1
            return lambda: made

    monkeypatch.setitem(peers.COMPARED, "cpu", (peers.Pandas, Wrong))
    options: dict[str, Any] = {"n": [100], "groups": [9], "verbs": ["median"], "repeats": 1}
    rows = list(aggregates.run(backend.get("cpu"), compare=compare, **options))
    assert ["time" in row for row in rows] == [True, False][not compare :]
    assert "the answer is not that of pandas" in rows[-1]["problem"]


@pytest.mark.parametrize(
    ("options", "said"), [({"verbs": ["mode"]}, "verb 'mode'; use sum [+] count, ")]
)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        bench.run("aggregates", device="cpu", n=[100], quiet=True, **options)
