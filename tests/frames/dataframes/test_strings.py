"""Strings of Arrow arrays: hashes, words, and comparisons of gathered rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames import paper_cudf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgpuhash.errors import ShapeError
from dgpuhash.frames.dataframes.cudf_columns import CudfStrings
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.groupby.groups import numbered

TEXTS = st.lists(st.none() | st.text(alphabet="ab\0é", max_size=12), max_size=12)


@pytest.fixture(params=["arrow", "int32 of cuDF", "int64 of cuDF"])
def column(request, monkeypatch):
    """Return what makes strings of an Arrow array: Arrow's, or simulated ones of cuDF."""
    if request.param == "arrow":
        return ArrowStrings
    paper_cudf.install(monkeypatch)
    monkeypatch.setattr(CudfStrings, "device", "cpu")
    kind = pa.string() if "int32" in request.param else pa.large_string()
    return lambda array: CudfStrings(paper_cudf.TextColumn(array.cast(kind)))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TEXTS, TEXTS, st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_gathered_strings_are_compared_and_hashed(column, left, right, seed, before):
    random = np.random.default_rng(seed)
    sides, texts = [], []
    for each in (left, right):
        rows = [*["a", None][:before], *each, "b"]
        whole = column(pa.array(rows, pa.large_string())[before : len(rows) - 1])
        assert len(whole) == len(each)
        assert_nulls(whole, each)
        np.testing.assert_array_equal(whole.hash(5), hashes_of(each))
        for n in (len(each) // 2, 2 * len(each), 9):
            codes = random.integers(-1, len(each), n)
            some, own = whole.over(codes), [None if code < 0 else each[code] for code in codes]
            assert_nulls(some, own)
            np.testing.assert_array_equal(some.hash(5), hashes_of(own))
        sides.append(some)
        texts.append(own)
    np.testing.assert_array_equal(sides[0].equals(sides[1]), np.equal(*map(_objects, texts)))
    rows = random.integers(0, 9, 4)
    some, own = sides[0].take(rows), [texts[0][row] for row in rows]
    assert_nulls(some, own)
    np.testing.assert_array_equal(some.hash(5), hashes_of(own))
    assert some.equals(some).all()


def hashes_of(texts):
    return ArrowStrings(pa.array(texts, pa.large_string())).hash(5)


def assert_nulls(strings, texts):
    absent = [text is None for text in texts]
    assert (strings.nulls is None) == (not any(absent))
    assert strings.nulls is None or strings.nulls.tolist() == absent


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.lists(st.integers(-1, 11), max_size=20))
def test_hashes_are_those_of_equal_strings_and_gathers_are_flat(texts, codes):
    codes = np.array([min(code, len(texts) - 1) for code in codes], np.int64)
    own = [None if code < 0 else texts[code] for code in codes]
    strings = ArrowStrings(pa.array(texts, pa.string())).over(codes)
    assert strings.flat().to_pylist() == own
    hashes = strings.hash(5).tolist()
    expected = [[one == other for other in own] for one in own]
    assert [[one == other for other in hashes] for one in hashes] == expected


def _objects(texts):
    made = np.empty(len(texts), object)
    made[:] = texts
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab\0", max_size=9), min_size=1, max_size=12))
def test_short_strings_are_numbers(texts):
    words = ArrowStrings(pa.array(["before", *texts, "after"])[1:-1]).words()
    lengths = {len(each) for each in texts}
    alike = {each[:1] for each in texts}, {each[8:] for each in texts}
    differ = lengths == {9} and all(len(each) > 1 for each in alike)
    assert (words is None) == (differ or (len(lengths) > 1 and max(lengths) > 7))
    if words is not None:
        expected = [[one == other for other in texts] for one in texts]
        np.testing.assert_array_equal(words[:, None] == words, expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="ab", min_size=10, max_size=10), min_size=1, max_size=12),
    st.integers(0, 22), st.integers(0, 22),
)  # fmt: skip
def test_strings_that_differ_in_eight_bytes_are_numbers(texts, before, after):
    whole = ["x" * before + each + "y" * after for each in texts]
    words = ArrowStrings(pa.array(["before", *whole, "after"])[1:-1]).words()
    apart = [place for place in range(10) if len({each[place] for each in texts}) > 1]
    few = not apart or apart[-1] - apart[0] < 8
    assert (words is not None) == (few and 10 + before + after <= 32)
    if words is not None:
        expected = [[one == other for other in texts] for one in texts]
        np.testing.assert_array_equal(words[:, None] == words, expected)


@pytest.mark.parametrize("place", [0, 3, 14])
def test_one_string_that_differs_elsewhere(place):
    texts = [f"abcd{number:08}xyz" for number in range(1000)]
    words = ArrowStrings(pa.array(texts)).words()
    assert words is not None and len(np.unique(words)) == 1000
    texts[501] = texts[501][:place] + "é" + texts[501][place + 1 :]
    assert ArrowStrings(pa.array(texts)).words() is None
    texts[501] = texts[501][:place] + "-" + texts[501][place + 1 :]
    assert len(texts[501]) == 15 and ArrowStrings(pa.array(texts)).words() is None


def test_strings_that_have_no_words():
    assert ArrowStrings(pa.array(["a", None])).words() is None
    assert ArrowStrings(pa.array([], pa.string())).words() is None
    assert ArrowStrings(pa.array(["a"]), np.array([0])).words() is None


@pytest.mark.parametrize("text", ["{}", "a long text before {:08}, and after"])
def test_codes_of_many_strings_with_few_values(text):
    rows = np.random.default_rng(3).integers(0, 300, 2**15)
    values = np.array([text.format(number) for number in range(300)], object)
    whole = pa.array(["before", *values[rows], "after"], pa.large_string())[1:-1]
    codes = ArrowStrings(whole).dictionary_codes()
    assert len(np.unique(codes)) == 300 and len(set(zip(codes, rows, strict=True))) == 300
    with_null = pa.concat_arrays([whole, pa.array([None], whole.type)])
    several = pa.array(list(map(str, range(2**15))), pa.large_string())
    for others in (with_null, whole[: 2**14 - 1], several):
        assert ArrowStrings(others).dictionary_codes() is None
    found = numbered([pd.Series(values[rows], dtype="str"), rows % 2])
    expected = numbered([rows, rows % 2])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_strings_of_unequal_number():
    with pytest.raises(ShapeError, match="2 and 1"):
        ArrowStrings(pa.array(["a", "b"])).equals(ArrowStrings(pa.array(["a"])))
