"""Refusal of Arrow types of which pandas cannot take rows."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError
from dgpuhash.frames import FrameIndex

STUCK = {
    "string_view": pa.array(["a", None, "c"], pa.string_view()),
    "binary_view": pa.array([b"a", None, b"c"], pa.binary_view()),
    "run_end_encoded": pa.compute.run_end_encode(pa.array([1, 1, 2])),
    "struct": pa.array([{"s": "a"}, None, {"s": "c"}], pa.struct({"s": pa.string_view()})),
}


def frame_with(values: pa.Array) -> pd.DataFrame:
    column = pd.Series(pd.arrays.ArrowExtensionArray(values))
    return pd.DataFrame({"k": [1, 2, 3], "v": column})


@pytest.mark.parametrize("kind", STUCK)
def test_they_are_refused(kind):
    stuck = frame_with(STUCK[kind])
    with pytest.raises(ColumnError, match=rf"cannot gather rows of .*'v': '{kind}"):
        FrameIndex.build(stuck, on="k")
    index = FrameIndex.build(pd.DataFrame({"k": [1, 3], "w": [5, 6]}), on="k")
    for how in ("inner", "left", "semi", "anti"):
        with pytest.raises(ColumnError, match=rf"cannot gather rows of .*'v': '{kind}"):
            index.merge(stuck, how=how)


@pytest.mark.parametrize("kind", STUCK)
def test_the_remedy_helps(kind):
    stuck = frame_with(STUCK[kind])
    made = "str" if kind == "string_view" else object
    stored = stuck.assign(v=pd.Series(stuck["v"].tolist(), stuck.index, made))
    left = pd.DataFrame({"k": [3, 9, 1]})
    merged = FrameIndex.build(stored, on="k").merge(left, how="left")
    assert_frame_equal(merged, left.merge(stored, how="left"))


@pytest.mark.parametrize("how", ["lookup", "find"])
def test_keys_of_such_a_type(how):
    index = FrameIndex.build(pd.DataFrame({"v": ["a", "b"], "w": [5, 6]}), on="v")
    asked = frame_with(STUCK["string_view"])["v"]
    assert index.contains(asked).tolist() == [True, False, False]
    with pytest.raises(ColumnError, match="cannot gather rows"):
        getattr(index, how)(asked)
