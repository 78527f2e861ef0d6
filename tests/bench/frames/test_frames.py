"""Benchmark of the verbs of dataframes, on few rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of

from dgpuhash import backend, bench
from dgpuhash.bench import peers, report
from dgpuhash.bench.frames import run
from dgpuhash.bench.frames.groupings import (
    FEWEST_ROWS,
    GROUPINGS,
    JOINS,
    SCALE,
    Checksum,
    GroupFrames,
    JoinFrames,
    Totals,
    checksum_of_frame,
)
from dgpuhash.bench.frames.on_dask import ENGINES_ON_DASK
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.cli import bench as commands
from dgpuhash.errors import DeviceError, DgpuhashError, SpecError, UnsupportedError

CPU = backend.get("cpu")
HERE = ["pandas", "polars", "DuckDB", "dgpuhash", "dgpuhash standing"]


def libraries(rows: list[dict[str, Any]], verb: str) -> list[str]:
    names = [row["library"] for row in rows if row["verb"] == verb]
    return [name if name.startswith("dgpuhash") else name.split()[0] for name in names]


def test_quick_in_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "QUICK_ROWS", 3000)
    path = tmp_path / "frames.jsonl"
    rows = bench.run("frames", quick=True, json_path=path)
    questions = [name for name in run.QUESTIONS if name != "updates"]
    assert list(dict.fromkeys(row["verb"] for row in rows)) == questions
    for name, join in JOINS.items():
        assert libraries(rows, name) == HERE[: 4 if join.how in ("right", "outer") else 5]
    for name in GROUPINGS:
        assert libraries(rows, name) == (HERE[:4] if name in questions else [])
    for row in rows:
        assert row["n"] == run.QUICK_ROWS
        assert row["correct"]
        assert row["amount"] > 0
        assert row["seconds"] > 0
        assert ("peer" in row) == row["library"].startswith("dgpuhash")
    for name in questions:
        theirs, ours = [], []
        for row in rows:
            if row["verb"] == name:
                (ours if "peer" in row else theirs).append(row)
        assert {row["peer"] for row in ours} == {min(row["amount"] for row in theirs)}
        assert len({row["answer_rows"] for row in ours + theirs}) == 1
    assert "dgpuhash standing / best" in capsys.readouterr().out
    assert json.loads(path.read_text().splitlines()[0])["machine"]["pandas"] == pd.__version__
    (document,) = report.write([path], tmp_path / "report")
    text = document.read_text()
    assert "## Joins and groupbys of dataframes" in text
    assert "CPU seconds of all processes, 3,000 rows" in text
    cpu, wall = grids("frames", rows)
    assert len(cpu.lines) == len(wall.lines) == len(questions)
    assert all(len(line) == len(grid.header) for grid in (cpu, wall) for line in grid.lines)


@pytest.mark.parametrize("rows", [FEWEST_ROWS, 12_345])
def test_shapes(rows: int) -> None:
    frames = JoinFrames(rows)
    assert list(frames.left) == ["id1", "id2", "id3", "id4", "id5", "id6", "v1"]
    assert {name: list(right) for name, right in frames.rights.items()} == {
        "small": ["id1", "id4", "v2"],
        "medium": ["id1", "id2", "id4", "id5", "v2"],
        "big": ["id1", "id2", "id3", "id4", "id5", "id6", "v2"],
    }
    keys = {"small": "id1", "medium": "id2", "big": "id3"}
    assert [len(frames.rights[name]) for name in keys] == [10, max(10, rows // 1000), rows]
    assert len(frames.left) == rows
    for name, key in keys.items():
        stored, asked = frames.rights[name][key], frames.left[key]
        assert stored.is_unique
        assert asked.nunique() == len(stored)
        # Nine tenths of either side's keys are on the other, and the others nowhere.
        shared = len(set(stored) & set(asked))
        assert shared == len(stored) * 9 // 10
        assert max(stored.max(), asked.max()) == 2 * len(stored) - shared
    for side in (frames.left, *frames.rights.values()):
        for number, text in (("id1", "id4"), ("id2", "id5"), ("id3", "id6")):
            if number in side:
                assert side[number].dtype == np.int64
                assert side[text].dtype == pd.StringDtype(na_value=np.nan)
                assert (side[text] == "id" + side[number].astype("str")).all()
        values = side.iloc[:, -1] * SCALE
        assert (values == values.round()).all()
        assert values.between(0, 100 * SCALE).all()
    pd.testing.assert_frame_equal(frames.left, JoinFrames(rows).left)


def test_narrow_joins_have_a_key_and_a_value() -> None:
    left, right = JoinFrames(2000).sides(JOINS["j5n"])
    assert (list(left), list(right)) == (["id3", "v1"], ["id3", "v2"])


def test_shape_of_the_frame_that_is_grouped() -> None:
    frame = GroupFrames(20_000).frame
    assert [frame[name].nunique() for name in frame][:6] == [100, 100, 200, 100, 100, 200]
    assert frame["id1"].str.fullmatch(r"id\d{3}").all()
    assert frame["id3"].str.fullmatch(r"id\d{10}").all()
    assert [(frame[name].min(), frame[name].max()) for name in ("v1", "v2")] == [(1, 5), (1, 15)]
    pd.testing.assert_frame_equal(frame, GroupFrames(20_000).frame)
    with pytest.raises(SpecError, match="--rows 99; give at least 100"):
        GroupFrames(99)


@pytest.mark.parametrize("spoiled", ["a row", "a value", "two values", "a key"])
def test_wrong_groups_are_caught(monkeypatch: pytest.MonkeyPatch, spoiled: str) -> None:
    class Wrong(peers.Pandas):
        def group(self, *given: Any) -> Any:
            made = super().group(*given)()
            if spoiled == "a row":
                made = made.iloc[1:]
            elif spoiled == "a value":
                made.loc[3, "a0"] += 1
            elif spoiled == "two values":
                made.loc[3, "a0"] += 1
                made.loc[4, "a0"] -= 1
            else:
                made.loc[3, "id4"] += 1
            return lambda: made

    monkeypatch.setattr(run, "ENGINES", {"wrong": Wrong})
    with pytest.raises(DgpuhashError, match=r"should be Totals.* question q4, .*figures are void"):
        list(run.run(CPU, rows=1000, questions=["q4"]))
    assert Totals.of([np.array([1])], [np.array([2])]) != 2


def test_checksums_of_parts_add_up() -> None:
    frames = JoinFrames(3000)
    join = JOINS["j5outer"]
    left, right = frames.sides(join)
    made = left.merge(right, how="outer", on="id3").sample(frac=1, random_state=1)
    parts = [checksum_of_frame(made.iloc[first : first + 700]) for first in range(0, 4000, 700)]
    assert sum(parts, Checksum(0, 0.0, 0.0, 0)) == checksum_of_frame(made) == frames.expected(join)


def turned(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(v2=np.roll(frame["v2"].to_numpy(), 1))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.iloc[1:],
        lambda frame: pd.concat([frame, frame.iloc[:1]]),
        lambda frame: frame.assign(v1=frame["v1"].where(frame.index != 3)),
        lambda frame: frame.assign(v2=frame["v2"] + 1),
        turned,
    ],
)
@pytest.mark.parametrize("question", ["j1", "j3", "j5outer"])
def test_a_wrong_library_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pd.DataFrame], pd.DataFrame],
    question: str,
) -> None:
    class Wrong(peers.Pandas):
        def __init__(self) -> None:
            self.name = "spoiled"

        def join(self, *given: Any) -> Any:
            work = super().join(*given)
            return lambda: spoil(work())

    monkeypatch.setattr(run, "ENGINES", {"pandas": peers.Pandas, "wrong": Wrong})
    said = rf"should be Checksum.* question {question}, .*library spoiled.*figures are void"
    with pytest.raises(DgpuhashError, match=said):
        list(run.run(CPU, rows=1000, questions=[question]))


def test_turns_get_new_frames_and_the_best_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    kept: list[Any] = []
    clocks = {"first": iter([0.0, 5.0, 10.0, 13.0, 20.0, 24.0]), "second": iter([0.0, 2.0] * 3)}

    class First(peers.Pandas):
        def __init__(self) -> None:
            self.name = "first"

        def join(self, join: Any, left: Any, right: Any) -> Any:
            log.append(self.name)
            kept.extend((left, right))
            return super().join(join, left, right)

        def cpu_seconds(self) -> float:
            return next(clocks[self.name])

    class Second(First):
        ours = True

        def __init__(self) -> None:
            self.name = "second"

    monkeypatch.setattr(run, "ENGINES", {"first": First, "second": Second})
    first, second = run.run(CPU, rows=1000, questions=["j5n"], repeats=3)
    # Once before the turns, to load what the library needs.
    assert log == ["first", "second"] * (1 + 3)
    assert len({id(frame) for frame in kept}) == 2 * len(log)
    assert (first["amount"], second["amount"]) == (3.0, 2.0)
    assert second["peer"] == 3.0
    assert "peer" not in first


def test_what_a_library_cannot_do_is_left_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unable(peers.Pandas):
        def join(self, join: Any, left: Any, right: Any) -> Any:
            if join.name == "j1":
                raise UnsupportedError("not yet")
            return super().join(join, left, right)

        def __init__(self) -> None:
            self.name = "unable"

    monkeypatch.setattr(run, "ENGINES", {"pandas": peers.Pandas, "unable": Unable})
    rows = list(run.run(CPU, rows=1000, questions=["j1", "j5n"]))
    assert [row["verb"] for row in rows] == ["j1", "j5n", "j5n"]
    cpu, _ = grids("frames", rows)
    assert cpu.header[2:] == (rows[0]["library"], "unable")
    assert cpu.lines[0][3] == ""
    assert cpu.lines[1][3]


def test_chosen_libraries_and_those_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(run.run(CPU, rows=1000, questions=["j1"], engines=["standing", "pandas"]))
    assert libraries(rows, "j1") == ["pandas", "dgpuhash standing"]
    for options, said in (
        ({"engines": ["sqlite"]}, "engine 'sqlite'; use pandas, .*dgpuhash-dask"),
        ({"engines": ["dask"]}, "--engine dask needs a cluster; give --workers 2"),
        ({"questions": ["q0"]}, "question 'q0'; use j1, j2, .*, q1, q2"),
        ({"rows": 10}, "--rows 10; give at least 100"),
    ):
        with pytest.raises(SpecError, match=said):
            bench.run("frames", quiet=True, **options)  # type: ignore[arg-type]
    gpu: Any = type("Gpu", (), {"name": "cuda"})()
    with pytest.raises(DeviceError, match="measures the CPU"):
        list(run.run(gpu))
    for module in (run, peers):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name == "polars" else True)
    rows = list(run.run(CPU, rows=1000, questions=["j1"]))
    assert libraries(rows, "j1") == ["pandas", "DuckDB", "dgpuhash", "dgpuhash standing"]
    with pytest.raises(SpecError, match=r"--engine polars needs polars, .*pip install polars"):
        list(run.run(CPU, engines=["polars"]))


def test_the_command_knows_all_of_them() -> None:
    choices = {
        option.name: list(option.type.choices)
        for option in commands.bench.commands["frames"].params
        if isinstance(option.type, click.Choice)
    }
    assert choices["questions"] == list(run.QUESTIONS)
    assert choices["engines"] == [*run.ENGINES, *ENGINES_ON_DASK]


@pytest.mark.cluster
def test_on_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["pandas", "dgpuhash", "dask", "dgpuhash-dask"]
    asked = ["j5", "j5outer", "j5semi", "j5anti", "q3", "q9", "counts", "transform"]
    with cluster_of(2, processes=False) as client:
        # One for both.
        monkeypatch.setattr(
            run, "start", lambda used, _: nullcontext(BenchWorkers(client, used.name))
        )
        rows = list(run.run(CPU, rows=3000, questions=asked, engines=chosen, workers=2, repeats=1))
    for name in asked:
        theirs = ["pandas", "dgpuhash", "Dask", "dgpuhash on Dask"]
        assert libraries(rows, name) == [
            each for each in theirs if name not in ("j5anti", "q9") or each != "Dask"
        ]
    assert [row["library"] for row in rows if "workers" in row and "peer" in row] == [
        "dgpuhash on Dask"
    ] * 6
    cpu, _ = grids("frames", rows)
    assert cpu.header[-2:] == ("dgpuhash / best", "dgpuhash on Dask / best")
    assert cpu.lines[-1][-3:-1] != ("", "")
