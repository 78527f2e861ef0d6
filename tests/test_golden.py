"""Answers of merges and groupbys are the golden ones: some groups of them; `golden.py` has all."""

from __future__ import annotations

import golden
import pytest

QUICK = {
    "cpu": (
        "pandas merge outer", "pandas merge labels left", "pandas merge indicator",
        "polars merge left", "arrow merge cross", "pandas index merge inner", "pandas index lookup",
        "pandas groupby mean", "pandas groupby first", "pandas groupby sum by",
        "arrow groupby max", "polars groupby nunique",
    ),
    "cuda": (
        "cudf merge outer", "cudf merge labels left", "cudf merge indicator", "cudf merge cross",
        "cudf index merge inner", "cudf index lookup", "cudf groupby mean", "cudf groupby first",
        "cudf groupby sum by",
    ),
}  # fmt: skip
CASES = [
    pytest.param(device, group, marks=(pytest.mark.gpu, pytest.mark.cudf) * (device == "cuda"))
    for device, groups in QUICK.items()
    for group in groups
]


@pytest.mark.parametrize(("device", "group"), CASES)
def test_answers_are_the_golden_ones(device, group):
    versions, groups = golden.read(device)
    here = golden.versions(device)
    if here != versions:
        pytest.skip(f"the golden answers were given with {versions}, here are {here}")
    assert any(group in name for name in groups)
    assert golden.differences(device, group) == []


def test_groups_of_a_library_that_is_not_installed_are_left_out(monkeypatch):
    installed = golden.packages_distributions()
    others = {name: each for name, each in installed.items() if name != "polars"}
    monkeypatch.setattr(golden, "packages_distributions", lambda: others)
    assert golden.versions() == golden.versions() | {"polars": "none"}
    assert [name for name, _ in golden.answers(only=" groupby size by two")] == [
        "pandas groupby size by two", "arrow groupby size by two",
    ]  # fmt: skip
    assert golden.differences(only="polars") == []
