"""Pages: all matches once, each page within its bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpuhash.frames import FrameIndex, KeyEncoder, Matches, Page
from dgpuhash.frames.pages import POSITION_NBYTES

SIZES = st.sampled_from([1, 40, 300, 2_000, 1 << 20])


def walk(index: FrameIndex, keys: pd.DataFrame, nbytes: int) -> list[tuple[int, Page]]:
    """Return all pages, each with the key position that it starts from.

    Pages are requested as `Page` says.
    """
    pages = []
    spans = [(0, len(keys), 0)]
    while spans:
        first, end, skip = spans.pop()
        page = index.page(keys[first:end], nbytes=nbytes, skip=skip)
        pages.append((first, page))
        if page.rest is not None:
            ends = [first + position for position in (page.rest.key, *page.rest.cuts)]
            further = [(start, stop, 0) for start, stop in pairwise([*ends, end])]
            further[0] = (*further[0][:2], page.rest.skip)
            spans += reversed(further)
    return pages


def joined(pages: list[tuple[int, Page]]) -> Matches:
    query_rows = np.concatenate([first + page.matches.query_rows for first, page in pages])
    return Matches(query_rows, pd.concat([page.matches.frame for _, page in pages]))


def size(page: Page) -> int:
    frame = page.matches.frame
    return int(frame.memory_usage(index=False, deep=True).sum()) + POSITION_NBYTES * len(frame)


def check(index: FrameIndex, keys: pd.DataFrame, nbytes: int) -> list[tuple[int, Page]]:
    pages = walk(index, keys, nbytes)
    assert all(size(page) <= nbytes or len(page.matches.frame) == 1 for _, page in pages)
    found, wanted = joined(pages), index.match(keys)
    assert found.query_rows.tolist() == wanted.query_rows.tolist()
    pd.testing.assert_frame_equal(found.frame.reset_index(drop=True), wanted.frame)
    return pages


@given(
    stored=st.lists(st.integers(0, 9), max_size=60),
    asked=st.lists(st.integers(-1, 12), max_size=30),
    nbytes=SIZES,
    widths=st.integers(0, 2**32),
    kind=st.sampled_from(["int64", "Int64", "str", "object"]),
)
def test_pages_together_are_the_matches(stored, asked, nbytes, widths, kind):
    """Texts from empty to thousands of letters; most hashes collide."""
    rng = np.random.default_rng(widths)
    texts = ["x" * int(width) for width in rng.integers(1, 14, len(stored)) ** 3]
    rows = pd.DataFrame({"k": pd.Series(stored, dtype="int64"), "v": np.arange(len(stored))})
    rows["text"] = pd.Series(texts, dtype="object" if kind == "object" else "str")
    keys = pd.DataFrame({"k": np.array(asked, "int64")})
    if kind == "object":
        rows, keys = rows.astype({"k": "str"}), keys.astype({"k": "str"})
    rows, keys = rows.astype({"k": kind}), keys.astype({"k": kind})
    encoder = KeyEncoder.for_frame(rows, "k", hash_bits=3)
    index = FrameIndex.build(rows, "k", encoder=encoder)
    check(index, keys, nbytes)


@given(st.lists(st.integers(0, 40), unique=True), st.lists(st.integers(-1, 41)), SIZES)
def test_pages_of_an_index_with_one_row_a_key(stored, asked, nbytes):
    rows = pd.DataFrame({"k": np.array(stored, "int64"), "v": 0.5})
    check(FrameIndex.build(rows, "k"), pd.DataFrame({"k": np.array(asked, "int64")}), nbytes)


@given(
    st.lists(st.integers(0, 40), min_size=1, unique=True),
    st.lists(st.integers(-1, 41)),
    SIZES,
    st.sampled_from(["int64", "Int64"]),
    st.booleans(),
)
def test_positions_of_all_keys_need_not_be_named(stored, asked, nbytes, kind, plain):
    rows = pd.DataFrame({"k": np.array(stored, "int64"), "v": 0.5}).astype({"k": kind})
    index, keys = FrameIndex.build(rows, "k"), pd.DataFrame({"k": np.array(asked, "int64")})
    options = {"nbytes": nbytes, "columns": ["v"], "plain": plain}
    named, page = (index.page(keys, named=each, **options) for each in (True, False))
    assert page.rest == named.rest
    positions = page.matches.query_rows
    if positions is None:
        assert plain and set(asked) <= set(stored) and page.rest is None
        positions = np.arange(len(keys))
    assert positions.tolist() == named.matches.query_rows.tolist()
    values = [each.matches.frame[0] if plain else each.matches.frame["v"] for each in (page, named)]
    assert values[0].tolist() == values[1].tolist() == [0.5] * len(positions)


def test_few_pages_and_keys_are_sent_at_most_twice():
    rng = np.random.default_rng(0)
    stored = np.concatenate([rng.integers(0, 5_000, 20_000), np.full(20_000, 77)])
    index = FrameIndex.build(pd.DataFrame({"k": rng.permutation(stored), "v": 1.5}), "k")
    asked = rng.permutation(np.append(rng.integers(0, 6_000, 10_000), 77))
    asked = asked[(asked != 77) | (np.cumsum(asked == 77) == 1)]
    keys = pd.DataFrame({"k": asked})
    sent = []
    page = index.page
    index.page = lambda keys, **options: sent.append(len(keys)) or page(keys, **options)
    pages = check(index, keys, 24_000)
    # 1,000 rows fit a page.
    rows = sum(len(page.matches.frame) for _, page in pages)
    assert rows > 50_000
    assert len(pages) < 1.5 * rows / 1000
    assert sum(sent) < 2.5 * len(keys)
    alone = [page for _, page in pages if page.rest is not None and page.rest.skip]
    assert len(alone) == 19 or len(alone) == 20


def test_a_single_row_may_be_larger_than_a_page():
    rows = pd.DataFrame({"k": [1, 1, 1, 2], "v": ["a", "b" * 10_000, "c", "d"]})
    index = FrameIndex.build(rows, "k")
    pages = check(index, pd.DataFrame({"k": [1, 2, 3]}), 500)
    assert [page.matches.frame["v"].str.len().tolist() for _, page in pages][1] == [10_000]


@pytest.mark.parametrize("nbytes", [100, 10_000])
def test_categories_do_not_count(nbytes):
    texts = [f"category {number:05}" for number in range(1000)]
    rows = pd.DataFrame({"k": np.arange(1000) % 10, "c": pd.Categorical(texts)})
    pages = walk(FrameIndex.build(rows, "k"), pd.DataFrame({"k": np.arange(10)}), nbytes)
    assert len(joined(pages).frame) == 1000
    assert len(pages) <= max(2, 3 * 18 * 1000 // nbytes)


def test_objects_are_counted_anew_after_wider_ones_came():
    rows = pd.DataFrame({"k": [1] * 50, "v": pd.Series(["a"] * 50, dtype=object)})
    index = FrameIndex.build(rows, "k")
    assert len(check(index, rows[:1], 20_000)) == 1
    index.insert(rows.assign(v=pd.Series(["a" * 5000] * 50, dtype=object)))
    assert len(check(index, rows[:1], 20_000)) > 12


def test_no_keys_no_rows_no_columns():
    rows = pd.DataFrame({"k": [1, 1, 2]})
    for stored in (rows, rows[:0]):
        index = FrameIndex.build(stored, "k")
        for keys in (rows, rows[:0]):
            check(index, keys, 20)
            page = index.page(keys, nbytes=20, columns=[])
            assert list(page.matches.frame.columns) == []
