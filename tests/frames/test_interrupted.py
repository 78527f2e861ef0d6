"""Interrupted changes of a frame index: all or nothing."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from interrupting import events, raise_at, raise_on_signal

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import FrameIndex

KEYS = {
    "numbers": lambda numbers: numbers,
    "text": lambda numbers: [f"key {number}" for number in numbers],
}


def frame(key: str, numbers: Any, first: int = 0) -> pd.DataFrame:
    values = np.arange(first, first + len(numbers), dtype="i8")
    return pd.DataFrame({"k": KEYS[key](np.asarray(numbers)), "v": values})


def content(index: FrameIndex) -> list[tuple[Any, ...]]:
    """Return all rows, after checking that every read agrees."""
    rows = index.frame()
    assert len(rows) == len(index)
    held = sorted(rows.itertuples(index=False, name=None))
    found = index.lookup(rows[["k"]].drop_duplicates())
    assert sorted(found["v"].tolist()) == sorted(rows["v"].tolist())
    return held


VERBS = {
    "insert new": lambda index, key: index.insert(frame(key, range(40, 70), 100)),
    "insert doubles": lambda index, key: index.insert(frame(key, range(20, 70), 100)),
    "erase": lambda index, key: index.erase(frame(key, range(10, 35))[["k"]]),
    "erase few": lambda index, key: index.erase(frame(key, range(3))[["k"]]),
    "upsert": lambda index, key: index.upsert(frame(key, range(10, 60), 100)),
}
CASES = [
    (key, doubled, verb) for key in KEYS for doubled in (False, True) for verb in VERBS
]  # fmt: skip


class Judge:
    """Counter of the states of indexes after interrupted changes."""

    def __init__(self, key: str, doubled: bool, verb: str) -> None:
        self._key, self._doubled = key, doubled
        self.work = functools.partial(VERBS[verb], key=key)
        self.old = content(self.made())
        changed = self.made()
        self.work(changed)
        self.new = content(changed)
        # What pandas makes of it.
        rows = pd.DataFrame(self.old, columns=["k", "v"])
        if verb.startswith("erase"):
            gone = frame(key, range(10, 35) if verb == "erase" else range(3))["k"]
            rows = rows[~rows["k"].isin(gone)]
        elif verb == "upsert":
            more = frame(key, range(10, 60), 100)
            rows = pd.concat([rows[~rows["k"].isin(more["k"])], more])
        else:
            more = range(40, 70) if verb == "insert new" else range(20, 70)
            rows = pd.concat([rows, frame(key, more, 100)])
        assert self.new == sorted(rows.itertuples(index=False, name=None))
        self.seen: Counter[str] = Counter()

    def made(self) -> FrameIndex:
        index = FrameIndex.build(frame(self._key, range(20)), on="k")
        index.insert(frame(self._key, range(10 if self._doubled else 20, 40), 50))
        return index

    def judge(self, index: FrameIndex) -> None:
        held = content(index)
        assert held in (self.old, self.new)
        self.seen["new" if held == self.new else "old"] += 1
        if held == self.old:
            self.work(index)
        assert content(index) == self.new
        index.insert(frame(self._key, range(500, 530), 500))
        assert len(content(index)) == len(self.new) + 30


@pytest.mark.parametrize(("key", "doubled", "verb"), CASES)
def test_an_exception_at_any_line(key, doubled, verb):
    judge = Judge(key, doubled, verb)
    for event in events("line", lambda: judge.work(judge.made()), 10):
        index = judge.made()
        raise_at(event, "line", functools.partial(judge.work, index))
        judge.judge(index)
    assert judge.seen.total() >= 6


@pytest.mark.exhaustive
@pytest.mark.parametrize(("key", "doubled", "verb"), CASES)
def test_an_exception_at_many_lines(key, doubled, verb):
    judge = Judge(key, doubled, verb)
    for event in events("line", lambda: judge.work(judge.made()), 150):
        index = judge.made()
        raise_at(event, "line", functools.partial(judge.work, index))
        judge.judge(index)
    assert judge.seen["old"] >= 5


@pytest.mark.parametrize("verb", VERBS)
def test_signals_at_any_time(verb):
    judge, chance = Judge("numbers", False, verb), random.Random(4)
    with raise_on_signal() as during:
        for _ in range(12):
            index = judge.made()
            during(functools.partial(judge.work, index), chance.uniform(1e-6, 4e-3))
            judge.judge(index)
    assert judge.seen.total() == 12


@pytest.mark.parametrize(("key", "doubled", "verb"), CASES)
def test_memory_that_is_refused_at_any_time(monkeypatch, key, doubled, verb):
    judge, real = Judge(key, doubled, verb), CpuBackend.empty
    for refused in range(0, 10_000, 7):
        index, left, whole = judge.made(), refused, True

        def empty(self, shape, dtype):
            nonlocal left
            left -= 1
            if left == -1:
                raise OutOfMemoryError("1 byte needed and 0 free; use less")
            return real(self, shape, dtype)

        with monkeypatch.context() as scarce:
            scarce.setattr(CpuBackend, "empty", empty)
            try:
                judge.work(index)
            except OutOfMemoryError:
                whole = False
        assert content(index) == (judge.new if whole else judge.old)
        judge.judge(index)
        if left >= 0:
            break
