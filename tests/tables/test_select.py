"""Selection of found rows and of elements by row number, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpuhash.tables.select import gather_rows, rows_where, select_found, spread

WORDS = ["uint8", "int16", "int32", "float32", "int64", "float64", "datetime64[s]", "bool"]
ROWS = ["int64", "uint64", "uint32", "int32", "uint8"]


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 1_000, 70_001])
@pytest.mark.parametrize("numbers", ROWS)
@pytest.mark.parametrize("dtype", WORDS)
def test_elements_by_row(device, dtype, numbers, rows):
    if device.name == "cuda" and dtype.startswith("datetime"):
        dtype = "int64"
    rng = np.random.default_rng(rows)
    words = rng.integers(0, 2**62, 200).astype(dtype)
    chosen = rng.integers(0, 200, rows).astype(numbers)
    found = gather_rows(device.array(words), device.array(chosen))
    assert found.dtype == words.dtype
    assert device.backend.to_host(found).tolist() == words[chosen].tolist()


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_slices_and_what_does_not_lie_together(device, dtype):
    words, rows = np.arange(900).astype(dtype), np.arange(300)[::-1].copy()
    there, chosen = device.array(words), device.array(rows)
    for part, picked in [
        (slice(1, 700), slice(1, 200)),
        (slice(None, None, 3), slice(None)),
        (slice(None), slice(None, None, 2)),
    ]:
        found = gather_rows(there[part], chosen[picked])
        assert device.backend.to_host(found).tolist() == words[part][rows[picked]].tolist()
    pairs = gather_rows(there.reshape(450, 2), chosen)
    assert device.backend.to_host(pairs).tolist() == words.reshape(450, 2)[rows].tolist()
    some = device.array(rows % 2 == 0)
    assert device.backend.to_host(gather_rows(there[:300], some)).tolist() == [
        *words[:300][rows % 2 == 0]
    ]


def test_objects_are_no_words():
    words = np.array(["a", None, "c"], object)
    assert gather_rows(words, np.array([2, 1])).tolist() == ["c", None]


@given(flags=st.lists(st.booleans(), max_size=40))
def test_rows_that_were_found(device, flags):
    found = device.array(np.array(flags, np.uint8))
    words = device.array(np.arange(len(flags), dtype=np.uint64) * 3)
    expected = np.flatnonzero(flags)
    for named in (True, False):
        rows, values = select_found(device.backend, found, words, named=named)
        if all(flags) and not named:
            assert rows is None
        else:
            assert device.backend.to_host(rows).tolist() == expected.tolist()
        assert device.backend.to_host(values).tolist() == (expected * 3).tolist()


@pytest.mark.parametrize("rows", [0, 1, 7, 70_001])
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_rows_of_a_mask(device, rows, share):
    mask = np.random.default_rng(rows).random(rows) < share
    found = rows_where(device.backend, device.array(mask))
    assert found.dtype == np.int64
    assert device.backend.to_host(found).tolist() == np.flatnonzero(mask).tolist()
    alone, words = select_found(device.backend, device.array(mask))
    assert words is None
    assert device.backend.to_host(alone).tolist() == np.flatnonzero(mask).tolist()


def test_items_of_lists_that_may_be_empty(device):
    random = np.random.default_rng(1)
    for sizes in ([], [0], [0, 0, 3, 0, 1, 0, 0], random.integers(0, 4, 1000)):
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
        items = random.integers(-9, 9, len(sizes))
        made = spread(device.backend, device.array(items), device.array(offsets), int(offsets[-1]))
        expected = np.repeat(items, np.diff(offsets))
        assert device.backend.to_host(made).tolist() == expected.tolist()
