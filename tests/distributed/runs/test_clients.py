"""Runs do not know whom they serve: verbs are their clients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgpuhash.distributed import runs

MODULES = sorted(Path(runs.__file__).parent.glob("*.py"))
CLIENTS = re.compile(
    r"dgpuhash\.distributed\.(merge|groupby|grouped|query)\b"
    # Labels of rows are put together there for all frames.
    r"|dgpuhash\.frames\.(groupby|grouped|merge(?!\.index\b))\b"
)
VERBS = re.compile(r"merge|(?<!dis)join|group(by|_by|plan|s\b)|distinct|probe|verb", re.IGNORECASE)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def conditions(tree: ast.AST) -> Iterator[str]:
    """Yield the source of what branches depend on, and of checks of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield ast.unparse(node.test)
        elif isinstance(node, ast.Match):
            yield ast.unparse(node.subject)
        elif isinstance(node, ast.comprehension):
            yield from map(ast.unparse, node.ifs)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_runs_neither_import_their_clients_nor_ask_which_one_they_serve(path):
    tree = ast.parse(path.read_text())
    assert [name for name in imports(tree) if CLIENTS.match(name)] == []
    assert [each for each in conditions(tree) if VERBS.search(each)] == []


def test_the_rule_catches_a_client_and_a_branch():
    source = "from dgpuhash.distributed.merge import tasks\nif isinstance(plan, GroupPlan): pass"
    tree = ast.parse(source)
    assert [name for name in imports(tree) if CLIENTS.match(name)]
    assert [each for each in conditions(tree) if VERBS.search(each)]
