"""Plain words in code: budgets by room that only fall, and class names that mean one thing.

CONTRIBUTING.md says which words the documents use; `docs/glossary.md` lists them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dgpuhash"
# Participles that no suffix tells; `left` is a side of a merge, `run` and `cut` are verbs.
IRREGULAR = frozenset((
    *("told", "asked", "held", "made", "found", "taken", "given", "met", "known", "kept", "sent"),
    *("begun", "gone", "drawn", "seen", "moved", "built", "said", "written", "shown"),
))  # fmt: skip
# Words that end as participles do, and are none.
NOUNS_AND_VERBS = frozenset((
    *("need", "seed", "reseed", "feed", "speed", "embed", "exceed", "proceed"),
))  # fmt: skip
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
CLAUSE = re.compile(r"\b(that|which|what|whose|whom|where)\b", re.IGNORECASE)
QUOTED = re.compile(r"`[^`]*`")
PRIVATE_WORDS = re.compile(r"\b(told|asked|asks|held|so many|of ours)\b", re.IGNORECASE)

# The most that a room may have; take some away whenever a room has fewer.
MOST_PARTICIPLES = {
    "backend": 5,
    "bench": 41,
    "cli": 4,
    "dask": 4,
    "demo": 1,
    "distributed/cluster": 2,
    "distributed/collective": 7,
    "distributed/groupby": 14,
    "distributed/grouped": 2,
    "distributed/index": 2,
    "distributed/ingest": 1,
    "distributed/merge": 2,
    "distributed/partition": 3,
    "distributed/pipeline": 12,
    "distributed/pruning": 2,
    "distributed/query": 3,
    "distributed/shards": 11,
    "distributed/tables": 7,
    "frames": 86,
    "kmer": 46,
    "spec": 1,
    "tables": 48,
}
# Names of public or internal classes that are defined more than once.
TWICE = {
    "Answer",
    "CallOptions",
    "MergeOptions",
    "KeptAnswers",
    "Placement",
}


def room_of(path: Path) -> str:
    """Return the room of a module; rooms of `distributed` stand for themselves."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "/".join(parts[:2]) if parts[0] == "distributed" and len(parts) > 2 else parts[0]


def is_participle(name: str) -> bool:
    word = name.strip("_")
    regular = word.endswith("ed") and word not in NOUNS_AND_VERBS
    return "_" not in word and (regular or word in IRREGULAR)


@pytest.fixture(scope="module")
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def first_line(node: DOCUMENTED) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def check(found: Counter[str], most: dict[str, int]) -> None:
    over = {room: (n, most.get(room, 0)) for room, n in found.items() if n > most.get(room, 0)}
    assert over == {}, "more than a room may have (found, allowed)"


def test_functions_are_verbs_or_nouns(modules: dict[Path, ast.Module]) -> None:
    found = Counter(
        room_of(path)
        for path, tree in modules.items()
        for function in functions(tree)
        if is_participle(function.name)
    )
    check(found, MOST_PARTICIPLES)


def test_first_lines_of_modules_have_no_clause(modules: dict[Path, ast.Module]) -> None:
    found = [
        (str(path.relative_to(PACKAGE)), first_line(tree))
        for path, tree in modules.items()
        if CLAUSE.search(first_line(tree))
    ]
    assert found == [], "name the thing and say what it does, without a clause"


def test_first_lines_have_no_private_word(modules: dict[Path, ast.Module]) -> None:
    found = [
        (str(path.relative_to(PACKAGE)), first_line(node))
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and PRIVATE_WORDS.search(QUOTED.sub("", first_line(node)))
    ]
    assert found == [], "docs/glossary.md has the words that others use"


def test_a_class_name_means_one_thing(modules: dict[Path, ast.Module]) -> None:
    places = defaultdict(list)
    for path, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {name for name, paths in places.items() if len(paths) > 1}
    more = {name: places[name] for name in twice - TWICE}
    assert not more, "give each a name of its own"
