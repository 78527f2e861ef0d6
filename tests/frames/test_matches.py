"""Matches in query order, as of a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpuhash import backend
from dgpuhash.frames.matches import sort_by_query_row


def assert_sorted(rows: np.ndarray, n: int) -> None:
    found, order, distinct = sort_by_query_row(rows, n, np)
    assert distinct == len(set(rows.tolist()))
    np.testing.assert_array_equal(order, np.argsort(rows, kind="stable"))
    np.testing.assert_array_equal(found, rows[order])


@given(st.lists(st.integers(0, 9), max_size=30))
def test_any_order(rows: list[int]) -> None:
    assert_sorted(np.array(rows, dtype=np.int64), 10)


@given(st.permutations(range(8)), st.lists(st.integers(0, 4), min_size=8, max_size=8))
def test_rows_that_stand_together(rows: list[int], counts: list[int]) -> None:
    assert_sorted(np.repeat(np.array(rows, dtype=np.int64), counts), 8)


@pytest.mark.gpu
@pytest.mark.parametrize("most", [1, 5])
def test_on_a_gpu(most: int) -> None:
    random = np.random.default_rng(most)
    rows = random.permutation(100_000)
    rows = np.repeat(rows, random.integers(0, most + 1, len(rows)))
    used = backend.get("cuda")
    found, order, distinct = sort_by_query_row(used.from_host(rows), 100_000, used.xp)
    np.testing.assert_array_equal(used.to_host(order), np.argsort(rows, kind="stable"))
    np.testing.assert_array_equal(used.to_host(found), np.sort(rows))
    assert distinct == len(np.unique(rows))
