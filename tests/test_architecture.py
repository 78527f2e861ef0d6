"""Rooms, files and tests named by ARCHITECTURE.md and internals exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dgpuhash"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = sorted(
    [*(ROOT / "docs" / "decisions").glob("*.md"), *(ROOT / "docs" / "how-it-works").glob("*.md")]
)

LONGEST_PAGE = 150
WIDEST_LINE = 140


def rooms(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name[0].isalpha()}


def contracts() -> list[list[str]]:
    """Return the paths that each row of the contracts names."""
    table = TEXT.partition("## Contracts")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in re.findall(r"^\| .+ \|$", table, flags=re.MULTILINE)]
    return [re.findall(r"`([\w/.]+)`", "".join(row[2:])) for row in rows[1:]]


def test_it_is_short():
    lines = TEXT.splitlines()
    assert len(lines) <= LONGEST_PAGE
    assert [line for line in lines if len(line) > WIDEST_LINE] == []


@pytest.mark.parametrize(
    "folder", [PACKAGE, PACKAGE / "distributed", ROOT / "kernels"], ids=lambda path: path.name
)
def test_the_picture_shows_each_room(folder):
    shown = set(re.findall(r"\b(\w+)/(?=\s)", TEXT.partition("## Contracts")[0]))
    assert rooms(folder) - shown == set()


@pytest.mark.parametrize("paths", contracts(), ids=lambda paths: paths[-1])
def test_a_contract_names_a_place_and_a_test(paths):
    test = paths[-1]
    assert test.startswith("tests/")
    assert (ROOT / test).is_file(), test
    for place in paths[:-1]:
        assert (PACKAGE / place).exists() or (ROOT / place).exists(), place


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_names_files_that_exist(page):
    for name in re.findall(r"`([\w/]+/[\w/]+\.(?:py|cuh|cpp|inc|json))`", page.read_text()):
        roots = (ROOT, PACKAGE, PACKAGE / "distributed")
        assert any((root / name).is_file() for root in roots), name
