"""Benchmark of grouping at tiny sizes, with peers."""

from __future__ import annotations

from typing import Any

import pytest

from dgpuhash import bench
from dgpuhash.bench.peers import Pandas, Task
from dgpuhash.bench.tables import group
from dgpuhash.errors import DgpuhashError

VERBS = ["sum + count", "factorize", "value_counts", "unique"]


def test_group(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run("group", device=device, n=[3000], groups=[10, 1000], repeats=1)
    assert [row["verb"] for row in rows] == VERBS * 2
    assert [row["groups"] for row in rows] == [10] * 4 + [1000] * 4
    assert all(row["time"] > 0 and row["floor"] > 0 and row["correct"] for row in rows)
    assert "1,000" in capsys.readouterr().out


def test_distributions_instead_of_numbers_of_groups(device: str) -> None:
    rows = bench.run(
        "group", device=device, n=[2000], distributions=["zipf:1.5", "uniform:4"], repeats=1,
        quiet=True,
    )  # fmt: skip
    assert [row["distribution"] for row in rows] == ["zipf:1.5"] * 4 + ["uniform:4"] * 4


def test_peers_agree() -> None:
    rows = bench.run(
        "group", device="cpu", n=[2000], groups=[30], compare=True, repeats=1, quiet=True
    )
    verbs: dict[str, list[str]] = {}
    for row in rows:
        verbs.setdefault(row["library"].split()[0], []).append(row["verb"])
    assert verbs["dgpuhash"] == verbs["pandas"] == VERBS
    assert verbs["polars"] == verbs["DuckDB"] == [VERBS[0], *VERBS[2:]]
    assert tuple(VERBS) == group.VERBS


@pytest.mark.gpu
@pytest.mark.cudf
def test_cudf_agrees() -> None:
    rows = bench.run(
        "group", device="cuda", n=[2000], groups=[30], compare=True, repeats=1, quiet=True
    )
    theirs = [row["verb"] for row in rows if row["library"].startswith("cuDF")]
    assert theirs == VERBS


@pytest.mark.parametrize(
    ("verb", "wrong", "said"),
    [
        ("sum + count", lambda keys, sums, counts: (keys, sums + 1, counts), "a sum was wrong"),
        ("sum + count", lambda keys, sums, counts: (keys, sums, counts[::-1]), "a count was wrong"),
        ("unique", lambda keys: (keys[1:],), "number of groups"),
        ("unique", lambda keys: (keys + 1,), "a key was wrong"),
        ("factorize", lambda codes, keys: (codes[::-1], keys), "numbers another key"),
        ("factorize", lambda codes, keys: (codes - 1, keys), "numbers nothing"),
    ],
)
def test_a_wrong_peer_voids_the_figures(
    verb: str, wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(task: Task) -> Task:
        return Task(task.work, lambda made: wrong(*task.read(made)))

    columns, aggregated = Pandas.columns, Pandas.aggregated
    if verb == "sum + count":
        monkeypatch.setattr(Pandas, "aggregated", lambda *given: spoil(aggregated(*given)))
    else:
        monkeypatch.setattr(Pandas, "columns", lambda *given: {verb: spoil(columns(*given)[verb])})
    with pytest.raises(DgpuhashError, match=f"{said}.*library pandas"):
        bench.run("group", device="cpu", n=[500], groups=[7], compare=True, repeats=1, quiet=True)


def test_more_groups_than_rows_are_left_out_unless_asked_for() -> None:
    rows = bench.run("group", device="cpu", n=[3000], repeats=1, quiet=True)
    assert {row["groups"] for row in rows} == {100}
    assert max(group.GROUPS["cpu"]) > 3000
    few = bench.run("group", device="cpu", n=[7], repeats=1, quiet=True)
    assert [row["groups"] for row in few] == [7] * 4
