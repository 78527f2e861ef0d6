"""Reads and references of the tests of workers."""

from __future__ import annotations

from typing import Any

from kmer.worlds import World, arrays

from dgpuhash.kmer.calls import Calls

MODES = ("distributed", "independent", "replicated")
WORLD = World(5, pairs=60)


def of_pairs(index: Any, **options: Any) -> Calls:
    """Return the calls of the world's pairs."""
    firsts, seconds = zip(*WORLD.pairs, strict=True)
    found: Calls = index.call(*arrays(firsts), *arrays(seconds), **options)
    return found


def fields_of(calls: Calls) -> list[Any]:
    """Return what calls have, as lists."""
    found = (getattr(calls, name) for name in type(calls).__slots__)
    return [None if each is None else each.tolist() for each in found]
