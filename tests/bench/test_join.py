"""Benchmark of joins at tiny sizes, with peers."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import peers
from dgpuhash.bench.keys import Distribution
from dgpuhash.bench.peers import Ours
from dgpuhash.bench.tables import join
from dgpuhash.errors import DgpuhashError, SpecError


def test_join(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run(
        "join", device=device, n=[3000], builds=[10, 3000], hit_rates=[1.0, 0.3, 0.0], repeats=1
    )
    verbs = ["inner", "left", "semi", "standing"]
    if device == "cuda" and importlib.util.find_spec("cudf"):
        verbs += ["merge", "standing merge"]
    assert [row["verb"] for row in rows] == verbs * 6
    assert all(row["time"] > 0 and row["floor"] > 0 and row["correct"] for row in rows)
    assert "standing" in capsys.readouterr().out


@pytest.mark.parametrize("distribution", ["unique", "uniform:4", "zipf:1.1"])
def test_peers_agree(distribution: str) -> None:
    rows = bench.run(
        "join", device="cpu", n=[500], builds=[100], hit_rates=[0.5], distribution=distribution,
        compare=True, repeats=1, quiet=True,
    )  # fmt: skip
    libraries = [row["library"].split()[0] for row in rows if row["verb"] == "left"]
    assert libraries == ["dgpuhash", "pandas", "polars", "DuckDB"]
    assert ("standing" in {row["verb"] for row in rows}) == (distribution == "unique")


@pytest.mark.gpu
@pytest.mark.cudf
@pytest.mark.parametrize("distribution", ["unique", "uniform:4"])
def test_cudf_agrees(distribution: str) -> None:
    rows = bench.run(
        "join", device="cuda", n=[500], builds=[100], hit_rates=[0.5], distribution=distribution,
        compare=True, repeats=1, quiet=True,
    )  # fmt: skip
    theirs = [row["verb"] for row in rows if row["library"].startswith("cuDF")]
    assert theirs == ["inner", "left", "semi", "merge"]


@pytest.mark.parametrize(
    ("how", "wrong", "said"),
    [
        ("inner", lambda left, right: (left[1:], right[1:]), "number of pairs"),
        ("inner", lambda left, right: (left, right[::-1]), "a pair was wrong"),
        ("inner", lambda left, right: (left * 0 + left[0], right * 0 + right[0]), "came twice"),
        ("left", lambda left, right: (left, right * 0 - 1), "a partner was lost"),
        ("inner", lambda left, right: (left, right * 0 - 1), "without a partner was kept"),
        ("semi", lambda left, right: (left[1:], None), "number of rows"),
        ("semi", lambda left, right: (left * 0 + left[0], None), "a row came twice"),
    ],
)
def test_wrong_pairs_are_noticed(how: str, wrong: Any, said: str) -> None:
    used = backend.get("cpu")
    sides = join.JoinInput(used, 200, Distribution.of("unique").sample(used, 50), 0.5)
    task = Ours().joins(sides.left, sides.right)[how]
    sides.check(how, task.read(task.work()), {})
    with pytest.raises(DgpuhashError, match=said):
        sides.check(how, wrong(*task.read(task.work())), {})


def test_an_impossible_hit_rate() -> None:
    with pytest.raises(SpecError, match="hit rate of -1"):
        bench.run("join", device="cpu", n=[10], builds=[10], hit_rates=[-1], quiet=True)


def test_without_peers_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers._PEERS, "cpu", ())
    with pytest.raises(SpecError, match="leave out --compare"):
        bench.run("join", device="cpu", n=[10], compare=True, quiet=True)


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    found = list(peers.measured_libraries(backend.get("cpu"), True))
    assert [peer.name.split()[0] for peer in found] == ["dgpuhash", "pandas", "DuckDB"]


def test_every_left_row_with_a_partner_has_one_among_the_right_rows() -> None:
    used = backend.get("cpu")
    sides = join.JoinInput(used, 1000, Distribution.of("uniform:4").sample(used, 100), 0.25)
    found = np.isin(sides.left, sides.right)
    assert 0.2 < found.mean() < 0.3
