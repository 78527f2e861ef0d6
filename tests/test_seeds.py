"""Sources of seeds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dgpuhash.errors import SpecError
from dgpuhash.seeds import VARIABLE, draw_seed, seed_of_generation

PACKAGE = Path(__file__).resolve().parent.parent / "dgpuhash"
# Rooms in which no seed is written down (the backend gets them), and the names of those that files
# of old have.
ROOMS = ("tables", "frames", "distributed")
LEGACY = {"LEGACY_COLUMN_SEED", "LEGACY_OWNER_SEED"}
SEED = re.compile(r"(.*_)?seeds?", re.IGNORECASE)
# Functions of which the argument in this place is a seed.
SEEDED = {"hash_keys": 1, "hash_strings": 2, "hash": 0, "default_rng": 0, "KeySeeds": 0}


def is_number(node):
    """Return whether `node` is a number, or computed from numbers alone."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.BinOp) and is_number(node.left) and is_number(node.right)


def literal_seeds(tree):
    """Return the names and lines of all seeds that are set to a number."""
    found = []

    def given(name, value):
        if value is not None and is_number(value) and SEED.fullmatch(name) and name not in LEGACY:
            found.append((value.lineno, name))

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                given(getattr(target, "id", getattr(target, "attr", "")), node.value)
        elif isinstance(node, ast.arguments):
            places = [*node.posonlyargs, *node.args]
            for place, value in zip(places[::-1], node.defaults[::-1], strict=False):
                given(place.arg, value)
            for place, value in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                given(place.arg, value)
        elif isinstance(node, ast.Call):
            for each in node.keywords:
                given(each.arg or "", each.value)
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in SEEDED and len(node.args) > SEEDED[called]:
                given("seed", node.args[SEEDED[called]])
    return sorted(found)


def test_literal_seeds_are_seen():
    source = """
OWNER_SEED = 0x5EED
LEGACY_OWNER_SEED = 1
def made(keys, owner_seed=7, *, seed=1 << 3, other=5): ...
filter = BloomFilter(keys, seed=0)
hashes = backend.hash_keys(keys, 9) + backend.hash_keys(keys, seed)
self.seed: int = -1
KeySeeds(3, drawn)
"""
    lines = [line for line, _ in literal_seeds(ast.parse(source))]
    assert lines == [2, 4, 4, 5, 6, 7, 8]


def test_no_seed_is_written_down():
    found = {
        str(path.relative_to(PACKAGE)): seeds
        for room in ROOMS
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if (seeds := literal_seeds(ast.parse(path.read_text())))
    }
    assert found == {}


def test_no_kernel_has_a_seed_of_its_own():
    written = re.compile(r"\b(hash_key|hash_bytes|spread_seed|hash_salted)\([^()]*?\b\d\w*\)")
    assert written.search("const u64 hash = hash_key(key, 0), line = 5;")
    assert not written.search("hash_key(keys[i], route.seed)")
    for path in (PACKAGE.parent / "kernels").rglob("*.cuh"):
        assert not written.search(path.read_text()), path.name


def test_seeds_are_drawn(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    drawn = {draw_seed() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 <= seed < 2**64 for seed in drawn)
    assert max(drawn) > 2**60


@pytest.mark.parametrize(("text", "seed"), [("7", 7), ("0x10", 16), (str(2**64 - 1), 2**64 - 1)])
def test_the_environment_fixes_them(monkeypatch, text, seed):
    monkeypatch.setenv(VARIABLE, text)
    assert draw_seed() == draw_seed() == seed


@pytest.mark.parametrize("text", ["seven", "-1", str(2**64), "1.5"])
def test_what_is_no_seed_is_named(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(SpecError, match=r"DGPUHASH_SEED=.*unset it"):
        draw_seed()


def test_generations_have_seeds_of_their_own():
    seeds = [seed_of_generation(seed, number) for seed in (0, 1, 2**64 - 1) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert seed_of_generation(5, 0) == 5
