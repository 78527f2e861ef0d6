"""Keys with close hashes: slices of other tables, and chosen keys."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel, SetModel

from dgpuhash.errors import SpecError
from dgpuhash.seeds import VARIABLE, spread_seed
from dgpuhash.tables import (
    HashMap,
    HashSet,
    MultiMap,
    factorize,
    group_reduce,
    isin,
    join_indices,
    load,
    unique,
    value_counts,
)
from dgpuhash.tables.columns import distinct
from dgpuhash.tables.columns.distinct import Factorization

SEED = 77
LIMIT = 2**64
# Few enough that even tables where nothing is done against it end in time.
N = 6000
# As they follow each other, as they differ in the middle bits alone, and from a narrow range.
HASHES = {
    "neighbours": np.arange(N, dtype="u8"),
    "middle": np.arange(N, dtype="u8") << np.uint64(32),
    "narrow": np.random.default_rng(5).integers(0, 2**53, N, dtype="u8"),
}


def keys_of(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Return the keys with these hashes, by the inverse hash function."""
    word = hashes.copy()
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        word ^= word >> np.uint64(33)
        word *= np.uint64(pow(factor, -1, LIMIT))
    return word ^ word >> np.uint64(33) ^ np.uint64(spread_seed(seed))


@pytest.fixture(params=HASHES)
def close(request):
    return keys_of(HASHES[request.param], SEED)


def lines(table):
    return table.stats().lines_per_lookup


def test_keys_are_chosen_by_their_hashes(device):
    for hashes in HASHES.values():
        keys = device.array(keys_of(hashes, SEED))
        made = device.backend.to_host(device.backend.hash_keys(keys, SEED))
        assert (made == hashes).all()


def test_another_table_has_another_seed(device, monkeypatch):
    """A slice of a table's keys, which are in the order of its hashes, is any set to the next."""
    monkeypatch.delenv(VARIABLE, raising=False)
    first = HashSet.from_keys(device.array(np.arange(40_000, dtype="u8")))
    part = first.items()[:N]
    for table in (HashSet.from_keys(part), HashMap.from_arrays(part, part)):
        assert table.spec.seed != first.spec.seed
        assert lines(table) < 1.8
        assert table.stats().reseeds == 0


@pytest.mark.parametrize("rows", [N, 50])
def test_a_table_of_the_seed_they_were_chosen_for_takes_another(device, close, rows, caplog):
    table, model = HashSet("u8", seed=SEED, device=device.name), SetModel()
    with caplog.at_level(logging.INFO, logger="dgpuhash.tables"):
        for start in range(0, N, rows):
            part = close[start : start + rows]
            assert device.backend.to_host(table.insert(device.array(part))).all()
            model.insert(part)
        # The next growth is the time to do so.
        more = np.random.default_rng(1).integers(0, LIMIT, 2 * N, dtype="u8")
        table.insert(device.array(more))
        model.insert(more)
    agree(device, table, model)
    stats = table.stats()
    assert stats.reseeds == 1
    assert stats.seed != SEED == table.spec.seed
    assert stats.lines_per_lookup < 1.5
    assert f"have seed {stats.seed}:" in caplog.text
    assert f"seed {stats.seed} (reseeded: 1)" in repr(table)
    table.clear()
    assert (table.stats().seed, table.stats().reseeds) == (SEED, 0)


@pytest.mark.parametrize("value", ["u8", "u4", "S12"])
def test_maps(device, close, value):
    table, model = HashMap("u8", value, seed=SEED, device=device.name), MapModel()
    values = np.arange(N).astype(value)
    for start in range(0, N, 500):
        part = slice(start, start + 500)
        table.insert(device.array(close[part]), device.array(values[part]))
        model.insert(close[part], values[part])
    table.upsert(device.array(close[::3]), device.array(values[::-3][: len(close[::3])]))
    model.upsert(close[::3], values[::-3][: len(close[::3])])
    table.erase(device.array(close[::2]))
    model.erase(close[::2])
    agree(device, table, model)
    assert table.stats().reseeds > 0


