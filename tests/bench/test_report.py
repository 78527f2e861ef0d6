"""Tables and plots of the files of figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dgpuhash import bench
from dgpuhash.bench import report
from dgpuhash.bench.report import plots
from dgpuhash.bench.report.grids import grids
from dgpuhash.errors import ExistsError, FormatError, UnsupportedError

RUNS: dict[str, dict[str, Any]] = {
    "limits": {"footprints": [2**12, 2**14], "n": 1000},
    "tables": {"n": [500, 1000], "loads": [0.5, 0.8], "batches": [10, 100], "dtypes": ["32/32"]},
    "multi": {"n": [500]},
    "group": {"n": [500], "groups": [5, 50], "compare": True},
    "join": {"n": [500], "builds": [50, 500]},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write the figures of every benchmark and return the files."""
    folder = tmp_path_factory.mktemp("figures")
    for name, options in RUNS.items():
        path = folder / f"{name}.jsonl"
        bench.run(name, device="cpu", repeats=1, quiet=True, json_path=path, **options)
    return sorted(folder.iterdir())


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_row_says_what_it_is(files: list[Path]) -> None:
    for path in files:
        for row in rows_of(path):
            assert row["bench"] == path.stem
            assert row["correct"] is True
            assert {"device", "commit", "python", "numpy"} <= row["machine"].keys()
            assert ("limit" in row) != ("verb" in row)
            if "limit" not in row and row["verb"] != "memory":
                assert row["floor"] > 0
                assert row["ratio"] > 0
                assert row["unit"] == ("G/s" if "rate" in row else row["unit"])
                assert ("rate" in row) != ("time" in row)


