"""Groups without values, and rows without a group: no integer is rounded."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dgpuhash
from dgpuhash.errors import ColumnError

BIG = 2**62 + 1
FRAME = pd.DataFrame(
    {
        "k": [1.0, 1.0, None],
        "c": pd.Categorical(["a", "a", "a"], categories=["a", "b"]),
        "v": [BIG, BIG - 1, 3],
        "u": np.array([2**63 + 1, 5, 7], "u8"),
    }
)


@pytest.mark.parametrize("how", ["min", "max", "first", "last"])
@pytest.mark.parametrize("label", ["v", "u"])
def test_a_group_without_values(how, label):
    groups = dgpuhash.groupby(FRAME, "c", observed=False)
    whole = getattr(FRAME[label], how)() if how in ("min", "max") else FRAME[label].iloc[
        0 if how == "first" else -1
    ]  # fmt: skip
    if int(float(whole)) == whole:
        assert getattr(groups[label], how)()["a"] == whole
        return
    with pytest.raises(ColumnError, match=rf"{whole}.*\.astype\('.*Int64'\)"):
        getattr(groups[label], how)()
    nullable = FRAME.astype({"v": "Int64", "u": "UInt64"})
    found = getattr(dgpuhash.groupby(nullable, "c", observed=False)[label], how)()
    assert found.tolist() == [whole, pd.NA]


def test_too_few_values():
    with pytest.raises(ColumnError, match=r"\.astype\('Int64'\)"):
        dgpuhash.groupby(FRAME.assign(c=["a", "a", "b"]), "c")["v"].max(min_count=2)


@pytest.mark.parametrize("how", ["min", "max", "first", "last", "sum"])
def test_rows_without_a_group(how):
    groups = dgpuhash.groupby(FRAME, "k")
    whole = getattr(groups["v"], how)()[1.0]
    if int(float(whole)) != whole:
        with pytest.raises(ColumnError, match=rf"'v'.*{whole}.*\.astype\('Int64'\)"):
            groups[["v"]].transform(how)
    nullable = dgpuhash.groupby(FRAME.astype({"v": "Int64"}), "k")["v"].transform(how)
    assert nullable.tolist() == [whole, whole, pd.NA]
    kept = dgpuhash.groupby(FRAME, "k", dropna=False)["v"].transform(how)
    assert kept.tolist() == [whole, whole, 3]
