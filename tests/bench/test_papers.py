"""Figures of the papers: drawn small, with right answers, and what is said of them."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend, bench
from dgpuhash.bench import report, timing
from dgpuhash.bench.papers.case import FigureRun, SortedArray
from dgpuhash.bench.papers.drawn import figure as figure_module
from dgpuhash.bench.papers.drawn import work as work_module
from dgpuhash.bench.papers.drawn.claims import CLAIMS, sentences
from dgpuhash.bench.papers.drawn.figure import Figure, Line, mark_of
from dgpuhash.bench.papers.drawn.table import DRAWN, chain_for, slab_use
from dgpuhash.bench.papers.drawn.work import Batch
from dgpuhash.bench.report import of_papers
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.of_papers import AXES
from dgpuhash.errors import DgpuhashError, SpecError
from dgpuhash.tables.methods.cuckoo import Cuckoo
from dgpuhash.tables.stores.method import methods

Row = dict[str, Any]
SMALL = {"divisor": 64, "repeats": 1, "quiet": True}


def measured(*only: str, device: str = "cpu", **options: Any) -> list[Row]:
    return bench.run("papers", device=device, only=only, **{**SMALL, **options})


@pytest.mark.parametrize(
    "name", ["thesis-3.7", "thesis-6.13", "thesis-6.14", "slabhash-6", "dachash-7"]
)
def test_a_figure_of_each_kind(name: str, device: str) -> None:
    figure, rows = DRAWN[name], measured(name, device=device)
    assert len(rows) >= len(figure.at) * len(figure.lines)
    assert {row["line"] for row in rows} == {line.name for line in figure.lines}
    assert {row["verb"] for row in rows} == set(figure.verbs)
    assert all(row["correct"] and row["rate"] > 0 and row["floor"] > 0 for row in rows)


@pytest.mark.methods
@pytest.mark.parametrize("name", [name for name, figure in DRAWN.items() if not figure.absent])
def test_every_figure(name: str, device: str) -> None:
    figure, rows = DRAWN[name], measured(name, device=device)
    lines = {line.name for line in figure.lines if line.method not in figure.missing()}
    assert {row["line"] for row in rows} == lines


def test_probes_are_those_of_the_thesis(device: str) -> None:
    rows = measured("thesis-table-3.2", device=device, divisor=1)
    for row in rows:
        # Linear probing of a full table varies much from one function to the next.
        wide = row["line"] == "linear" and row["space"] == 1.05
        assert row["amount"] == pytest.approx(row["peer"], rel=0.5 if wide else 0.1), row
        assert row["p50"] <= row["p80"] <= row["p90"] <= row["p99"] <= row["p100"]
    tables = grids("papers", [{"bench": "papers", **row} for row in rows])
    (shares,) = [each for each in tables if each.title == "Table 3.2: find, probes"]
    assert shares.header == ("line", "space", "mean", "50 %", "80 %", "90 %", "99 %", "100 %")


def test_utilisation_is_that_of_slabhash() -> None:
    rows = measured("slabhash-4c", divisor=1)
    for row in rows:
        assert row["amount"] == pytest.approx(slab_use(row["chain"]), rel=0.05)
    assert [row["peer"] for row in rows if "peer" in row] == [0.19, 0.6]
    assert chain_for(0.95) is None


def test_a_run_goes_on(tmp_path: Path) -> None:
    names = ("thesis-3.2", "slabhash-4c")
    first = measured(*names, folder=tmp_path)
    kept = json.loads((tmp_path / "thesis-3.2.json").read_text())
    rows = [row["rate"] for point in kept["points"].values() for row in point]
    assert rows == [row["rate"] for row in first if "rate" in row]
    again = measured(*names, folder=tmp_path)
    assert [row.get("rate") for row in again] == [row.get("rate") for row in first]
    (tmp_path / "thesis-3.2.json").write_text("{")
    assert len(measured(*names, folder=tmp_path)) == len(first)


@pytest.mark.parametrize(
    ("work", "verb"),
    [
        (work_module.pairs, "build"), (work_module.compact, "build"), (work_module.lists, "build"),
        (work_module.growing, "insert"),
    ],
)  # fmt: skip
def test_builds_of_cuckoo_are_the_median_of_five_seeds(
    work: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (Line("cuckoo", "cuckoo", {"space": 1.05}), Line("auto", "auto"))
    axis = "rows_a_batch" if verb == "insert" else "multiplicity"
    drawn = Figure("seeds", "P", "1", "t", axis, (1.0,), lines, work, (verb,), n=2**10 * 128)
    times, seeds, real = iter([9, 5, 9, 1, 9, 2, 9, 4, 9, 3]), set(), Cuckoo._drawn

    def unlucky(self: Any) -> Any:
        """Send all keys to one bucket by the first functions of two seeds."""
        made, seed = real(self), self.plan.seed
        seeds.add(seed)
        if seed in (2, 4) and self.generation == 0:
            made |= {"a": (0,) * len(made["a"]), "printed": True}
        return made

    monkeypatch.setattr(Cuckoo, "_drawn", unlucky)
    monkeypatch.setattr(timing, "_on_cpu", lambda backend, work, calls: (next(times, 1.0), work()))
    rows = list(drawn.measure(FigureRun(backend.get("cpu"), 1)))
    cuckoo, others = ([row for row in rows if row["line"] == name] for name in ("cuckoo", "auto"))
    (row,) = (row for row in cuckoo if row["verb"] == verb)
    assert {1, 2, 3, 4, 5} <= seeds
    assert row["attempts"] == [0, 1, 0, 1, 0]
    assert row["rate"] == pytest.approx(row["n"] / 3e9, rel=1e-3)
    assert not any("attempts" in row for row in others)
    monkeypatch.setitem(of_papers.DRAWN, "seeds", drawn)
    grid = of_papers.grids_of_papers(rows)[0]
    assert "builds of cuckoo the median of five seeds" in grid.title
    assert grid.lines[0][1].endswith("attempts 0-1")
    assert "attempts" not in grid.lines[1][1]


def test_a_figure_that_takes_too_long_is_cut_short_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured("thesis-3.2", folder=tmp_path, seconds=1e-9) == []
    assert "cut short" in caplog.text
    clock = itertools.count()
    monkeypatch.setattr(figure_module.time, "monotonic", lambda: next(clock))
    whole, sizes = len(measured("thesis-3.2")), []
    # Each look at the clock takes a second, so that a run has ten points.
    while not sizes or sizes[-1] < whole:
        sizes.append(len(measured("thesis-3.2", folder=tmp_path, seconds=10)))
    assert sizes == sorted(set(sizes)) and len(sizes) > 1


def test_a_papers_name_means_all_of_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rows = measured("warpcore", seconds=1e-9)
    assert rows == []
    assert "warpcore-6: it takes several GPUs" in caplog.text
    with pytest.raises(SpecError, match=r"no figure is called 'warp'"):
        measured("warp")


def test_a_method_that_does_not_exist_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = {name: each for name, each in methods().items() if name != "quadratic"}
    monkeypatch.setattr(figure_module, "methods", lambda: known)
    rows = measured("thesis-3.2")
    assert {row["line"] for row in rows} == {"linear", "double"}
    assert "thesis-3.2: lines of quadratic" in caplog.text


def test_a_wrong_answer_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    find = SortedArray.find
    monkeypatch.setattr(SortedArray, "find", lambda self, keys: (find(self, keys)[0] + 1, True))
    with pytest.raises(DgpuhashError, match="was wrong"):
        measured("thesis-3.7")


def test_the_sorted_array(device: str) -> None:
    each = backend.get(device)
    keys = each.from_host(np.array([9, 4, 9, 2**32 - 1, 0], "u4"))
    pairs = SortedArray(each)
    pairs.group(keys, keys)
    asked = each.from_host(np.array([9, 5, 0, 2**32 - 1], "u4"))
    assert each.to_host(pairs.count(asked)).tolist() == [2, 0, 1, 1]
    ids = SortedArray.of_distinct(each, keys)
    assert each.to_host(ids.keys_of(ids.ids_of(keys)[0])).tolist() == each.to_host(keys).tolist()
    ids, found = (each.to_host(it) for it in ids.ids_of(asked))
    assert (ids[found].tolist(), found.tolist()) == ([2, 0, 3], [True, False, True, True])
    distinct = each.from_host(np.array([9, 4, 0], "u4"))
    pairs.insert(distinct, distinct)
    values, found = (each.to_host(it) for it in pairs.find(asked))
    assert (values[found].tolist(), found.tolist()) == ([9, 0], [True, False, True, False])


def test_figures_are_whole() -> None:
    for name, figure in DRAWN.items():
        assert figure.absent or (figure.at and figure.lines and figure.axis in AXES), name
        assert len({line.name for line in figure.lines}) == len(figure.lines), name
    for claim in CLAIMS:
        lines = {line.name for line in DRAWN[claim.figure].lines}
        for wanted in (claim.over, claim.under):
            assert wanted["line"] in lines, claim
            assert wanted["verb"] in DRAWN[claim.figure].verbs, claim


def test_sentences() -> None:
    def rows(first: float, second: float) -> list[Row]:
        said = {"figure": "thesis-abstract", "verb": "find"}
        rates = {("quadratic", 2): first, ("quadratic", 1.05): second}
        return [{**said, "line": line, "space": space, "rate": rate}
                for (line, space), rate in rates.items()]  # fmt: skip

    told = "Alcantara 2011, abstract: quadratic probing finds faster with 2 N than with 1.05 N, "
    assert [each for _, each in sentences(rows(4.0, 2.0))] == [
        f"{told}ratio 3.48. It holds here: 2."
    ]
    assert [each for _, each in sentences(rows(1.0, 2.0))] == [
        f"{told}ratio 3.48. It does not hold here: 0.5."
    ]
    assert not list(sentences(rows(1.0, 2.0)[:1]))


def test_a_report_shows_figures_and_marks(tmp_path: Path) -> None:
    mark = mark_of("thesis-abstract", "cuckoo", "find", 2.0)
    rows = [
        {"bench": "papers", "figure": "thesis-abstract", "line": "cuckoo", "verb": verb, "n": 7,
         "space": space, "rate": space, "unit": "G/s", **mark}
        for verb in ("build", "find") for space in (1.05, 2)
    ]  # fmt: skip
    path = tmp_path / "figures.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    document, *plots = report.write([path], tmp_path / "made")
    assert [plot.name for plot in plots] == ["papers-thesis-abstract.png"]
    assert "| cuckoo | 1.05, paper 0.67 | 2, paper 0.67 |" in document.read_text()


def test_queries_are_shuffled_or_sorted() -> None:
    case = FigureRun(backend.get("cpu"), 1)
    keys = np.concatenate([case.keys(1, 500), case.keys(2**31, 500)])
    shuffled, ordered = Batch(case, keys, 500), Batch(case, keys, 500, ordered=True)
    first = shuffled.keys
    shuffled.shuffle()
    for each in (first, shuffled.keys):
        rising = float((each[1:] > each[:-1]).mean())
        assert 0.4 < rising < 0.6
        assert sorted(each) == sorted(keys)
    assert (first != shuffled.keys).any()
    assert (ordered.keys[1:] > ordered.keys[:-1]).all()
    assert (shuffled.expected == np.isin(shuffled.keys, keys[:500])).all()
