"""Strings of Arrow arrays: hashes, words, and comparisons of gathered rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.errors import ShapeError
from dgpuhash.frames.dataframes.strings import ArrowStrings

TEXTS = st.lists(st.none() | st.text(alphabet="ab\0é", max_size=12), max_size=12)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 2**32 - 1), st.booleans())
def test_gathered_strings_are_compared_and_hashed(left, right, seed, sliced):
    random = np.random.default_rng(seed)
    sides, texts = [], []
    for each in (left, right):
        array = pa.array([None, *each] if sliced else each, pa.large_string())[int(sliced) :]
        codes = random.integers(-1, len(each), 9)
        sides.append(ArrowStrings(array, codes))
        texts.append([None if code < 0 else each[code] for code in codes])
        whole = ArrowStrings(array)
        np.testing.assert_array_equal(
            whole.take(np.arange(len(each))).hash(5), ArrowStrings(whole.flat()).hash(5)
        )
        np.testing.assert_array_equal(
            sides[-1].hash(5), ArrowStrings(pa.array(texts[-1], pa.large_string())).hash(5)
        )
    np.testing.assert_array_equal(sides[0].equals(sides[1]), np.equal(*map(_objects, texts)))
    rows = random.integers(0, 9, 4)
    assert sides[0].take(rows).flat().to_pylist() == [texts[0][row] for row in rows]


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


def test_strings_of_unequal_number():
    with pytest.raises(ShapeError, match="2 and 1"):
        ArrowStrings(pa.array(["a", "b"])).equals(ArrowStrings(pa.array(["a"])))
