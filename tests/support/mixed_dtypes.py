"""Merges of a stored side whose partitions have other dtypes than Dask was told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from clusters import lazy

import dgpuhash
from dgpuhash.errors import ColumnError

__all__ = ["assert_no_value_is_rounded"]


def assert_no_value_is_rounded(after: Callable[[int], None] = lambda _: None) -> None:
    """Assert that integers beside floats stay exact, or are refused.

    `after` is called with the number of stored rows, once some were merged.
    """
    left = pd.DataFrame({"k": np.arange(8)})
    right = pd.DataFrame({"k": np.arange(8), "y": np.arange(8), "o": [1, "a", None, 2.5] * 2})

    def other(part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(y=part["k"] / 2) if part["k"].iloc[0] else part

    mixed = lazy(right, 2).map_partitions(other, meta=right.iloc[:0])
    found = dgpuhash.merge(lazy(left, 2), mixed, "left", on="k").compute()
    assert found["y"].tolist() == [0, 1, 2, 3, 2, 2.5, 3, 3.5]
    assert found["o"].tolist() == right["o"].tolist()
    after(len(right))
    exact = lazy(right.assign(y=2**53 + 1), 2).map_partitions(other, meta=right.iloc[:0])
    with pytest.raises(ColumnError, match="floats beside them"):
        dgpuhash.merge(lazy(left, 2), exact, "left", on="k").compute()
