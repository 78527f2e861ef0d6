"""Digests of partitions: of all values, wherever these are in memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dgpuhash.distributed.groupby.digest import digest_of

VALUES = {
    "ints": [1, 2, 3, 4, 5],
    "floats": [1.5, -0.0, float("nan"), 4.0, 5.0],
    "masked": pd.array([1, None, 3, 4, 5], dtype="Int32"),
    "texts": pd.array(["a", None, "ccc", "longer than eight", "e"], dtype="str"),
    "arrow": pd.array([1, None, 3, 4, 5], dtype="int16[pyarrow]"),
    "truths": pd.array([True, None, False, True, True], dtype="bool[pyarrow]"),
    "moments": pd.date_range("2026-01-01", periods=5, tz="UTC"),
    "categories": pd.Categorical(["x", None, "y", "x", "y"]),
}


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_a_digest_is_of_values_and_their_places(kind):
    frame = pd.DataFrame({"v": VALUES[kind]})
    part = frame.iloc[1:4]
    assert digest_of(part) == digest_of(part.copy(deep=True))
    assert digest_of(part) == digest_of(pd.concat([part.iloc[:1], part.iloc[1:]]))
    others = [frame.iloc[:3], frame.iloc[1:5], frame.iloc[[3, 2, 1]], frame.iloc[1:4, 0]]
    others.append(part.set_axis(np.arange(7, 10), axis=0))
    assert digest_of(part) not in {digest_of(each) for each in others[:3]}
    assert digest_of(others[3]) == digest_of(part)
    assert digest_of(others[4]) != digest_of(part)
