"""Counts, and values that are combined, on the workers of a cluster, against NumPy."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import dgpuhash
from dgpuhash.distributed import DistributedCountMap, DistributedMap
from dgpuhash.errors import CountOverflowError, KeyTypeError, SpecError, UnsupportedError
from dgpuhash.tables.columns import block_counts

pytestmark = pytest.mark.cluster

ROWS, KEYS = 6000, 500
MODES = ["distributed", "independent"]


def dask_of(column, chunks=1100):
    return da.from_array(column, chunks=chunks)


@pytest.fixture
def keys():
    return np.random.default_rng(0).integers(0, KEYS, ROWS)


@pytest.mark.parametrize("key", ["int64", "int16"])
@pytest.mark.parametrize("mode", MODES)
def test_counts(threads, tmp_path, keys, mode, key):
    keys = keys.astype(key)
    counts = np.random.default_rng(1).integers(0, 9, ROWS)
    asked = np.arange(KEYS + 10).astype(key)
    expected = np.zeros(KEYS + 10, np.uint64)
    with DistributedCountMap(key, client=threads, mode=mode) as table:
        assert table.total == len(table) == 0
        table.insert(dask_of(keys))
        np.add.at(expected, keys, 1)
        table.insert(dask_of(keys), dask_of(counts))
        table.insert(keys, counts.astype("uint8"))
        np.add.at(expected, keys, 2 * counts.astype(np.uint64))
        table.insert(keys[:50], 2**33)
        np.add.at(expected, keys[:50], 2**33)
        table.insert([])
        for given in (asked, dask_of(asked, 100)):
            found, there = (np.asarray(each) for each in table.find(given))
            assert found.dtype == np.uint64
            assert (found == expected).all()
            assert (there == (expected > 0)).all()
            assert (np.asarray(table.count(given)) == expected).all()
            assert (np.asarray(table.contains(given)) == there).all()
        assert table.total == int(expected.sum())
        stored, held = (np.asarray(each) for each in table.items())
        sums = np.zeros(KEYS + 10, np.uint64)
        np.add.at(sums, stored, held)
        assert (sums == expected).all()
        table.save(tmp_path / "counts")
        for again in (
            DistributedCountMap.load(tmp_path / "counts", client=threads),
            dgpuhash.load(tmp_path / "counts", client=threads),
            table.copy(),
        ):
            with again:
                assert isinstance(again, DistributedCountMap)
                again.merge(table)
                assert again.total == 2 * table.total
                assert (np.asarray(again.count(asked)) == 2 * expected).all()
        table.erase(asked[:3])
        assert (np.asarray(table.count(asked)) == np.where(asked < 3, 0, expected)).all()
        table.clear()
        assert table.total == 0


def test_frequent_keys_are_added_up_before_they_travel(threads, monkeypatch, keys):
    monkeypatch.setattr(block_counts, "LEAST_ROWS", 1000)
    with DistributedCountMap.from_keys(dask_of(keys % 7), client=threads) as table:
        assert (np.asarray(table.count(np.arange(7))) == np.bincount(keys % 7)).all()
        # Far fewer bytes than those of all rows.
        assert (table.stats()["exchange_nbytes"] < ROWS // 3 * 16).all()


def test_no_count_wraps(threads):
    with DistributedCountMap("int64", client=threads) as table:
        table.insert([1, 2, 3], 2**63)
        epoch = table.epoch
        for column, counts in (([2, 9, 2], 2**62), (np.arange(9), np.full(9, 2**63, np.uint64))):
            for given in (column, dask_of(np.asarray(column), 1)):
                arrayed = counts
                if np.ndim(counts) and isinstance(given, da.Array):
                    arrayed = dask_of(counts, 1)
                with pytest.raises(CountOverflowError, match="nothing was counted"):
                    table.insert(given, arrayed if np.ndim(counts) else 2**63)
        assert table.epoch == epoch
        assert table.count([1, 2, 3, 9]).tolist() == [2**63] * 3 + [0]
        # Sums that fit are stored, though their bound does not.
        table.insert(dask_of(np.array([1, 2, 9]), 1), 2**62)
        assert table.count([1, 2, 3, 9]).tolist() == [3 * 2**62] * 2 + [2**63, 2**62]
        with pytest.raises(CountOverflowError):
            table.merge(table)
        assert table.count([1]).tolist() == [3 * 2**62]


def test_counts_that_are_refused(threads):
    with DistributedCountMap("int64", client=threads) as table:
        with pytest.raises(SpecError, match="use 0 to"):
            table.insert([1], -1)
        for counts in (np.array([1, -1]), da.from_array(np.array([1, -1]), 1)):
            keys = np.array([1, 2]) if isinstance(counts, np.ndarray) else da.arange(2, chunks=1)
            with pytest.raises(SpecError, match="negative"):
                table.insert(keys, counts)
        with pytest.raises(KeyTypeError, match="not integers"):
            table.insert([1], [1.5])
        assert len(table) == 0
        table.insert([1, 1])
        assert table.count([1]).tolist() == [2]


UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "or": np.bitwise_or}


CASES = [(value, combine) for value in ("int16", "int64") for combine in UFUNCS]


@pytest.mark.parametrize(("value", "combine"), [*CASES, ("float32", "sum"), ("float32", "max")])
def test_combine(threads, keys, combine, value):
    values = np.random.default_rng(2).integers(-90, 90, ROWS).astype(value)
    with DistributedMap("int64", value, client=threads, piece_rows=700) as table:
        fresh = table.insert(dask_of(keys), dask_of(values), combine=combine)
        assert int(fresh.sum().compute()) == len(np.unique(keys)) == len(table)
        assert not table.insert(keys[:900], values[:900], combine=combine).any()
        expected = {}
        with np.errstate(over="ignore"):
            for key, each in zip([*keys, *keys[:900]], [*values, *values[:900]], strict=True):
                held = expected.get(key)
                expected[key] = each if held is None else UFUNCS[combine](held, each)
        found, _ = table.find(np.array(list(expected)))
        assert found.tolist() == [each.item() for each in expected.values()]


def test_combine_in_independent_maps(threads, keys):
    values = np.arange(ROWS)
    options = {"mode": "independent", "conflict": "sum", "client": threads}
    with DistributedMap("int64", "int64", **options) as table:
        for _ in range(2):
            table.insert(dask_of(keys), dask_of(values), combine="sum")
        found, _ = table.find(np.arange(KEYS))
        assert (found == 2 * np.bincount(keys, values).astype(int)).all()


def test_combine_is_refused(threads):
    with (
        DistributedMap("int64", "S5", client=threads) as table,
        pytest.raises(UnsupportedError, match="cannot be combined"),
    ):
        table.insert([1], [b"a"], combine="max")
    with DistributedMap("int64", "int64", client=threads) as table:
        with pytest.raises(SpecError, match="one of the two"):
            table.insert([1], [1], keep="first", combine="max")
        with pytest.raises(SpecError, match="use 'sum'"):
            table.insert([1], [1], combine="mean")
