"""Text representation of tables."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash.tables import HashMap, HashSet, MultiMap


def test_stats(device):
    table = HashMap("int64", "int64", capacity=10_000, device=device.name)
    keys = device.array(np.arange(10_000))
    table.insert(keys, keys)
    stats = table.stats()
    assert (stats.size, stats.capacity) == (10_000, table.capacity)
    assert stats.load == stats.size / stats.slots <= 0.9
    assert stats.nbytes == table.nbytes
    assert stats.storage_density == pytest.approx(160_000 / table.nbytes)
    assert 1 <= stats.lines_per_lookup < 2
    assert stats.tombstones == 0
    table.erase(keys)
    emptied = table.stats()
    assert (emptied.size, emptied.load, emptied.lines_per_lookup) == (0, 0, 0)


def test_stats_count_tombstones_and_wide_values(device):
    table = HashMap("int64", "S40", max_load=0.95, device=device.name)
    keys = np.arange(5000)
    table.insert(device.array(keys), device.array(keys.astype("S40")))
    table.erase(device.array(keys[:2500]))
    stats = table.stats()
    assert 0 < stats.tombstones <= 2500
    assert stats.nbytes >= 5000 * 48
    assert stats.storage_density == pytest.approx(2500 * 48 / stats.nbytes)


def test_stats_of_lists(device):
    table = MultiMap("int32", "int32", device=device.name)
    keys = np.repeat(np.arange(100, dtype="int32"), 50)
    table.insert(device.array(keys), device.array(keys))
    stats = table.stats()
    assert stats.size == 5000
    assert stats.storage_density == pytest.approx((100 * 4 + 5000 * 4) / stats.nbytes)


@pytest.mark.parametrize("make", [HashSet, HashMap, MultiMap])
def test_repr_and_html(make, device):
    dtypes = ("int64",) if make is HashSet else ("int64", "float32")
    assert repr(make(*dtypes)).startswith(f"<{make.__name__} int64")
    assert "no device yet" in repr(make(*dtypes))
    table = make(*dtypes, device=device.name)
    keys = device.array(np.arange(1000))
    if make is HashSet:
        table.insert(keys)
    else:
        table.insert(keys, device.array(np.arange(1000, dtype="float32")))
    assert "1,000 of" in repr(table)
    assert ("1,000 rows" in repr(table)) == (make is MultiMap)
    assert device.name in repr(table)
    assert len(repr(table)) < 100
    html = table._repr_html_()
    assert html.startswith("<table>")
    assert "lines per lookup" in html
    assert "<table>" in table.stats()._repr_html_()
    assert "no device yet" in make(*dtypes)._repr_html_()


def test_a_multimap_says_rows_and_keys(device):
    table = MultiMap("int64", "int64", device=device.name)
    assert "0 rows, 0 of " in repr(table)
    keys = device.array(np.arange(1000) % 14)
    table.insert(keys, keys)
    said = f"MultiMap int64 -> int64: 1,000 rows, 14 of {table.capacity:,} keys, "
    assert said in repr(table)
    assert said.replace(">", "&gt;") in table._repr_html_()
