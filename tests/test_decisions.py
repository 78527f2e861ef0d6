"""Decision records: numbered, short, linked, with existing names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dgpuhash.cli import main

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))

LONGEST_RECORD = 25
LONGEST_TABLE = 8
WIDEST_LINE = 140


def test_records_are_numbered_without_gaps():
    assert [int(path.name[:3]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))
    assert len(RECORDS) > 20


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_short_and_complete(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= LONGEST_RECORD
    assert max(map(len, lines)) <= WIDEST_LINE
    # A heading and a rule come before the rows of a table.
    blocks = "\n".join(lines).split("\n\n")
    assert max(len(re.findall(r"^\|", each, re.MULTILINE)) for each in blocks) <= LONGEST_TABLE + 2
    assert lines[0].startswith(f"# {int(path.name[:3])}. ")
    for word in ("Question", "Data", "Decision", "Repeat"):
        assert any(line.startswith(f"- **{word}**") for line in lines), word


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_names_what_exists(monkeypatch, path):
    monkeypatch.chdir(ROOT)
    text = path.read_text()
    for receipt in re.findall(r"`(receipts/[\w.-]+)`", text):
        assert (ROOT / receipt).is_file(), receipt
    for words in re.findall(r"`dgpuhash bench ([^`]+)`", text):
        name, *arguments = shlex.split(words)
        # An option that is unknown, or has no such value, raises.
        assert main.commands["bench"].commands[name].make_context(name, arguments).params
    numbers = {int(number) for number in re.findall(r"\brecord (\d+)", text)}
    assert numbers <= set(range(1, len(RECORDS) + 1))


def test_titles_state_the_decision():
    asking = ("How", "What", "Which", "When", "Where", "Who", "Why", "Do ", "Does", "Can")
    for path in RECORDS:
        title = path.read_text().partition("\n")[0].partition(". ")[2]
        assert not title.startswith(asking), path.name
        assert not title.endswith("?"), path.name


def test_the_index_links_each_record_once():
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (DECISIONS / "index.md").read_text())
    assert linked == [path.name for path in RECORDS]
