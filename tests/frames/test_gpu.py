"""Frames on a GPU: cuDF rows, pandas rows, equal codes on both devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from answers import answers_like_pandas, left_merge, same_array
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError, DeviceError, KeyTypeError, UnsupportedError
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
    """Return the columns in pandas, integers with nulls as nullable.

    cuDF refuses nullable results for other dtypes.
    """
    return pd.DataFrame(
        {
            label: frame[label].to_pandas(nullable=getattr(frame[label].dtype, "kind", "") in "iu")
            for label in frame.columns
        }
    )


def assert_same_values(found: Any, expected: pd.DataFrame) -> None:
    """Assert equal values and nulls; dtypes may differ.

    cuDF's dtypes do not depend on the values.
    """
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


@pytest.mark.cudf
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("nulls", [False, True])
def test_texts_as_dask_makes_them(how, nulls):
    import cudf

    left, right = (
        pd.DataFrame({"k": pd.array([*text, None] if nulls else [*text], dtype="string[pyarrow]")})
        for text in ("abcda", "bxab")
    )
    left["x"], right["y"] = range(len(left)), range(len(right))
    index = FrameIndex.build(cudf.from_pandas(right), "k")
    found = index.merge(cudf.from_pandas(left), how=how)
    assert_same_values(found, left.merge(right, on="k", how=how))


@pytest.mark.cudf
@pytest.mark.parametrize(
    ("dtype", "added"), [("str", "string[pyarrow]"), ("string[pyarrow]", "str")]
)
def test_texts_of_another_dtype_are_inserted(dtype, added):
    import cudf

    rows, more = (
        pd.DataFrame({"k": pd.array(texts, each), "v": pd.array(texts, each)})
        for texts, each in ((["a", None], dtype), ([None, "b"], added))
    )
    index = FrameIndex.build(cudf.from_pandas(rows), "k")
    index.insert(cudf.from_pandas(more))
    assert index.lookup(["a", "b", None])["v"].to_arrow().to_pylist() == ["a", "b", None, None]


@pytest.mark.cudf
@pytest.mark.parametrize(
    "dtype",
    ["int8", "str", "category", "M8[s]", "m8[ns]", "M8[us, UTC]", "M8[ns, Europe/Berlin]"],
)
def test_columns_of_a_merge_without_any_match_keep_their_dtypes(dtype):
    import cudf

    column = pd.Series([1, 2]).astype("str" if dtype in ("str", "category") else "int64")
    right = cudf.from_pandas(pd.DataFrame({"k": [5, 6], "y": column.astype(dtype)}))
    found = FrameIndex.build(right, "k").merge(cudf.DataFrame({"k": [7, 8]}), how="left")
    assert found["y"].dtype == right["y"].dtype
    assert found["y"].isnull().to_numpy().all()


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
    assert index.lookup(["a"])["v"].to_arrow().to_pylist() == [1, 4]
    assert index.erase(cudf.DataFrame({"k": ["a", "z"]})) == 2
    assert index.frame()["v"].to_arrow().to_pylist() == [2, 3]
    with pytest.raises(ColumnError, match="astype"):
        index.insert(rows.assign(v=["x", "y", "z", "w"]))
    with pytest.raises(ColumnError, match="more than one row"):
        FrameIndex.build(rows, "k", unique=True)


@pytest.mark.cudf
@pytest.mark.parametrize(
    ("stored", "given", "number"), [("int64", "uint64", 2**63), ("uint8", "int8", -1)]
)
def test_numbers_of_the_other_sign_stay_what_they_are(stored, given, number):
    rows = pd.DataFrame({"k": [1], "v": [1]}).astype(stored)
    index, beyond = FrameIndex.build(on_gpu(rows), "k"), pd.Series([number], dtype=given)
    with pytest.raises(KeyTypeError, match=r"'k' has values.*do not fit"):
        index.insert(on_gpu(rows.assign(k=beyond)))
    index.insert(on_gpu(rows.assign(k=pd.Series([2], dtype=given), v=beyond)))
    assert index.frame()["v"].astype("float64").to_arrow().to_pylist() == [1, float(number)]


@pytest.mark.cudf
@settings(max_examples=30)
@given(frame_pairs())
def test_lookup_of_cudf_frames_and_series(pair):
    left, right, left_on, on = pair
    keys = left.rename(columns=dict(zip(left_on, on, strict=True)))[on]
    keys.index = pd.Index(np.arange(len(keys)) % 3)
    merged, query_rows, found = left_merge(keys, right, on)
    index, asked = FrameIndex.build(on_gpu(right), on), on_gpu(keys)
    assert_same_values(index.lookup(asked), merged)
    details = index.find(asked)
    assert details.query_rows.get().tolist() == query_rows.tolist()
    assert details.found.get().tolist() == found.tolist()
    mask = index.contains(asked).to_pandas()
    assert (mask.tolist(), mask.index.tolist()) == (found.tolist(), keys.index.tolist())
    if len(on) == 1:
        answer = index.lookup(asked[on[0]])
        assert answer.index.to_pandas().tolist() == keys.index.take(query_rows).tolist()
        assert_same_values(answer, merged.drop(columns=on))
        mask = index.contains(asked[on[0]]).to_pandas()
        assert (mask.tolist(), mask.index.tolist()) == (found.tolist(), keys.index.tolist())


@pytest.mark.cudf
@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "bool"])
def test_cupy_keys_give_cupy_values(dtype):
    import cupy as cp

    values = (np.arange(10) % 3).astype(dtype)
    index = FrameIndex.build(make_frame({"k": cp.arange(10), "v": cp.asarray(values)}), "k")
    answer = index.lookup(cp.array([3, 5]))
    assert isinstance(answer, cp.ndarray)
    np.testing.assert_array_equal(answer.get(), values[[3, 5]])
    assert answer.dtype == dtype
    assert index.lookup(cp.array([], "int8")).dtype == dtype
    mask = index.contains(cp.array([3, 99]))
    assert isinstance(mask, cp.ndarray)
    assert mask.get().tolist() == [True, False]
    if dtype == "bool":
        with pytest.raises(UnsupportedError, match=r"cudf\.Series"):
            index.lookup(cp.array([3, 99]))
        return
    promoted = index.lookup(cp.array([5, 99])).get()
    assert promoted.dtype == (dtype if dtype.startswith("float") else "float64")
    np.testing.assert_array_equal(promoted, [values[5], np.nan])


class OnGpu:
    """CuPy array that only exports itself, in one way."""

    def __init__(self, values: Any, way: str) -> None:
        names = {
            "cuda": ["__cuda_array_interface__"],
            "dlpack": ["__dlpack__", "__dlpack_device__"],
        }
        self._values = values
        self._names = names[way]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name in self._names:
            return getattr(self._values, name)
        raise AttributeError(name)


@pytest.mark.cudf
def test_answers_have_the_form_of_the_keys():
    import cudf
    import cupy as cp

    rows = cudf.DataFrame({"k": [1, 2, 1], "n": [10, 20, 30], "s": ["a", None, "c"]})
    both, numbers = FrameIndex.build(rows, "k"), FrameIndex.build(rows, "k", ["n"])
    keys = cp.array([2, 1])
    labelled = cudf.Series(keys, index=["x", "y"])
    answer = numbers.lookup(labelled)
    assert isinstance(answer, cudf.Series)
    assert answer.to_pandas().to_dict() == {"x": 20, "y": 30}
    assert (answer.name, answer.index.to_pandas().tolist()) == ("n", ["x", "y", "y"])
    answer = both.lookup(labelled)
    assert isinstance(answer, cudf.DataFrame)
    assert answer["s"].to_arrow().to_pylist() == [None, "a", "c"]
    answer = both.lookup([2, 9])
    assert isinstance(answer, cudf.DataFrame)
    assert answer["k"].to_arrow().to_pylist() == [2, 9]
    same_array(both.contains([2, 9]), np.array([True, False]))
    same_array(both.contains(1), np.array([True]))
    assert isinstance(numbers.lookup(cudf.Index([2, 1])), cudf.Index)
    assert isinstance(numbers.contains(cudf.Index([2, 1])), cudf.Index)
    answer = numbers.lookup({"k": keys})
    assert list(answer) == ["k", "n"]
    assert all(isinstance(array, cp.ndarray) for array in answer.values())
    assert answer["n"].get().tolist() == [20, 10, 30]
    for foreign in (OnGpu(keys, "cuda"), OnGpu(keys, "dlpack")):
        values = numbers.lookup(foreign)
        assert isinstance(values, cp.ndarray)
        assert values.get().tolist() == [20, 10, 30]
    only = FrameIndex.build(rows[["k"]], "k").lookup(cp.array([2, 9]))
    np.testing.assert_array_equal(only.get(), [2, np.nan])
    with pytest.raises(UnsupportedError, match=r"'s'.*cudf\.Series"):
        both.lookup(keys)
    for verb in (both.lookup, both.contains, both.find):
        with pytest.raises(DeviceError, match="cudf"):
            verb(np.array([3]))


def test_lookups_of_pandas_rows_with_keys_on_the_gpu():
    rows = pd.DataFrame({"k": [10, 20, 10], "v": ["a", None, "c"]})
    keys = pd.DataFrame({"k": [20, 99, 10]}, index=[1, 1, 2])
    answers_like_pandas(FrameIndex.build(rows, "k", device="cuda"), keys, rows, ["k"])


def pages_of(index: FrameIndex, keys: Any, nbytes: int) -> list[Any]:
    """Return all pages of the answer to `keys`."""
    pages, first, skip = [], 0, 0
    while True:
        pages.append(index.page(keys.iloc[first:], nbytes=nbytes, skip=skip))
        if pages[-1].rest is None:
            return pages
        assert pages[-1].rest.cuts == sorted(set(pages[-1].rest.cuts))
        first, skip = first + pages[-1].rest.key, pages[-1].rest.skip


@pytest.mark.cudf
@pytest.mark.parametrize("nbytes", [1, 3000, 1 << 20])
@pytest.mark.parametrize("place", ["rows and keys", "keys"])
def test_pages(place, nbytes):
    rng = np.random.default_rng(0)
    stored = pd.DataFrame({"k": np.where(np.arange(400) % 2, 7, np.arange(400)), "v": range(400)})
    stored["text"] = ["w" * int(width) for width in rng.integers(1, 9, 400) ** 3]
    keys = pd.DataFrame({"k": [-1, 2, 4, 7, 6, 8, 999]})
    wanted = FrameIndex.build(stored, "k").match(keys)
    if place == "rows and keys":
        stored, keys = on_gpu(stored), on_gpu(keys)
    index = FrameIndex.build(stored, "k", device="cuda")
    pages = pages_of(index, keys, nbytes)
    found = [page.matches.frame for page in pages]
    if place == "rows and keys":
        found = [frame.to_pandas() for frame in found]
    assert_same_values(on_gpu(pd.concat(found, ignore_index=True)), wanted.frame)
    assert (len(pages) == 1) == (nbytes == 1 << 20)
    assert nbytes > 1 or max(map(len, found)) == 1


@pytest.mark.cudf
def test_saved_on_one_device_and_loaded_on_the_other(tmp_path):
    frame = pd.DataFrame({"k": ["a", None, "c"], "n": [1, 2, 3], "c": pd.Categorical([7, None, 8])})
    FrameIndex.build(frame, "k").save(tmp_path / "host.dgph")
    device = FrameIndex.load(tmp_path / "host.dgph", device="cuda")
    assert_same_values(device.frame(), frame)
    device.save(tmp_path / "device.dgph")
    assert_same_values(frame_from_bytes(frame_to_bytes(device.frame()), "cudf"), frame)
    again = FrameIndex.load(tmp_path / "device.dgph")
    assert again.lookup(["c", None])["n"].tolist() == [3, 2]


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


@pytest.mark.cudf
def test_plain_cudf_columns_are_arrays_and_back():
    import cudf

    from dgpuhash.frames.dataframes import frames_of

    plain = cudf.from_pandas(
        pd.DataFrame(
            {
                "whole": np.array([3, 1, 2], dtype="i4"),
                "part": [0.5, 1.5, -0.0],
                "true": [True, False, True],
                "day": np.array(["2020-02-29", "1970-01-01", "1999-12-31"], dtype="M8[ns]"),
                "span": np.array([1, 2, 3], dtype="m8[ms]"),
            }
        )
    )
    frames = frames_of(plain)
    arrays = frames.arrays(plain)
    assert [array.dtype.kind for array in arrays] == list("ifbii")
    found = frames.from_arrays(arrays, plain)
    assert frames.dtypes(found) == frames.dtypes(plain) == list(plain.dtypes)
    nullable = cudf.DataFrame({"text": ["a", None], 3: [1, None]}).astype({3: "Int64"})
    assert frames.dtypes(nullable) == list(nullable.dtypes)
    assert_frame_equal(found.to_pandas(), plain.to_pandas())
    assert len(frames.from_arrays([array[:0] for array in arrays], plain)) == 0
    assert frames.arrays(cudf.DataFrame({"text": ["a"]})) is None
    assert frames.arrays(cudf.DataFrame({"null": cudf.Series([1, None])})) is None
    index = FrameIndex.build(plain, on="day")
    asked = plain.iloc[1:]
    assert_frame_equal(
        index.merge(asked[["day"]]).to_pandas(),
        asked[["day"]].to_pandas().merge(plain.to_pandas(), on="day"),
    )


@pytest.mark.cudf
@pytest.mark.parametrize("before", [0, 1, 5])
def test_strings_of_cudf_columns_are_those_of_arrow(before):
    import cudf
    import cupy as cp

    from dgpuhash.frames.dataframes import frames_of
    from dgpuhash.frames.dataframes.strings import ArrowStrings

    random = np.random.default_rng(before)
    some = ["", "a", "a\0", None, "\0a", "éé", "seven_7", "eight_88", "nine_9999", "x" * 41]
    known = np.array(some, object)
    whole = known[random.integers(0, len(known), 501)]
    texts = whole[before:-1]
    column = cudf.Series(whole.tolist(), dtype="str").iloc[before:-1]
    frames, arrow = frames_of(column), ArrowStrings(pa.array(texts, pa.large_string()))
    strings = frames.key_column(column, "k").strings
    np.testing.assert_array_equal(strings.nulls.get(), arrow.nulls)
    np.testing.assert_array_equal(strings.hash(9).get(), arrow.hash(9))
    # Of a slice with nulls cuDF 26.10 makes categories whose nulls lie elsewhere.
    whole_column = cudf.Series(texts.tolist(), dtype="str")
    categories = frames.key_column(whole_column.astype("category"), "k").strings
    np.testing.assert_array_equal(categories.nulls.get(), arrow.nulls)
    np.testing.assert_array_equal(categories.hash(9).get(), arrow.hash(9))
    assert bool(categories.equals(strings).all())
    rows, others = random.integers(0, len(texts), (2, 2000))
    for n in (20, 2000):
        some, like = strings.take(cp.asarray(rows[:n])), arrow.take(rows[:n])
        np.testing.assert_array_equal(some.hash(9).get(), like.hash(9))
        for other in (strings, categories):
            same = some.equals(other.take(cp.asarray(others[:n]))).get()
            np.testing.assert_array_equal(same, texts[rows[:n]] == texts[others[:n]])
    full = frames.key_column(column.dropna(), "k").strings
    assert full.nulls is None and full.take(cp.arange(5)).nulls is None
    none = frames.key_column(column.iloc[:0], "k").strings
    assert len(none) == len(none.hash(9)) == 0
    absent = none.over(cp.full(3, -1))
    assert absent.nulls.all() and bool(absent.equals(absent).all())
    np.testing.assert_array_equal(absent.hash(9).get(), ArrowStrings(pa.nulls(3)).hash(9))


@pytest.mark.cudf
def test_nan_of_a_cudf_column_is_no_null_key():
    import cudf

    from dgpuhash.frames.dataframes import frames_of

    column = cudf.Series([1.0, None, np.nan], nan_as_null=False)
    assert frames_of(column).key_column(column, "k").nulls.get().tolist() == [False, True, False]
