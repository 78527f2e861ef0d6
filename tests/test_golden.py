"""Answers of merges and groupbys are the golden ones: some groups of them; `golden.py` has all."""

from __future__ import annotations

from importlib.metadata import version

import golden
import pytest

VERSIONS, GROUPS = golden.read()
QUICK = (
    "pandas merge outer", "pandas merge labels left", "pandas merge indicator", "polars merge left",
    "arrow merge cross", "pandas index merge inner", "pandas index lookup", "pandas groupby mean",
    "pandas groupby first", "pandas groupby sum by", "arrow groupby max", "polars groupby nunique",
)  # fmt: skip


@pytest.mark.parametrize("group", QUICK)
def test_answers_are_the_golden_ones(group):
    there = {name: version(name) for name in golden.VERSIONS}
    if there != VERSIONS:
        pytest.skip(f"the golden answers were given with {VERSIONS}, here are {there}")
    assert any(group in name for name in GROUPS)
    assert golden.differences(only=group) == []
