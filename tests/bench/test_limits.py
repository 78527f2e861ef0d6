"""Machine limits: their measurement, their checks, and valid footprints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.backend import kernel_named
from dgpuhash.bench import limits
from dgpuhash.bench.keys import unique_keys
from dgpuhash.errors import DgpuhashError, SpecError


def test_limits(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "below" / "limits.jsonl"
    rows = bench.run(
        "limits", device=device, footprints=[2**16, 2**18], n=5000, repeats=1, json_path=path
    )
    assert len(rows) == 2 * 11
    assert all(row["rate"] > 0 and row["correct"] for row in rows)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["limit"] for row in written] == [row["limit"] for row in rows]
    assert written[0]["machine"]["device"] == backend.get(device).device_name()
    assert {"commit", "numpy", "python"} <= written[0]["machine"].keys()
    shown = capsys.readouterr()
    assert "insert floor 64/64" in shown.out
    assert "partition pass" in shown.err


FIRST = np.zeros(2**11, np.int64)  # that row again and again


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda moved: replace(moved, values=moved.values[::-1]), "lost the order"),
        (lambda moved: replace(moved, keys=moved.keys[::-1], values=moved.values[::-1]), "order"),
        (lambda moved: replace(moved, keys=moved.keys[FIRST], values=moved.values[FIRST]), "row"),
    ],
)
def test_a_wrong_partition_is_noticed(
    wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = backend.get("cpu")
    right = used.partition

    def partition(_: Any, *given: Any, **settings: Any) -> Any:
        return wrong(right(*given, **settings))

    monkeypatch.setattr(type(used), "partition", partition)
    with pytest.raises(DgpuhashError, match=f"{said}.*void"):
        limits.partition_rate(used, 32, 2**14, 1)


def test_default_footprints_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    used = backend.get("cpu")
    monkeypatch.setattr(type(used), "memory", lambda _: (2**23, 2**30))
    rows = list(limits.run(used, n=1000, repeats=1))
    assert {row["footprint"] for row in rows} == {2**18, 2**20}


@pytest.mark.parametrize("footprint", [3 * 2**20, 64, 2**60])
def test_footprints_are_powers_of_two(footprint: int) -> None:
    with pytest.raises(SpecError, match="power of two from 1,024 to 1,099,511,627,776"):
        bench.run("limits", device="cpu", footprints=[footprint], n=10, quiet=True)


def test_the_insert_floor_stores_every_pair_unless_another_came_to_its_slot(device: str) -> None:
    used = backend.get(device)
    keys = unique_keys(used, 0, 1000, np.dtype("u8"))
    slots = used.full(2**16, 0, "u8")
    fields: dict[str, Any] = {"keys": keys, "values": keys, "slots": slots}
    used.run(kernel_named("limit_insert", "u8"), 1000, slot_count=2**15, **fields)
    stored = used.to_host(slots).reshape(-1, 2)
    stored = stored[stored[:, 0] != 0]
    assert len(stored) > 950
    np.testing.assert_array_equal(stored[:, 0], stored[:, 1])
    assert np.isin(stored[:, 0], used.to_host(keys)).all()


@pytest.mark.parametrize("word", ["u4", "u8"])
def test_the_lookup_floor_reads_the_slot_that_a_key_hashes_to(device: str, word: str) -> None:
    used = backend.get(device)
    keys = unique_keys(used, 0, 1000, np.dtype(word))
    slots = used.zeros((2**12, 2), word)
    slots[:, 1] = used.xp.arange(2**12, dtype=word)
    values = used.zeros(1000, word)
    kernel = kernel_named("limit_lookup", values.dtype)
    used.run(kernel, 1000, keys=keys, values=values, slots=slots, slot_count=2**12)
    mixed = used.to_host(unique_keys(used, 0, 1000, np.dtype(word)).astype("u8"))
    with np.errstate(over="ignore"):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
    np.testing.assert_array_equal(used.to_host(values), (mixed >> np.uint64(52)).astype(word))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("copied", lambda used, keys: limits.copy_rate(used, 2**12, 1)),
        ("read nothing", lambda used, keys: limits.gather_rate(used, 64, 2**12, 100, 1)),
        ("missed", lambda used, keys: limits.lookup_floor(used, keys, 2**12, 1)),
        ("stored", lambda used, keys: limits.insert_floor(used, keys, 2**12, 1)),
    ],
)
def test_a_launch_that_does_nothing_is_noticed(
    name: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = backend.get("cpu")
    keys = unique_keys(used, 0, 100, np.dtype("u4"))
    monkeypatch.setattr(type(used), "launch", lambda *_: None)
    with pytest.raises(DgpuhashError, match=f"{name}.*void"):
        call(used, keys)
