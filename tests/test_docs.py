"""Pages of docs/: existing names, and examples with the shown output."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import click
import pytest
from distributed import Client

from dgpuhash.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "generated" not in page.parts)
# Its examples are what those of all other pages may go on from.
GUIDE = DOCS / "guide" / "index.md"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def shown_by(page):
    return str(page.relative_to(DOCS))


def examples_in(page):
    """Return the examples of the page's code blocks as one session."""
    blocks = re.findall(r"^```pycon\n(.+?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return "\n".join(blocks)


def run(text, name, names):
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    said = []
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    assert outcome.failed == 0, "".join(said)
    return test.globs


@pytest.fixture(scope="module")
def session():
    """Yield the names that the user guide's examples start from."""
    names = run(examples_in(GUIDE), shown_by(GUIDE), {})
    assert isinstance(names["client"], Client)
    yield names
    names["client"].close()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples_in(page) and page != GUIDE], ids=shown_by
)
def test_examples_give_what_they_show(page, session):
    names = run(examples_in(page), shown_by(page), session)
    if names["client"] is not session["client"]:
        names["client"].close()


def cells_of(page):
    """Return the program of a notebook's cells."""
    cells = re.findall(
        r"^```{code-cell}[^\n]*\n(?::[^\n]*\n)?(.+?)^```",
        (DOCS / page).read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert len(cells) > 4
    return "\n".join(cells)


def test_getting_started_runs():
    # `make docs` runs them as they are; here workers are threads, which start at once.
    program = cells_of("getting-started.md").replace(
        "LocalCluster(", "LocalCluster(processes=False, "
    )
    exec(compile(program, "getting-started.md", "exec"), {})


def test_a_metagenome_runs(monkeypatch, capsys):
    import matplotlib

    monkeypatch.chdir(ROOT)
    matplotlib.use("agg")
    names = {}
    exec(compile(cells_of("guide/metagenome.md"), "metagenome.md", "exec"), names)
    shown = capsys.readouterr().out
    assert shown.startswith(" 45.32\t1993\t1993\tU\t0\tunclassified\n 54.68\t2405\t0\tR\t1\troot\n")
    assert names["species"]["reads"].sum() == 4398
    assert len(names["axes"].patches) == len(names["species"])


def test_commands_in_pages_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"`make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"{page}: {target}"
        shells = "".join(re.findall(r"^```sh\n(.+?)^```", text, flags=re.DOTALL | re.MULTILINE))
        for line in re.findall(r"^dgpuhash (.+)", shells, flags=re.MULTILINE):
            command, *arguments = shlex.split(line)
            found = main.commands[command]
            if isinstance(found, click.Group):
                found = found.commands[arguments.pop(0)]
            known = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
            assert {one for one in arguments if one.startswith("-")} <= known, f"{page}: {line}"
        for command in re.findall(r"`dgpuhash (\w+)", text):
            assert command in main.commands, f"{page}: {command}"


@pytest.mark.parametrize("page", sorted((DOCS / "how-it-works").glob("*.md")), ids=shown_by)
def test_files_that_explain_exist(page):
    package = ROOT / "dgpuhash"
    for name in re.findall(r"`([\w/-]+\.(?:py|cuh|inc))`", page.read_text()):
        roots = [ROOT, package, package / "distributed"]
        assert any((root / name).exists() for root in roots), name


def test_the_layout_of_kmers_has_a_line_for_each_file():
    page = (DOCS / "how-it-works" / "kmer-layout.md").read_text()
    shown = re.findall(r"^\| `([\w/]+\.py)` \|", page, flags=re.MULTILINE)
    package = ROOT / "dgpuhash"
    files = (file for file in (package / "kmer").rglob("*.py") if file.name != "__init__.py")
    assert sorted(shown) == sorted(str(file.relative_to(package)) for file in files)


def test_the_tutorial_of_kernels_shows_the_example():
    # tests/examples compile the program's kernel and run it.
    program = (ROOT / "examples" / "own_kernel.py").read_text()
    page = (DOCS / "guide" / "own-kernel.md").read_text()
    blocks = re.findall(r"^```(?:cuda|python)\n(.+?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    assert all(block.rstrip("\n") in program for block in blocks)


LAYERED = [DOCS / "tables.md", DOCS / "cli.md", *sorted((DOCS / "guide").glob("*.md"))]


@pytest.mark.parametrize("page", [page for page in LAYERED if page != GUIDE], ids=shown_by)
def test_a_page_says_which_layer_it_belongs_to(page):
    above = page.read_text().partition("\n## ")[0]
    assert re.search(r"^\*\*Layer\*\*: .+\.$", above, flags=re.MULTILINE)


def test_the_top_bar_has_five_parts():
    _, _, below = (DOCS / "index.md").read_text().partition("```{toctree}\n:hidden:\n\n")
    parts = [line.partition(" <")[0] for line in below.partition("\n```")[0].splitlines()]
    assert parts == ["Guide", "CLI", "API", "Benchmarks", "How it works"]


def test_the_page_of_tables_lists_the_examples():
    section = (DOCS / "tables.md").read_text().partition("\n## Examples\n")[2]
    listed = re.findall(r"`(\w+\.py)`", section)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
