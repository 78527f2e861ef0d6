"""Lookups of another dtype in distributed tables, as in local tables."""

from __future__ import annotations

import datetime
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.errors import KeyTypeError
from dgpuhash.tables import HashMap, MultiMap

pytestmark = pytest.mark.cluster

KEYS = np.array([*range(0, 9000, 3), 2**53, 2**62, -1])
VALUES = np.arange(len(KEYS)) * 0.5
EMPTY = np.array([])
ASKED = [
    np.concatenate([np.arange(0, 9000, 1.5), [2.0**53, 2.0**62, -1, np.nan, np.inf, 1e300]]),
    np.array([2**64 - 1, 2**53, 2**53 + 1, 3, 4], "uint64"),
    np.array([0, 3, 4, 127, -1], "int8"),
    EMPTY,
    np.array([], "U3"),
]
LISTS: list[Any] = [[2**70, 3, 4.0, 6.0, 6.5], [], [2**63, -1, 2**53 + 1], (True, False)]
FORMS = [*ASKED, *LISTS, *(da.from_array(each, chunks=1000) for each in ASKED), pd.Series([3.5, 3])]


def computed(answer: Any) -> Any:
    return np.asarray(answer.compute() if isinstance(answer, da.Array) else answer)


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_answers_are_those_of_local_tables(threads, form):
    given = FORMS[form]
    plain = given.compute() if isinstance(given, da.Array) else given
    expected = HashMap.from_arrays(KEYS, VALUES)
    with DistributedMap.from_arrays(KEYS, VALUES) as table:
        for bloom_filter in (False, True):
            options = {"bloom_filter": bloom_filter, "deduplicate": bloom_filter}
            for verb in ("contains", "count"):
                found = getattr(table, verb)(given, **options)
                wanted = np.asarray(getattr(expected, verb)(plain))
                np.testing.assert_array_equal(computed(found), wanted, strict=True)
            values, found = table.find(given, default=-7, **options)
            for one, wanted in zip((values, found), expected.find(plain, -7), strict=True):
                np.testing.assert_array_equal(computed(one), np.asarray(wanted), strict=True)
            for one, wanted in zip(
                table.match(given, **options), expected.match(plain), strict=True
            ):
                np.testing.assert_array_equal(computed(one), wanted)
        np.testing.assert_array_equal(computed(table.erase(given)), expected.erase(plain))
        assert len(table) == len(expected)


def test_lists_of_values(threads):
    keys = np.concatenate([KEYS, KEYS[:100]])
    values = np.arange(len(keys))
    local = MultiMap.from_arrays(keys, values)
    with DistributedMultiMap.from_arrays(keys, values) as table:
        for asked in (ASKED[0], LISTS[0]):
            for one, wanted in zip(table.find(asked), local.find(asked), strict=True):
                np.testing.assert_array_equal(one, wanted, strict=True)
            rows, found = table.match(asked)
            offsets = local.find(asked)[1]
            np.testing.assert_array_equal(rows, np.repeat(np.arange(len(asked)), np.diff(offsets)))
            np.testing.assert_array_equal(found, local.find(asked)[0])
            np.testing.assert_array_equal(table.count(asked), local.count(asked))
        lazy = da.from_array(ASKED[0], chunks=2500)
        found, offsets = table.find(lazy)
        np.testing.assert_array_equal(found.compute(), local.find(ASKED[0])[0])
        rows, found = table.match(lazy)
        np.testing.assert_array_equal(rows.compute(), table.match(ASKED[0])[0])
        np.testing.assert_array_equal(table.erase(lazy).compute(), local.erase(ASKED[0]))
        assert len(table) == len(local)


def test_dates_of_other_units_and_lists_of_them(threads):
    days = np.array(["2026-03-01", "2026-03-02", "NaT"], "M8[D]")
    with DistributedSet.from_keys(days) as table:
        seconds = days.astype("M8[s]") + np.array([0, 1, 0], "m8[s]")
        for asked in (seconds, da.from_array(seconds, chunks=2)):
            assert computed(table.contains(asked)).tolist() == [True, False, True]
        asked = [datetime.date(2026, 3, 1), pd.Timestamp("2026-03-02"), datetime.date(9999, 1, 1)]
        assert table.contains(asked).tolist() == [True, True, False]
        with pytest.raises(KeyTypeError, match="None at position 1"):
            table.contains([asked[0], None])
    with DistributedSet.from_keys([datetime.date(2026, 3, 1)]) as table:
        assert table.key_dtype == "M8[D]"


def test_keys_that_may_be_asked_for_are_not_stored(threads):
    with DistributedSet.from_keys(KEYS) as table:
        for keys in (ASKED[1], LISTS[0], da.from_array(ASKED[0], chunks=5000)):
            with pytest.raises(KeyTypeError, match="astype"):
                table.insert(keys)
        for keys in (np.array(["a"]), da.from_array(np.array(["a"])), np.array(["2026"], "M8[D]")):
            with pytest.raises(KeyTypeError, match="astype"):
                table.contains(keys)
        assert len(table) == len(KEYS)
        assert table.insert(da.from_array(EMPTY)).compute().tolist() == []
