"""Frames on a GPU: cuDF rows, pandas rows with keys on the GPU, and codes alike on both devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError, DeviceError, KeyTypeError
from dgpuhash.frames import FrameIndex, KeyEncoder, frame_from_bytes, frame_to_bytes, make_frame

pytestmark = pytest.mark.gpu


def on_gpu(frame: pd.DataFrame) -> Any:
    import cudf

    plain = frame.copy()
    for label in plain.columns:
        # cuDF has one string dtype.
        if "string" in str(plain[label].dtype) or plain[label].dtype == object:
            plain[label] = plain[label].astype("str")
        elif "pyarrow" in str(plain[label].dtype):
            plain[label] = plain[label].astype("Int64")
    return cudf.from_pandas(plain)


def on_host(frame: Any) -> pd.DataFrame:
    """The columns in pandas, integers with nulls as such; cuDF refuses that of other dtypes."""
    return pd.DataFrame(
        {
            label: frame[label].to_pandas(nullable=getattr(frame[label].dtype, "kind", "") in "iu")
            for label in frame.columns
        }
    )


def assert_same_values(found: Any, expected: pd.DataFrame) -> None:
    """Equal values, with nulls in the same places; cuDF's dtypes do not depend on the values."""
    host = found.to_pandas()
    assert list(host.columns) == list(expected.columns)
    assert len(host) == len(expected)
    for label in expected.columns:
        ours, theirs = host[label], expected[label].reset_index(drop=True)
        ours = ours.reset_index(drop=True)
        np.testing.assert_array_equal(ours.isna(), theirs.isna(), err_msg=str(label))
        here = ~theirs.isna().to_numpy()
        for one, other in zip(ours[here].tolist(), theirs[here].tolist(), strict=True):
            assert one == other, label


@pytest.mark.cudf
@settings(max_examples=60)
@given(frame_pairs(), st.sampled_from(["inner", "left"]), st.sampled_from([64, 3]))
def test_merge_of_cudf_frames_has_the_values_of_pandas(pair, how, hash_bits):
    left, right, left_on, right_on = pair
    moved = on_gpu(right)
    encoder = KeyEncoder.for_frame(moved, right_on, hash_bits=hash_bits)
    index = FrameIndex.build(moved, right_on, encoder=encoder)
    assert index.device == "cuda"
    found = index.merge(on_gpu(left), left_on=left_on, how=how)
    assert_same_values(found, left.merge(right, left_on=left_on, right_on=right_on, how=how))


@pytest.mark.cudf
@settings(max_examples=30)
@given(frame_pairs(), st.sampled_from([64, 3]))
def test_semi_and_anti_of_cudf_frames(pair, hash_bits):
    left, right, left_on, right_on = pair
    moved = on_gpu(right)
    encoder = KeyEncoder.for_frame(moved, right_on, hash_bits=hash_bits)
    index = FrameIndex.build(moved, right_on, encoder=encoder)
    kept = left.merge(right, left_on=left_on, right_on=right_on)["x"].unique()
    matched = left["x"].isin(kept)
    for how, expected in (("semi", left[matched]), ("anti", left[~matched])):
        assert_same_values(index.merge(on_gpu(left), left_on=left_on, how=how), expected)


@settings(max_examples=40)
@given(frame_pairs(), st.sampled_from(["inner", "left"]), st.sampled_from([64, 3]))
def test_pandas_rows_with_keys_on_the_gpu(pair, how, hash_bits):
    left, right, left_on, right_on = pair
    encoder = KeyEncoder.for_frame(right, right_on, hash_bits=hash_bits)
    host, device = (
        FrameIndex.build(right, right_on, encoder=encoder, device=name) for name in ("cpu", "cuda")
    )
    assert device.device == "cuda"
    found = device.merge(left, left_on=left_on, how=how)
    assert_frame_equal(found, host.merge(left, left_on=left_on, how=how))
    for index in (host, device):
        index.erase(right[:2])
    assert_frame_equal(device.frame(), host.frame())


@pytest.mark.cudf
@settings(max_examples=30)
@given(frame_pairs())
def test_codes_and_owners_are_the_same_on_both_devices(pair):
    _, right, _, on = pair
    moved = on_gpu(right)
    encoder = KeyEncoder.for_frame(moved, on)
    host, device = encoder.encode(on_host(moved)), encoder.encode(moved)
    np.testing.assert_array_equal(host.codes, device.codes.get())
    owners = encoder.owners(device.codes, 130).get()
    np.testing.assert_array_equal(encoder.owners(host.codes, 130), owners)


@pytest.mark.cudf
def test_rows_come_and_go():
    import cudf

    rows = cudf.DataFrame({"k": ["a", "b", None, "a"], "v": [1, 2, 3, 4]})
    index = FrameIndex.build(rows[:2], "k")
    index.insert(rows[2:])
    assert len(index) == 4
    assert index.lookup(["a"]).frame["v"].to_arrow().to_pylist() == [1, 4]
    assert index.erase(cudf.DataFrame({"k": ["a", "z"]})) == 2
    assert index.frame()["v"].to_arrow().to_pylist() == [2, 3]
    with pytest.raises(ColumnError, match="astype"):
        index.insert(rows.assign(v=["x", "y", "z", "w"]))
    with pytest.raises(ColumnError, match="more than one row"):
        FrameIndex.build(rows, "k", unique=True)


@pytest.mark.cudf
def test_lookup_of_cupy_arrays():
    import cupy as cp

    rows = make_frame({"k": cp.arange(10), "v": cp.arange(10) / 4})
    index = FrameIndex.build(rows, "k")
    found = index.lookup(cp.array([3, 99]))
    assert found.found.get().tolist() == [True, False]
    values = found.arrays()["v"]
    assert isinstance(values, cp.ndarray)
    assert values.get()[0] == 0.75
    with pytest.raises(DeviceError, match="cudf"):
        index.lookup(np.array([3]))
    assert index.lookup(3).found.get().tolist() == [True]


@pytest.mark.cudf
def test_saved_on_one_device_and_loaded_on_the_other(tmp_path):
    frame = pd.DataFrame({"k": ["a", None, "c"], "n": [1, 2, 3], "c": pd.Categorical([7, None, 8])})
    FrameIndex.build(frame, "k").save(tmp_path / "host.dgph")
    device = FrameIndex.load(tmp_path / "host.dgph", device="cuda")
    assert_same_values(device.frame(), frame)
    device.save(tmp_path / "device.dgph")
    assert_same_values(frame_from_bytes(frame_to_bytes(device.frame()), "cudf"), frame)
    again = FrameIndex.load(tmp_path / "device.dgph")
    assert again.lookup(["c", None]).frame["n"].tolist() == [3, 2]


@pytest.mark.cudf
def test_refusals():
    import cudf

    rows = cudf.DataFrame({"k": [1, 2]})
    with pytest.raises(DeviceError, match="to_pandas"):
        FrameIndex.build(rows, "k", device="cpu")
    with pytest.raises(DeviceError, match="from_pandas"):
        FrameIndex.build(rows, "k").merge(rows.to_pandas())
    with pytest.raises(KeyTypeError, match="cannot be a key"):
        KeyEncoder.for_frame(cudf.DataFrame({"k": [[1], [2]]}), "k")
