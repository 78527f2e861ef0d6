"""Documents: figures from receipts, existing names, running examples."""

from __future__ import annotations

import doctest
import io
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from matplotlib.figure import Figure

from dgpuhash.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md"),
    "docs/benchmarks.md",
)


@pytest.fixture
def scripts(monkeypatch):
    """Return the modules of scripts/ that write the figures, by name."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import benchmarks
    import figures
    import losses
    import plots

    return {"figures": figures, "benchmarks": benchmarks, "losses": losses, "plots": plots}


TABLE = {"bench": "tables", "pairs": "32/32", "n": 1 << 24, "load": 0.8, "unit": "G/s"}


def receipt(gpu, passed, failed=0):
    return {
        "date": "2030-01-02 03:04 UTC",
        "commit": "0123456789ab",
        "machine": {"gpu": gpu, "driver": "1.2"},
        "versions": {"cupy-cuda13x": "14.1"},
        "tests": {"tests": {"passed": passed, "failed": failed, "skipped": 0}},
        "figures": [
            {"bench": "limits", "limit": "gather", "rate": 1.0},
            *(
                {**TABLE, "verb": verb, "rate": 2.0 * rate, "ratio": 0.1 * rate}
                for verb, rate in (("insert", 5), ("find", 7), ("absent", 6))
            ),
            {**TABLE, "verb": "memory", "at_rest": 1.0, "while_built": 0.27},
            {**TABLE, "load": 0.9, "verb": "memory", "at_rest": 1.05, "while_built": 0.3},
            *(
                {**TABLE, "verb": "find", "batch": batch, "time": 50.0 + batch, "launch": 17.5}
                | added
                for batch, added in ((10, {}), (1000, {"overhead": 13.0}))
            ),
            *(
                {"bench": "join", "n": 4096, "build": 1024, "library": library, "verb": "inner"}
                | {"time": time, "unit": "ms", "ratio": 0.5}
                for library, time in (("dgpuhash", 4.5), ("cuDF 26.10", 6.8))
            ),
        ],
    }


def test_readme_quotes_the_receipts():
    program = [sys.executable, ROOT / "scripts" / "figures.py", "--check"]
    found = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout


def test_the_page_of_papers_says_what_holds(scripts):
    page = scripts["benchmarks"].page_of_papers
    assert "`make gpu MODE=papers`" in page({})
    row = {"bench": "papers", "figure": "dachash-8", "verb": "build", "n": 7, "length": 0.5}
    rows = [
        {**row, "line": "slab", "rate": 2.0, "unit": "G/s"},
        {**row, "line": "supernode", "rate": 3.0, "unit": "G/s"},
        {"bench": "papers", "figure": "cops", "verb": "find", "n": 7, "rate": 1.0, "unit": "G/s"},
    ]
    text = page({"papers": {**receipt("1 x G", 0), "figures": rows}})
    assert "super nodes reach a higher rate of builds than slabs, ratio 1.18. It holds" in text
    assert "| supernode | 3 |" in text
    assert "cops" not in text.partition("## What holds")[2]


def test_the_page_has_a_table_of_each_benchmark(scripts):
    proved = {"gpu": receipt("1 x G", 5), "multigpu-2": receipt("2 x G", 3)}
    proved["multigpu-4"] = receipt("4 x G", 3, 1)
    text = scripts["benchmarks"].section({"figures": receipt("4 x G", 0), **proved})
    assert "| 32/32 | 16,777,216 | 0.8 | 10 (50%) | 14 (70%) | 12 (60%) |" in text
    assert "1.00 to 1.05 times the bytes of their pairs" in text
    assert "0.27 to 0.30 times those of the batch" in text
    assert "10 keys 60 µs, of which 18 until the call returns; 1,000 keys" in text
    assert "the call returns and 13 more than an empty launch." in text
    assert "| 4,096 | 1,024 | cuDF 26.10 | 6.8 (50%) |" in text
    assert "gather" not in text.partition("|")[2]
    where = "One of 4 x G, driver 1.2, cupy-cuda13x 14.1, 2030-01-02 03:04 UTC, commit 0123456."
    assert where in text
    assert "| 4 x G | 2030-01-02 | 0123456 | 3 | 1 |  |  |  |" in text
    assert "| 1 x G | 2030-01-02 | 0123456 | 5 | 0 |  |  |  |" in text
    remarked = receipt("1 x G", 5, 1) | {"remark": "a wrong test"}
    text = scripts["benchmarks"].section({"figures": remarked, "gpu": remarked})
    assert "| 1 x G | 2030-01-02 | 0123456 | 5 | 1 |  |  | a wrong test |" in text


def test_rounds_of_changes_are_drawn(scripts, tmp_path):
    rows = [
        {"bench": "refresh", "verb": "round", "library": library, "n": 9, "scale": 1, "time": 4.0,
         "fraction": fraction, "share": share, "cpu": 1.0, "steps": {"change": 3.0, "answers": 1.0}}
        for library, shares in (("dgpuhash", (0.2, 3.0)), ("DuckDB 2.0.1", (1.0, 1.0)))
        for fraction, share in zip((0.001, 0.1), shares, strict=True)
    ]  # fmt: skip
    rows.append({"bench": "refresh", "verb": "break-even", "library": "dgpuhash", "n": 9,
                 "scale": 1, "fraction": 0.01, "amount": 0.01})  # fmt: skip
    receipt = {"date": "2026-11-29", "commit": "09729bc5", "machine": {"gpu": "2 cores"},
               "versions": {"duckdb": "2.0.1"}, "remark": "quiet", "figures": rows}  # fmt: skip
    receipts = {"refresh": receipt}
    scripts["plots"].draw_all(receipts, tmp_path)
    assert (tmp_path / "changes.svg").exists()
    assert scripts["plots"].stale(receipts, tmp_path) == []
    page = scripts["benchmarks"].section(receipts)
    assert "## Joins under change on 2 cores" in page
    assert "1.00%" in page


def test_the_page_of_dataframes(scripts, tmp_path):
    page, plots = scripts["benchmarks"].page_of_dataframes, scripts["plots"]
    assert "`make gpu MODE=dataframes`" in page({})
    merge = {"bench": "frames", "verb": "semi-join", "how": "semi", "n": 1 << 20, "build": 1 << 20}
    group = {"bench": "frames", "verb": "var", "how": "aggregate", "n": 1000, "groups": 16}
    rows = [
        {**merge, "library": "cuDF 26.10", "time": 2.0},
        {**merge, "library": "dgpuhash", "time": 4.0, "peer": 2.0, "ratio": 0.25},
        {**group, "library": "cuDF 26.10", "problem": "MemoryError: no room"},
        {**group, "library": "dgpuhash", "time": 1.0, "peer": 3.0, "calls": 70, "c_calls": 9},
    ]
    receipts = {"dataframes": {**receipt("1 x NVIDIA G", 0), "figures": rows}}
    text = page(receipts)
    assert "| semi-join | 1,048,576 | 1,048,576 | 2 | 4 (0.50, 25%) |" in text
    assert "| var | 1,000 | 16 | MemoryError: no room | 1 (3.00) |" in text
    assert "| var | 1,000 | 16 | 70 + 9 |" in text
    assert "(figures/dataframes.svg)" in text
    assert "(figures/dataframes.svg)" not in scripts["benchmarks"].page(receipts)
    plots.draw_all(receipts, tmp_path)
    assert plots.stale(receipts, tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataframes.svg"]


def of_several(seconds=0.0249):
    where = {"mode": "weak", "workers": 4, "n": 1 << 20, "bench": "scaling", "unit": "G/s"}
    where |= {"rows": 1 << 22}
    return [
        {**where, "library": "dgpuhash", "verb": "bulk find", "rate": 60.0, "ratio": 0.5}
        | {"seconds": 0.012, "worker_seconds": 0.009, "efficiency": 0.75},
        *(
            {**where, "library": library, "verb": verb, "rate": 1.0, "seconds": told}
            for library, verb, told in (
                ("dgpuhash", "merge", seconds),
                ("dgpuhash", "build + merge", 0.0527),
                ("Dask 1", "merge", 0.03),
                ("other 2", "merge", 0.0275),
            )
        ),
        {"bench": "exchange", "exchange": "peer", "workers": 4, "leaving": 1 << 28}
        | {"protocol": "ucxx", "rate": 285.0, "unit": "GB/s", "ratio": 0.8},
    ]


def test_figures_of_several_gpus(scripts):
    several = {**receipt("4 x G", 0), "figures": of_several(), "remark": "slow links"}
    fewer = {**several, "machine": {"gpu": "2 x G", "driver": "1.3"}, "remark": "today's"}
    receipts = {"figures": receipt("1 x G", 0), "scaling-2": fewer, "scaling-4": several}
    text = scripts["benchmarks"].section(receipts)
    first, second = text.index("scaling`. (slow links)"), text.index("(today's)")
    assert first < text.index("\n2 x G, driver 1.3") < second
    assert "\n4 x G, driver 1.2, cupy-cuda13x 14.1, 2030-01-02 03:04 UTC, commit 0123456." in text
    assert "| 4 | ucxx | 256 MiB | 285 (80%) |" in text
    assert "| weak | 4 | 1,048,576 | dgpuhash | 24.9 | 52.7 | 12 / 9 |" in text
    assert "| weak | 4 | 1,048,576 | dgpuhash | 0.75 |" in text


def test_peers_stand_beside_ours(scripts):
    rows = [
        {**TABLE, "library": library, "verb": "find", "rate": rate} | more
        for library, rate, more in (
            ("dgpuhash", 30.0, {}),
            ("best peer", 21.0, {"which": "cuCo"}),
            ("best peer", 20.0, {}),
        )
    ]
    peers = {"date": "2030-01-03", "machine": {"gpu": "1 x G"}, "remark": "by hand"}
    receipts = {"figures": receipt("1 x G", 0), "peers": {**peers, "figures": rows}}
    text = scripts["benchmarks"].section(receipts)
    assert "\n1 x G, 2030-01-03: by hand.\n" in text
    where = "32/32 bits, 16,777,216 pairs, load 0.8"
    assert f"| map | {where} | find | G rows/s | 30 | 21 (cuCo), 20 |" in text


def test_merges_on_cpus_have_a_part_of_the_page(scripts):
    cpus = {"date": "2030-01-03", "commit": "0123456789", "machine": {"gpu": "2 cores"}}
    cpus |= {"versions": {"dask": "1"}, "remark": "two workers", "figures": of_several()[1:3]}
    text = scripts["benchmarks"].section({"figures": receipt("1 x G", 0), "cpu": cpus})
    assert "\n2 cores, dask 1, 2030-01-03, commit 0123456: two workers.\n" in text
    assert "| weak | 4 | 1,048,576 | dgpuhash | 24.9 | 52.7 |" in text


def test_a_build_has_paid_when_all_merges_took_less(scripts):
    several = {**receipt("4 x NVIDIA G", 0), "figures": of_several()}
    # 27.8 for the build, and 2.6 less for each merge than the fastest of the others takes.
    text = scripts["figures"].break_even({"scaling-4": several})
    assert text.splitlines()[2:] == [
        "| 4 \N{MULTIPLICATION SIGN} G: 2²² rows a side | 27.8 | 24.9 | 27.5 (other 2) | 11 "
        "| 2030-01-02, 0123456 |"
    ]
    several["figures"] = of_several(0.0275)
    assert "| never |" in scripts["figures"].break_even({"scaling-4": several})


def test_without_receipts_no_figure_is_claimed(scripts):
    figures = scripts["figures"]
    assert not re.search(r"\d", figures.speed({}) + figures.break_even({}))
    assert scripts["benchmarks"].page({}).endswith(figures.NONE)
    assert "|" not in scripts["benchmarks"].page({})


def test_the_tables_stand_between_their_markers(scripts):
    figures = scripts["figures"]
    marked = "<!-- {}: written by scripts/figures.py -->\n"
    old = f"above\n{marked}old\n{figures.END}between\n"
    readme = old.format("speed") + old.format("break-even")
    new = f"above\n{marked}{figures.NONE}{figures.END}between\n"
    blocks = figures.blocks_of_readme({})
    assert figures.rewritten(readme, blocks) == new.format("speed") + new.format("break-even")
    with pytest.raises(SystemExit, match="break-even"):
        figures.rewritten(old.format("speed"), blocks)


def test_cases_in_which_another_library_is_faster(scripts, monkeypatch):
    losses = scripts["losses"]
    sums = {"bench": "frames", "verb": "var", "how": "aggregate", "n": 1000, "unit": "ms"}
    rows = [
        {**sums, "groups": groups, "library": library, "time": time}
        for groups, library, time in (
            *((16, "cuDF 26.10", 0.5), (16, "other 2", 0.4), (16, "dgpuhash", 1.0)),
            *((17, "cuDF 26.10", 0.5), (17, "dgpuhash", 1.0), (18, "cuDF 26.10", 3.0)),
            *((18, "dgpuhash", 1.0), (19, "dgpuhash", 1.0), (16, "dgpuhash standing", 0.1)),
        )
    ]
    receipts = {"dataframes": {**receipt("1 x NVIDIA G", 0), "figures": rows}}
    text = losses.tables(receipts)["dataframes"]
    assert "G, 2030-01-02, commit 0123456. Another library is faster in 2 of 3 cases." in text
    assert "| var, 1,000 rows, 16 groups | 1 ms | other 2 | 400 µs | 2.50 |\n| var" in text
    assert losses.tables({})["frames"] == "Not measured yet.\n"
    monkeypatch.setattr(losses, "MOST_LINES", 1)
    more = "In 1 more cases it is at most 2.00 times as fast."
    assert more in losses.tables(receipts)["dataframes"]


def test_plots_are_stale_when_their_receipts_are_others(scripts, tmp_path):
    figures, plots = scripts["figures"], scripts["plots"]
    receipts = figures.kept()
    # Those of papers are large.
    del receipts["papers"]
    plots.draw_all(receipts, tmp_path)
    assert plots.stale(receipts, tmp_path) == []
    drawn = [drawing.name for drawing in plots.drawable(receipts)]
    names = {f"{name}.svg" for name in drawn}
    names |= set(re.findall(r"docs/figures/(\w+\.png)", figures.README.read_text()))
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "H200, commit fedaa7b" in plots.origin(plots.DRAWN[1], receipts)
    (tmp_path / "merge.png").unlink()
    receipts["figures"]["commit"] = "another"
    stale = {path.name for path in plots.stale(receipts, tmp_path)}
    assert stale == {"merge.png", "tables.svg", "tables.png", "columns.svg"}


def test_builds_of_genomes_stand_beside_those_of_the_paper(scripts):
    plots, receipts = scripts["plots"], scripts["figures"].kept()
    (drawing,) = (each for each in plots.DRAWN if each.name == "construction")
    row = {"bench": "kmer", "library": "dgpuhash", "rule": "kraken2", "n": 2 * 10**9, "seconds": 3}
    figures = {
        "letters": [
            {**row, "verb": verb, "input": "letters"} for verb in ("construction", "count")
        ],
        "scaling-2": [{**row, "verb": "build", "input": "plain", "workers": n} for n in (1, 2)],
        "scaling-4": [{**row, "bench": "exchange"}],
    }
    for name, rows in figures.items():
        receipts[name] = {**receipt("2 x NVIDIA G", 0), "figures": rows}
    used = drawing.used(receipts)
    # One without figures of k-mers is not named in the corner.
    assert list(used) == ["kmer", "letters", "scaling-2"]
    bars = {name: (seconds, hatch) for name, seconds, hatch in plots._built(used)}
    where = "dgpuhash: 2 \N{MULTIPLICATION SIGN} G, rule of Kraken 2,"
    assert bars[f"{where} letters on the device"] == (1.5, "")
    assert bars[f"{where} files"] == (1.5, "///")
    kraken2 = next(seconds for name, (seconds, _) in bars.items() if name.startswith("Kraken 2"))
    assert kraken2 == pytest.approx(259.9 / 2.200551872)
    assert len(bars) == 6
    for name, times in (("Kraken 2", 592), ("MetaCache", 317)):
        (there,) = (each for each in plots._PAPER_BUILDS if each[0].startswith(name))
        assert there[1] == pytest.approx(times * 36 / 120)


def test_a_plot_has_the_same_bytes_each_time(scripts, tmp_path):
    plots = scripts["plots"]
    receipts = scripts["figures"].kept()
    one = {"peers-2": receipts["peers-2"], "scaling-4": receipts["scaling-4"]}
    for folder in ("first", "second"):
        plots.draw_all(one, tmp_path / folder)
    made = sorted((tmp_path / "first").iterdir())
    assert [path.name for path in made] == ["merge.png", "merge.svg"]
    for path in made:
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_a_compact_plot_has_every_mark_of_the_plot(scripts):
    text = io.StringIO()
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.plot(range(30), [each % 7 for each in range(30)], "o-", label="-0.004 & more")
    axes.legend()
    figure.savefig(text, format="svg", metadata={"Description": "drawn from a < b"})
    before, after = text.getvalue(), scripts["plots"].compact(text.getvalue())
    assert after == scripts["plots"].compact(before)
    assert len(after) < len(before) and after.count("\n") < before.count("\n") / 2
    found, wanted = (
        Counter(one.tag for one in ElementTree.fromstring(each).iter()) for each in (after, before)
    )
    groups = "{http://www.w3.org/2000/svg}g"
    assert found.pop(groups) < wanted.pop(groups)
    assert found == wanted
    assert "drawn from a &lt; b" in after
    named = set(re.findall(r'id="(\w+)"', after))
    assert set(re.findall(r"#([a-z]\w+)[)\"]", after)) == named


def test_the_readme_fits_a_reader():
    lines = README.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 140


def test_make_help_names_each_target():
    makefile = (ROOT / "Makefile").read_text()
    found = subprocess.run(
        ["make", "--no-print-directory", "help"],
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    )  # fmt: skip
    targets = re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE)
    assert [line.split()[0] for line in found.stdout.splitlines()] == targets
    assert all(len(line.split()) > 2 for line in found.stdout.splitlines())


def test_commands_in_the_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for target in re.findall(r"`make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
        for command in re.findall(r"\bdgpuhash (build|join|lookup|demo|info|bench|cache)\b", text):
            assert command in main.commands


def test_linked_files_and_sections_exist():
    for document in DOCUMENTS:
        links = re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", (ROOT / document).read_text())
        for target, section in links:
            path = (ROOT / document).parent / target
            assert path.exists(), f"{document} links to {target}"
            if section:
                headings = re.findall(r"^#+ (.+)", path.read_text(), flags=re.MULTILINE)
                assert section in {
                    re.sub(r"[^\w -]", "", each).replace(" ", "-").lower() for each in headings
                }


def test_files_that_the_architecture_shows_as_examples_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = re.findall(r"\[`([\w/.]+)`\]", text)
    assert len(shown) > 4
    roots = (ROOT, ROOT / "kernels", ROOT / "dgpuhash")
    for name in shown:
        assert any((root / name).exists() for root in roots), name


def test_the_short_examples_give_what_they_show():
    text = README.replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    outcome = doctest.DocTestRunner().run(examples)
    assert outcome.failed == 0
    assert outcome.attempted > 0


def test_the_examples_print_what_they_show(tmp_path):
    examples = re.findall(r"```python\n(.+?)```", README, flags=re.DOTALL)
    program = tmp_path / "example.py"
    program.write_text("\n".join(examples))
    found = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
    shown = re.findall(r"^# (.*\n)", program.read_text(), flags=re.MULTILINE)
    assert found.stdout == "".join(shown)
    assert len(shown) > 4


def test_the_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["title"] == project["name"]
    assert {cited[key] for key in ("version", "license")} == {project["version"], "Apache-2.0"}
    assert cited["keywords"] == project["keywords"]
    required = {"cff-version", "message", "title", "authors"}
    assert required <= cited.keys()
    for each in cited["references"]:
        assert {"type", "title", "authors", "year"} <= each.keys()


def test_commits_are_looked_at_by_the_versions_of_the_checks():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["test"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "codespell", "clang-format"]
    for hook in hooks:
        (needed,) = hook["additional_dependencies"]
        assert needed in wanted


def test_files_that_contributors_are_sent_to_exist():
    named = re.findall(r"\b((?:tests|scripts|dgpuhash|kernels|receipts|docs)/[\w./]*)",
                       (ROOT / "CONTRIBUTING.md").read_text())  # fmt: skip
    assert len(named) > 20
    for name in named:
        path = ROOT / name.rstrip(".")
        assert path.exists() or list(ROOT.glob(f"{name}*")), name