def test_multimaps(device, close):
    table, model = MultiMap("u8", "i4", seed=SEED, device=device.name), MultiMapModel()
    values = np.arange(N, dtype="i4")
    for start in range(0, N, 1500):
        part = slice(start, start + 1500)
        table.insert(device.array(close[part]), device.array(values[part]))
        model.insert(close[part], values[part])
        table.insert(device.array(close[part]), device.array(-values[part]))
        model.insert(close[part], -values[part])
    agree(device, table, model)
    assert table.stats().reseeds > 0


def test_a_table_that_had_room_spreads_what_leaves_a_segment(device, close):
    """No growth, so no other seed; but no walk is longer than a stay and a few lines."""
    table = HashSet("u8", seed=SEED, capacity=4 * N, device=device.name)
    table.insert(device.array(close))
    assert len(table) == N
    assert table.stats().reseeds == 0
    assert lines(table) < 40
    table.rehash()
    assert lines(table) < 1.5


def test_by_chance_no_seed_is_changed(device):
    random = np.random.default_rng(7)
    for size in (100, 1000, 3000, 10_000, 100_000):
        for share in (0.9, 0.99):
            table = HashMap("u8", "u8", max_load=share, device=device.name)
            for _ in range(4):
                keys = random.integers(0, LIMIT, size, dtype="u8")
                table.insert(device.array(keys), device.array(keys))
            assert table.stats().reseeds == 0


def test_rehash(device):
    keys = np.arange(1000, dtype="i4")
    table, model = MultiMap("i4", "S20", device=device.name, seed=3), MultiMapModel()
    for _ in range(2):
        table.insert(device.array(keys), device.array(keys.astype("S20")))
        model.insert(keys, keys.astype("S20"))
    table.rehash(seed=9)
    assert table.spec.seed == table.stats().seed == 9
    agree(device, table, model)
    table.rehash()
    assert table.stats().seed != 9
    agree(device, table, model)
    with pytest.raises(SpecError, match="integer from 0"):
        table.rehash(seed=-1)
    bare = HashSet("i8")
    bare.rehash(seed=4)
    assert bare.spec.seed == 4


def test_the_seed_in_use_is_saved(device, tmp_path):
    close = keys_of(HASHES["middle"], SEED)
    table = HashSet("u8", seed=SEED, device=device.name)
    for start in range(0, N, 100):
        table.insert(device.array(close[start : start + 100]))
    table.save(tmp_path / "table")
    loaded = load(tmp_path / "table", device=device.name)
    assert table.stats().reseeds == 1
    assert loaded.spec.seed == table.stats().seed
    assert (loaded.stats().reseeds, len(loaded)) == (0, N)
    assert lines(loaded) < 1.5


@pytest.fixture
def fixed(monkeypatch):
    monkeypatch.setenv(VARIABLE, str(SEED))


def results(device, keys):
    """Return the results of column functions, on the host."""
    given, half = device.array(keys), device.array(keys[::2])
    found = [
        *factorize(given),
        unique(given),
        *value_counts(given),
        isin(given, half),
        *join_indices(given, half),
        *join_indices(given, half, "left"),
        *group_reduce(given, given, "max")[1:],
    ]
    return [np.asarray(device.backend.to_host(part)) for part in found]


def test_column_functions_do_not_depend_on_the_seed(device, close, monkeypatch):
    keys = np.concatenate([close, close[:100]])
    monkeypatch.delenv(VARIABLE, raising=False)
    drawn = results(device, keys)
    monkeypatch.setenv(VARIABLE, str(SEED))
    for one, other in zip(drawn, results(device, keys), strict=True):
        assert (one == other).all()


def test_a_grouping_goes_on_with_another_seed(device, close, fixed, monkeypatch):
    """Where keys were chosen for the first one, and no walk may be long."""
    tried = []
    made = distinct.GroupTable

    def noted(*args, seed, most_lines, **settings):
        tried.append(seed)
        return made(*args, seed=seed, most_lines=most_lines, **settings)

    monkeypatch.setattr(distinct, "GroupTable", noted)
    groups = Factorization(device.backend, device.array(close))
    assert len(groups) == N
    assert tried[0] == SEED
    assert 1 < len(set(tried)) == len(tried) < 4
