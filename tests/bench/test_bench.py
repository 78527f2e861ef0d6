"""The benchmarks end to end at tiny sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import limits, tables
from dgpuhash.bench.__main__ import main
from dgpuhash.bench.keys import unique_keys
from dgpuhash.errors import DgpuhashError, SpecError


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    return str(request.param)


def test_limits(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "below" / "limits.jsonl"
    rows = bench.run(
        "limits", device=device, footprints=[2**16, 2**18], n=5000, repeats=1, json_path=path
    )
    assert len(rows) == 2 * 9
    assert all(row["rate"] > 0 for row in rows)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["limit"] for row in written] == [row["limit"] for row in rows]
    assert written[0]["machine"]["device"] == backend.get(device).device_name()
    assert "insert floor 64/64" in capsys.readouterr().out


def test_tables(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run("tables", device=device, sizes=[3000], loads=[0.5, 0.8], repeats=1)
    assert len(rows) == 2 * 2 * 3
    assert {row["verb"] for row in rows} == {"insert", "find", "absent"}
    assert all(row["correct"] and row["rate"] > 0 and row["floor"] > 0 for row in rows)
    for row in rows:
        assert row["ratio"] == pytest.approx(row["rate"] / row["floor"], abs=0.01, rel=0.05)
    assert "0.8" in capsys.readouterr().out


def test_floors_do_what_they_say(device: str) -> None:
    """The insert floor stores every pair, unless another came to its slot."""
    used = backend.get(device)
    keys = unique_keys(used, 0, 1000, np.dtype("u8"))
    slots = used.full(2**16, 0, "u8")
    limits._time(
        used, limits.insert_kernel("dg::u64"), 1000, 1, slot_count=2**15,
        keys=keys, values=keys, slots=slots,
    )  # fmt: skip
    stored = used.to_host(slots).reshape(-1, 2)
    stored = stored[stored[:, 0] != 0]
    assert len(stored) > 950
    np.testing.assert_array_equal(stored[:, 0], stored[:, 1])
    assert np.isin(stored[:, 0], used.to_host(keys)).all()


def test_wrong_answers_void_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "values_of", lambda keys, dtype: np.zeros_like(keys))

    class Forgetful(tables.HashMap):
        def find(self, keys: Any, *rest: Any, **settings: Any) -> Any:
            values, found = super().find(keys, *rest, **settings)
            return values + 1, found

    monkeypatch.setattr(tables, "HashMap", Forgetful)
    with pytest.raises(DgpuhashError, match=r"a value was wrong.*void"):
        bench.run("tables", device="cpu", sizes=[100], bits=[32], repeats=1, quiet=True)


def test_unknown_benchmark() -> None:
    with pytest.raises(SpecError, match="'speed'"):
        bench.run("speed")


@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_keys_are_unique_and_disjoint(dtype: str) -> None:
    used = backend.get("cpu")
    both = [unique_keys(used, first, 50_000, np.dtype(dtype)) for first in (0, 50_000)]
    assert len(np.unique(np.concatenate(both))) == 100_000


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.jsonl"
    arguments = ["tables", "--device", "cpu", "--sizes", "500", "--bits", "32", "--loads", "0.5"]
    assert main([*arguments, "--repeats", "1", "--json", str(path)]) == 0
    assert len(path.read_text().splitlines()) == 3
    with pytest.raises(SystemExit):
        main(["tables", "--n", "5"])
    assert "takes no --n" in capsys.readouterr().err