def test_report(files: list[Path], tmp_path: Path) -> None:
    made = report.write(files, tmp_path / "new")
    text = made[0].read_text()
    assert made[0].name == "report.md"
    assert {path.name for path in made[1:]} == {
        "limits-footprint.png", "tables-load.png", "tables-size.png", "tables-batch.png",
        "multi-multiplicity.png", "group-groups.png", "join-join.png",
    }  # fmt: skip
    for path in made[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"({path.name})" in text
    assert text.index("## What this machine can do") < text.index("## Sets and maps")
    assert "| 32/32 | 1,000 | unique | 0.8 | " in text
    assert "pandas" in text


def test_each_figure_stands_once_in_the_tables(files: list[Path]) -> None:
    for path in files:
        rows = rows_of(path)
        made = grids(path.stem, rows)
        for grid in made:
            assert all(len(line) == len(grid.header) for line in grid.lines)
        memory = [row for row in rows if row.get("verb") == "memory"]
        cells = [
            cell
            for grid in made
            if "memory" not in grid.title
            for line in grid.lines
            for name, cell in zip(grid.header, line, strict=True)
            if cell and name not in ("bits", "rows", "keys", "load", "batch", "library", "groups",
                                     "built rows", "hit rate", "access", "distinct keys")
        ]  # fmt: skip
        assert len(cells) == len(rows) - len(memory)
        assert sum(len(grid.lines) for grid in made if "memory" in grid.title) == len(memory)


def test_each_machine_has_its_own_tables_and_plots(files: list[Path], tmp_path: Path) -> None:
    path = next(path for path in files if path.stem == "limits")
    rows = rows_of(path)
    other = [row | {"rate": 7e5, "machine": {"device": "Other"}} for row in rows]
    second = tmp_path / "other.jsonl"
    second.write_text("".join(json.dumps(row) + "\n" for row in other))
    document, *plots = report.write([path, second], tmp_path)
    assert [each.name for each in plots] == ["limits-footprint.png", "limits-footprint-2.png"]
    ours, theirs = document.read_text().split("device Other.")
    assert ours.count("| CAS 64 bit |") == theirs.count("| CAS 64 bit |") == 1
    assert "700,000" not in ours
    assert "700,000" in theirs
    assert "footprint-2.png" in theirs


def test_each_chunk_size_has_its_own_bars_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, *others = plots.matplotlib_classes()
    titles = []

    class Watched(figure):  # type: ignore[misc, valid-type]
        def savefig(self, path: Path) -> None:
            titles.extend(axes.get_title() for axes in self.axes if axes.get_title())

    labels = []

    class Labelled(Watched):
        def savefig(self, path: Path) -> None:
            labels.extend(line.get_label() for axes in self.axes for line in axes.lines)

    monkeypatch.setattr(plots, "matplotlib_classes", lambda: (Labelled, *others))
    rows = [
        ROWS["scaling"] | {"mode": mode, "workers": count, "n": n, "rows": n * count}
        for mode in ("weak", "strong")
        for chunk in (1000, 4000)
        for count in (1, 2)
        for n in [chunk if mode == "weak" else chunk // count]
    ]
    plots.draw("scaling", rows, tmp_path)
    named = ["dgpuhash build 1,000 rows", "dgpuhash build 4,000 rows"]
    assert [label for label in labels if label != "ideal"] == named * 2
    assert labels.count("ideal") == 4  # one for each line
    monkeypatch.setattr(plots, "matplotlib_classes", lambda: (Watched, *others))
    plots.draw_steps(rows, tmp_path)
    assert titles == [
        f"build, {mode} scaling, from {rows} rows on"
        for mode in ("weak", "strong")
        for rows in ("1,000", "4,000")
    ]


def test_a_document_that_cannot_be_written(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "report.md").mkdir()
    with pytest.raises(ExistsError, match=r"report\.md is a directory; choose another name"):
        report.write(files[:1], tmp_path, plots=False, overwrite=True)


def test_a_report_replaces_nothing_without_a_word(files: list[Path], tmp_path: Path) -> None:
    path = next(path for path in files if path.stem == "limits")
    plot = tmp_path / "limits-footprint.png"
    plot.write_text("mine")
    with pytest.raises(ExistsError, match=r"limits-footprint\.png exists already.*overwrite=True"):
        report.write([path], tmp_path)
    assert plot.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [plot]
    document, again = report.write([path], tmp_path, overwrite=True)
    assert again == plot
    assert plot.stat().st_size > 1000
    with pytest.raises(ExistsError, match=r"report\.md exists already"):
        report.write([path], tmp_path, plots=False)
    assert sorted(tmp_path.iterdir()) == [plot, document]


def test_without_plots(files: list[Path], tmp_path: Path) -> None:
    (document,) = report.write(files, tmp_path, plots=False)
    assert "png" not in document.read_text()


def test_without_matplotlib(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"'\.\[bench\]'.*--no-plots"):
        report.write(files, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[" * 100_000,
        "[1]",
        '{"verb": "find"}',
        '{"bench": "else"}',
        '{"bench": "tables"}',
        '{"bench": "join", "verb": "inner", "time": 1, "machine": 3}',
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(FormatError, match=r"line 1 of .*other\.jsonl.*--json FILE"):
        report.write([path], tmp_path)


ROWS: dict[str, dict[str, Any]] = {
    "limits": {"limit": "random read", "footprint": 4096, "rate": 2.0},
    "tables": {"verb": "find", "pairs": "32/32", "n": 100, "load": 0.5, "rate": 2.0},
    "exchange": {"exchange": "peer", "leaving": 4096, "rate": 2.0, "workers": 2},
    "scaling": {
        "verb": "build", "mode": "weak", "library": "dgpuhash", "workers": 2, "n": 100,
        "rows": 200, "rate": 2.0, "seconds": 0.1, "exchanged_bytes": 10,
        "steps": {"partition": 1.0, "exchange": 1.0, "insert": 1.0, "other": 1.0},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("bench_name", "change", "said"),
    [
        ("limits", {"footprint": "all"}, "footprint is 'all', and should be a whole number"),
        ("tables", {"verb": None}, "verb is None, and should be a text"),
        ("tables", {"rate": ...}, "it has no 'rate'"),
        ("tables", {"rate": float("nan")}, "rate is nan, and should be a number above 0"),
        ("tables", {"verb": "memory"}, "it has no 'distribution'"),
        ("exchange", {"leaving": ...}, "it has no 'leaving'"),
        ("scaling", {"verb": ...}, "it has no 'verb'"),
        ("scaling", {"mode": ...}, "it has no 'mode'"),
        ("scaling", {"workers": 0}, "workers is 0, and should be a whole number from 1 on"),
        ("scaling", {"seconds": 10**400}, "and should be a number above 0"),
        ("scaling", {"steps": [1]}, "should be an object of numbers from 0 on"),
        ("scaling", {"steps": {"insert": None}}, "should be an object of numbers from 0 on"),
    ],
)
def test_figures_that_lack_something_are_refused(
    bench_name: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    right = {"bench": bench_name, **ROWS[bench_name]}
    wrong = {name: value for name, value in (right | change).items() if value is not ...}
    path = tmp_path / "figures.jsonl"
    path.write_text(f"{json.dumps(right)}\n")
    report.write([path], tmp_path / "right")
    path.write_text(f"{json.dumps(right)}\n{json.dumps(wrong)}\n")
    with pytest.raises(FormatError) as refused:
        report.write([path], tmp_path / "wrong")
    assert str(refused.value).startswith(f"line 2 of {path} is not a figure of a benchmark: ")
    assert said in str(refused.value)
    path.write_text(json.dumps({"machine": {}, "figures": [right, wrong]}, indent=1))
    with pytest.raises(FormatError, match=r"figure 2 of .*figures\.jsonl"):
        report.write([path], tmp_path / "wrong")


@pytest.mark.parametrize("name", ["figures.json", "scaling-4.json"])
def test_the_receipts_of_gpu_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each kind of plot is painted in other tests, and these have dozens of panels.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path: path.touch())
    receipt = Path(__file__).resolve().parents[2] / "receipts" / name
    document, *plots = report.write([receipt], tmp_path)
    assert plots
    assert f"gpu {json.loads(receipt.read_text())['machine']['gpu']}," in document.read_text()


@pytest.mark.parametrize("text", ["{\n", '{\n"figures": 3}', '{\n"machine": {}, "figures": [1]}'])
def test_other_documents_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"other\.json is neither"):
        report.write([path], tmp_path)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(FormatError, match=r"other\.parquet is neither"):
        report.write([path], tmp_path)
    with pytest.raises(FormatError, match=r"other\.parquet is neither"):
        bench.run("model", device="cpu", measured=path, quiet=True)


def test_files_without_figures(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(FormatError, match="no figure in"):
        report.write([path], tmp_path)
