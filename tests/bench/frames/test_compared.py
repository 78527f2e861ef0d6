"""Cases of merges and groupbys beside the device's libraries, on few rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import peers, report
from dgpuhash.bench.frames import run
from dgpuhash.bench.frames.compared import CASES, Case, compared_engines, measure
from dgpuhash.bench.report.grids import grids
from dgpuhash.errors import DgpuhashError, FormatError, SpecError

CPU = backend.get("cpu")
ROWS = 300
BARE = "join_indices + gathers"
HERE = ["pandas", "polars", "dgpuhash", "dgpuhash standing", BARE]
# Of cases that differ in their sizes alone, one: they have the same few rows here.
KINDS = list(
    {replace(case, name="", n=0, build=case.build > 0, groups=0): case for case in CASES}.values()
)


def libraries(rows: list[dict[str, Any]]) -> list[str]:
    names = [row["library"] for row in rows]
    return [name.split()[0] if name[-1].isdigit() else name for name in names]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the figures of each kind of case on few rows, and return the file."""
    made = tmp_path_factory.mktemp("cases") / "frames.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CASES", KINDS)
        bench.run("frames", compare=True, rows=ROWS, repeats=1, quiet=True, json_path=made)
    return made


@pytest.fixture
def rows(path: Path) -> list[dict[str, Any]]:
    return report.reading.read([path])


@pytest.mark.gpu
@pytest.mark.cudf
def test_all_libraries_give_one_answer_on_a_gpu() -> None:
    device = backend.get("cuda")
    for case in CASES:
        made = list(measure(device, case.scaled(ROWS), compared_engines(device), 1))
        assert [row.get("problem") for row in made] == [None] * len(made)
        assert len({row["answer_rows"] for row in made}) == 1
        assert made[0]["answer_rows"] > 0


def test_each_case_has_its_libraries(rows: list[dict[str, Any]]) -> None:
    place = 0
    for case in KINDS:
        wanted = HERE if case.build else HERE[:3]
        wanted = [name for name in wanted if case.how != "outer" or name != "dgpuhash standing"]
        own = rows[place : place + len(wanted)]
        place += len(wanted)
        assert libraries(own) == wanted
        assert len({row["answer_rows"] for row in own}) == 1
        for row in own:
            assert (row["verb"], row["how"], row["correct"]) == (case.name, case.how, True)
            assert row["n"] <= ROWS
            assert row["calls"] > 0 < row["c_calls"]
            ours = row["library"].startswith("dgpuhash")
            assert ("peer" in row) == ours
            assert ("floor" in row) == (ours and case.build > 0)
        best = min(row["time"] for row in own if "peer" not in row and row["library"] != BARE)
        assert {row["peer"] for row in own if "peer" in row} == {best}
    assert place == len(rows)


def test_tables_and_report(path: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    merges, groupbys, calls = grids("frames", rows)
    assert merges.header[:3] == ("case", "rows", "built rows")
    assert groupbys.header[:3] == ("case", "rows", "groups")
    assert len(merges.lines) + len(groupbys.lines) == len(calls.lines) == len(KINDS)
    assert libraries([{"library": name} for name in merges.header[3:]]) == HERE
    row = {"verb": "m", "n": 9, "build": 9, "library": "x", "time": 2.0, "peer": 3.0, "ratio": 0.5}
    assert grids("frames", [row])[0].lines == [("m", "9", "9", "2 (1.50, 50%)")]
    document, *_ = report.write([path], tmp_path, plots=False)
    assert "Groupbys: milliseconds of a call" in document.read_text()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.iloc[1:],
        lambda frame: pd.concat([frame.iloc[1:], frame.iloc[1:2]]),
        lambda frame: frame.assign(v1=frame["v1"].to_numpy()[::-1]),
        lambda frame: frame.assign(k0=frame["k0"] + 1),
        lambda frame: frame.assign(v2=frame["v2"] + (frame["v2"] == frame["v2"].max())),
    ],
)
def test_a_wrong_library_is_noticed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    class Wrong(peers.Pandas):
        def __init__(self) -> None:
            self.name = "spoiled"

        def join(self, *given: Any) -> Any:
            work = super().join(*given)
            return lambda: spoil(work())

    used = (peers.Pandas, Wrong, peers.Ours)
    case = next(case for case in CASES if case.name == "merge of 100 rows")
    rows = list(measure(CPU, case, [kind() for kind in used], 1))
    assert [row["library"] for row in rows if row["correct"]] == [pd_name(), "dgpuhash", BARE]
    assert "time" not in rows[1]
    assert rows[1]["problem"].startswith(f"DgpuhashError: the answer is not that of {pd_name()}, ")
    monkeypatch.setitem(peers.COMPARED, "cpu", used)
    with pytest.raises(DgpuhashError, match=r"spoiled failed at 'merge of 100 rows'.*1 of 4"):
        bench.run("frames", compare=True, only=["merge of 100 rows"], repeats=1, quiet=True)


