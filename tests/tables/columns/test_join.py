"""Joined pairs of row numbers, against nested loops and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import keys_of
from strategies import KEY_DTYPES, keys_from, random_keys

import dgpuhash
from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.tables import select
from dgpuhash.tables.columns import distinct, join

HOWS = ["inner", "left", "semi", "anti", "outer"]


def by_hand(left, right, how):
    """Return all pairs in the documented order."""
    rows = {}
    for row, name in enumerate(keys_of(right)):
        rows.setdefault(name, []).append(row)
    pairs, matched = [], set()
    for row, name in enumerate(keys_of(left)):
        partners = rows.get(name, [])
        matched.update(partners)
        if how == "anti":
            partners = [] if partners else [-1]
        elif how == "semi":
            partners = partners[:1]
        elif how != "inner" and not partners:
            partners = [-1]
        pairs += [(row, partner) for partner in partners]
    if how == "outer":
        pairs += [(-1, row) for row in range(len(right)) if row not in matched]
    return pairs


def agree(device, left, right, how):
    found = dgpuhash.join_indices(device.array(left), device.array(right), how)
    assert [each.dtype for each in found] == [np.int64, np.int64]
    assert {type(each) for each in found} == {type(device.array(left))}
    pairs = list(zip(*(device.backend.to_host(each).tolist() for each in found), strict=True))
    assert pairs == by_hand(left, right, how)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dtype", KEY_DTYPES)
def test_every_dtype(device, dtype, how):
    agree(device, random_keys(dtype, 90, 1, distinct=30), random_keys(dtype, 70, 2), how)
    agree(
        device, random_keys(dtype, 50, 3, distinct=20), random_keys(dtype, 60, 3, distinct=20), how
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([], []),
        ([1, 2], []),
        ([], [1, 1]),
        ([1], [1]),
        ([1], [2]),
        ([-1, -2, -1], [-2, -1, -1]),
        ([5] * 40, [5] * 30),
        ([1, 2, 3], [3, 2, 1]),
        ([9, 9, 1], [3, 2, 1]),
    ],
)
def test_small_sides(device, left, right, how):
    agree(device, np.array(left, np.int64), np.array(right, np.int64), how)


@pytest.mark.parametrize("few_rows", [0, 2**63])
@pytest.mark.parametrize("how", HOWS)
def test_pairs_over_many_segments(device, how, few_rows, monkeypatch):
    monkeypatch.setattr(join, "_SEGMENT_PAIRS", dict.fromkeys(join._SEGMENT_PAIRS, 33))
    monkeypatch.setattr(join, "_FEW_ROWS", dict.fromkeys(join._FEW_ROWS, few_rows))
    random = np.random.default_rng(5)
    left = random.integers(0, 400, 300)
    right = np.concatenate([random.integers(200, 500, 200), np.full(200, 250)])
    agree(device, left, random.permutation(right), how)


@pytest.mark.parametrize("distinct", [3000, 60_000, 10**7])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_like_pandas(device, distinct, how):
    random = np.random.default_rng(distinct)
    left, right = random.integers(0, distinct, 40_000), random.integers(0, distinct, 30_000)
    frames = [
        pd.DataFrame({"key": keys, side: np.arange(len(keys))})
        for keys, side in ((left, "left"), (right, "right"))
    ]
    expected = frames[0].merge(frames[1], on="key", how=how)
    found = dgpuhash.join_indices(device.array(left), device.array(right), how)
    for rows, side in zip(found, ("left", "right"), strict=True):
        wanted = expected[side].fillna(-1).astype("int64")
        np.testing.assert_array_equal(device.backend.to_host(rows), wanted)


def test_a_heavy_key(device):
    left, right = np.array([1, 7, 2]), np.concatenate([np.full(300_000, 7), [2]])
    rows, partners = dgpuhash.join_indices(device.array(left), device.array(right))
    np.testing.assert_array_equal(device.backend.to_host(rows), [1] * 300_000 + [2])
    np.testing.assert_array_equal(device.backend.to_host(partners), np.arange(300_001))


@given(keys_from("int8"), keys_from("float32"), st.sampled_from(HOWS))
def test_any_two_columns(left, right, how):
    found = dgpuhash.join_indices(left, right, how)
    pairs = list(zip(*(rows.tolist() for rows in found), strict=True))
    assert pairs == by_hand(left.astype("float32"), right, how)


def test_unknown_how():
    with pytest.raises(SpecError, match="inner, left, semi, anti, outer"):
        dgpuhash.join_indices([1], [1], "right")


def test_dtypes_that_do_not_meet():
    with pytest.raises(KeyTypeError, match="left of dtype int64 and right of dtype datetime64"):
        dgpuhash.join_indices(np.arange(3), np.arange(3).astype("M8[s]"))


@pytest.mark.parametrize("asked", [0, 7, 3_000, 30_000])
@pytest.mark.parametrize(("stored", "keys"), [(1, 1), (900, 900), (5_000, 40), (20_000, 6_000)])
@pytest.mark.parametrize("dtype", ["u4", "u8"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sorts", [False, True])
def test_rows_by_key(device, stored, keys, asked, dtype, masked, sorts, monkeypatch):
    monkeypatch.setattr(join, "_FEW_ROWS", dict.fromkeys(join._FEW_ROWS, 2**63 if sorts else 2**12))
    monkeypatch.setattr(select, "_BLOCK_COUNTS", dict.fromkeys(select._BLOCK_COUNTS, sorts * 2**14))
    monkeypatch.setattr(distinct, "_IN_ORDER_ROWS", {"cpu": 0 if sorts else 2**17, "cuda": 0})
    monkeypatch.setattr(distinct, "_FEWEST_DIRECT", 2**63 if sorts else 2**12)
    random = np.random.default_rng(stored + asked)
    kept = random.permutation(np.resize(np.arange(keys), stored)) * 7919
    wanted = random.integers(0, 2 * keys, asked) * 7919
    valid = random.random(asked) < 0.7 if masked else np.ones(asked, bool)
    frame = pd.DataFrame({"k": wanted, "asked": np.arange(asked)})[valid]
    both = frame.merge(pd.DataFrame({"k": kept, "stored": np.arange(stored)}), on="k")
    mask = device.array(valid) if masked else None
    for of_asked in (True, False):
        rows = join.RowsByKey(device.backend, device.array(kept, dtype))
        assert rows.one_row_each == (stored == keys)
        ask = rows.pairs if of_asked else rows.pairs_by_row
        found = [device.backend.to_host(each) for each in ask(device.array(wanted, dtype), mask)]
        names = ["asked", "stored"] if of_asked else ["stored", "asked"]
        expected = both.sort_values(names)[names].to_numpy().T
        assert [each.tolist() for each in found] == expected.tolist()


@pytest.mark.parametrize("lines", [1, 2**8])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("asked", "stored"), [(1, 1), (700, 90), (5_000, 20_000), (40_000, 300)])
def test_filtered_rows(device, asked, stored, alone, lines, monkeypatch):
    # Walks of one line are refused, and the keys tried anew.
    monkeypatch.setattr(distinct, "_CLOSE_LINES", lines)
    random = np.random.default_rng(asked)
    kept, wanted = (random.integers(0, stored, each).astype("u8") for each in (stored, asked))
    kept[0] = wanted[-1] = 2**64 - 1
    sides = device.array(wanted), device.array(kept)
    found = join.filtered_rows(device.backend, *sides, alone=alone)
    assert found.dtype == np.int64
    expected = np.flatnonzero(np.isin(wanted, kept) != alone)
    np.testing.assert_array_equal(device.backend.to_host(found), expected)
