"""Benchmark of multimaps at tiny sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dgpuhash import bench
from dgpuhash.bench import method
from dgpuhash.bench.tables import multi
from dgpuhash.errors import DgpuhashError, SpecError


@pytest.mark.parametrize("dtypes", method.MAPS)
def test_multi(device: str, dtypes: str) -> None:
    rows = bench.run("multi", device=device, n=[3000], dtypes=[dtypes], repeats=1, quiet=True)
    assert [row["verb"] for row in rows] == [
        "build", "retrieve", "retrieve 1…n", "memory"
    ] * 5  # fmt: skip
    assert [row["distribution"] for row in rows[::4]] == list(multi.DISTRIBUTIONS)
    assert rows[0]["multiplicity"] == 1
    assert rows[12]["multiplicity"] == pytest.approx(512, rel=0.2)
    assert all(row["floor"] > 0 and row["ratio"] > 0 for row in rows if "rate" in row)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda values, offsets: (values[::-1], offsets), "another key's list"),
        (lambda values, offsets: (values * 0, offsets), "a value was lost"),
        (lambda values, offsets: (values, offsets // 2), "too short or long"),
    ],
)
def test_wrong_answers_void_the_figures(
    wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(multi.MultiMap):
        def find(self, *keys: Any, **settings: Any) -> Any:
            return wrong(*super().find(*keys, **settings))

    monkeypatch.setattr(multi, "MultiMap", Forgetful)
    with pytest.raises(DgpuhashError, match=f"{said}.*void"):
        bench.run("multi", device="cpu", n=[100], repeats=1, quiet=True)


def test_multimaps_have_values() -> None:
    with pytest.raises(SpecError, match="--dtypes 'set32'; use 32/32"):
        bench.run("multi", device="cpu", dtypes=["set32"], quiet=True)