def pd_name() -> str:
    return f"pandas {pd.__version__}"


def test_wrong_groups_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(peers.Ours):
        def group(self, *given: Any) -> Any:
            made = super().group(*given)()
            return lambda: made + made * (made == made.max())

    for case in KINDS:
        if case.how == "aggregate" and case.scaled(ROWS).groups > 3:
            *_, row = measure(CPU, case.scaled(ROWS), [peers.Pandas(), Wrong()], 1)
            assert "the answer is not that of pandas" in row["problem"]


def test_a_failure_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(peers.Pandas):
        def __init__(self) -> None:
            self.name = "broken"

        def join(self, *given: Any) -> Any:
            raise MemoryError("no room\nfor it")

    monkeypatch.setitem(peers.COMPARED, "cpu", (Failing, peers.Ours))
    path = tmp_path / "frames.jsonl"
    with pytest.raises(DgpuhashError, match=r"broken failed at 'inner merge'.*others are in the"):
        bench.run(
            "frames", compare=True, rows=50, only=["inner merge", "var"], repeats=1, json_path=path
        )
    assert "MemoryError: no room" in capsys.readouterr().out
    rows = report.reading.read([path])
    assert [row["verb"] for row in rows if "problem" in row] == ["inner merge"] * 3
    assert [row["verb"] for row in rows if "time" in row] == ["inner merge"] * 6 + ["var"] * 2
    assert all("peer" not in row for row in rows if row["verb"] == "inner merge")
    path.write_text('{"bench": "frames", "verb": "v", "n": 1, "library": "x", "problem": 3}\n')
    with pytest.raises(FormatError, match="problem is 3, and should be a text"):
        report.reading.read([path])


def test_data_that_cannot_be_made_is_said_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: Any) -> Any:
        raise MemoryError("of the device")

    monkeypatch.setattr(Case, "frames", no_room)
    rows = list(measure(CPU, CASES[0], compared_engines(CPU), 1))
    assert libraries(rows) == HERE
    assert {row["problem"] for row in rows} == {"MemoryError: of the device"}


def test_keys() -> None:
    case = Case("", "inner", 60, 40, ("text", "int32"), rows_of_key=4)
    left, right = case.frames(CPU)
    assert list(left) == ["k0", "k1", "v1"]
    assert (left["k0"].str.len() == 20).all()
    assert left["k1"].dtype == "int32"
    assert set(right.groupby(["k0", "k1"]).size()) == {4}
    assert len(left.merge(right, on=["k0", "k1"])) == 4 * 60
    dense = Case("", "semi", 1000, 100, ("dense",), hit_rate=0.5)
    left, right = dense.frames(CPU)
    assert sorted(right["k0"]) == list(range(100))
    assert 400 < left["k0"].isin(right["k0"]).sum() < 600
    zipf = Case("", "inner", 1000, 100, zipf=True).frames(CPU)[0]
    assert zipf["k0"].value_counts().iloc[0] > 50


def test_cudf_is_asked_by_its_own_words() -> None:
    class Frame:
        def merge(self, right: Any, **options: Any) -> Any:
            return options

    cudf = object.__new__(peers.CuDF)
    for how, word in (("semi", "leftsemi"), ("anti", "leftanti"), ("outer", "outer")):
        join = peers.Join("", how, "", "k0")
        frame: Any = Frame()
        assert cudf.join(join, frame, frame)() == {"how": word, "on": "k0"}


def test_refusals() -> None:
    for options, said in (
        ({"compare": True, "only": ["sort"]}, "--only 'sort'; use a part of merge of 100 rows"),
        ({"compare": True, "questions": ["j1"]}, "choose among them by --only TEXT"),
        ({"only": ["text"]}, "give --compare, too"),
    ):
        with pytest.raises(SpecError, match=said):
            bench.run("frames", quiet=True, **options)
