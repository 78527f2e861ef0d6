"""COPS of WarpCore: its figures, layouts and widths."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from agreement import agree
from model import MapModel
from table_methods.contracts import check_combine, check_map, check_multi_map, check_set

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.errors import SpecError

LAYOUTS = [
    ("uint32", "packed"),
    ("uint32", "aos"),
    ("uint32", "soa"),
    ("int64", "aos"),
    ("int64", "soa"),
]
WIDTHS = (1, 2, 4, 8, 16, 32)


def some_keys(n, seed):
    drawn = np.random.default_rng(seed).integers(0, 2**32, n + n // 16, np.uint32)
    return np.unique(drawn)[np.random.default_rng(seed).permutation(n)]


def is_prime(number):
    return number > 1 and all(number % part for part in range(2, int(number**0.5) + 1))


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize(("word", "layout"), LAYOUTS)
def test_map(device, word, layout, width, tmp_path):
    make = functools.partial(
        HashMap, device=device.name, method="cops", layout=layout, width=width, load=0.95
    )
    check_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_set(device, word, tmp_path):
    make = functools.partial(HashSet, device=device.name, method="cops", load=0.95)
    check_set(device, make, word, tmp_path)


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize(("word", "layout"), LAYOUTS)
def test_multi_map(device, word, layout, width, tmp_path):
    make = functools.partial(
        MultiMap, device=device.name, method="cops", layout=layout, width=width, load=0.9
    )
    check_multi_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("value", ["int16", "complex128"])
def test_map_of_other_widths(device, value, tmp_path):
    make = functools.partial(HashMap, device=device.name, method="cops")
    check_map(device, make, "uint16", value, tmp_path)


@pytest.mark.parametrize("value", ["uint8", "int32", "float32", "float64", "int64"])
@pytest.mark.parametrize("layout", ["auto", "soa"])
def test_combine(device, layout, value):
    make = functools.partial(HashMap, device=device.name, method="cops", layout=layout)
    for key in ("uint32", "int64"):
        check_combine(device, make, key, value)


@pytest.mark.parametrize(("word", "layout"), LAYOUTS)
def test_each_width_finds_what_the_others_insert(device, word, layout):
    table = HashMap(word, word, 2000, device=device.name, method="cops", layout=layout, load=0.97)
    model, keys = MapModel(), some_keys(1800, 3).astype(word)
    recipe = table._store.table

    def choose(width):
        recipe.plan.settings["width"] = width
        recipe.replace()

    for width, part in zip(WIDTHS, np.array_split(keys, len(WIDTHS)), strict=True):
        choose(width)
        table.insert(device.array(part), device.array(part))
        model.insert(part, part)
    assert table._store.table is recipe
    for width in WIDTHS:
        choose(width)
        agree(device, table, model)
        assert not device.backend.to_host(table.contains(device.array(keys + 1 << 1))).all()
    for width, part in zip(WIDTHS[::-1], np.array_split(keys, len(WIDTHS)), strict=True):
        choose(width)
        assert device.backend.to_host(table.erase(device.array(part[::2]))).all()
        model.erase(part[::2])
        agree(device, table, model)


@pytest.mark.parametrize(
    ("load", "found", "absent"), [(0.8, 1.013, 1.165), (0.9, 1.052, 1.67), (0.95, 1.10, 2.68)]
)
def test_windows_that_searches_read(device, load, found, absent):
    n, seen = 200_000, []
    for seed in range(5):
        table = HashMap("u4", "u4", n, device=device.name, method="cops", load=load, seed=seed + 9)
        keys = device.array(some_keys(n, seed))
        table.insert(keys, keys)
        stats = table.stats()
        seen.append((stats.details["windows_found"], stats.details["windows_absent"]))
        assert stats.slots % 32 == 0 and is_prime(stats.slots // 32)
        assert stats.slots // 32 == stats.details["windows"]
        assert n / load <= stats.slots <= 1.02 * n / load
        assert 8 * stats.slots <= table.nbytes <= 8 * stats.slots + 4096
    assert np.mean(seen, axis=0) == pytest.approx((found, absent), rel=0.05)


def test_windows_are_walked():
    """Marks in every free slot make searches for absent keys read all windows."""
    table = HashMap("u4", "u4", 1000, device="cpu", method="cops")
    table.insert(some_keys(900, 1), some_keys(900, 1))
    before = table.stats()
    words = table._store.table.fields["keys"]
    words[words == np.uint64(2**64 - 1)] = np.uint64(2**64 - 2)
    after = table.stats()
    assert before.details["windows_absent"] < 2
    assert after.details["windows_absent"] == before.details["windows"]
    assert after.details["windows_found"] == before.details["windows_found"]


def test_lists_go_over_windows(device):
    """All values of a key are found, however many windows they fill."""
    table = MultiMap("u4", "u4", 3000, device=device.name, method="cops")
    keys = np.repeat(np.array([5, 7, 9], "u4"), (1500, 900, 1))
    values = np.arange(len(keys), dtype="u4")
    table.insert(device.array(keys), device.array(values))
    found, offsets = table.find(device.array(np.array([7, 8, 5, 9], "u4")))
    assert device.backend.to_host(offsets).tolist() == [0, 900, 900, 2400, 2401]
    found = device.host(found, "u4")
    assert sorted(found[:900]) == list(range(1500, 2400))
    assert sorted(found[900:2400]) == list(range(1500))
    assert found[2400:].tolist() == [2400]
    # 47 windows of nothing else, and 29, for two keys of three.
    assert table.stats().details["windows_found"] > 25


def test_it_grows_and_drops_marks(device):
    table = HashMap("i8", "i8", device=device.name, method="cops")
    model = MapModel()
    for seed in range(6):
        keys = some_keys(100 << seed, seed).astype("i8")
        table.insert(device.array(keys), device.array(keys))
        model.insert(keys, keys)
        table.erase(device.array(keys[: len(keys) // 3]))
        model.erase(keys[: len(keys) // 3])
        agree(device, table, model)
        stats = table.stats()
        assert stats.size + stats.tombstones <= table.capacity
    assert table.stats().details["rebuilds"] > 2


def test_launches_are_its_own(monkeypatch):
    seen = []
    backend = dgpuhash.backend.get("cpu")
    real = type(backend).launch

    def launch(self, kernel, args, n):
        seen.append(kernel.expression)
        real(self, kernel, args, n)

    monkeypatch.setattr(type(backend), "launch", launch)
    table = HashMap("u4", "u4", 100, method="cops", device="cpu", layout="soa")
    keys = np.arange(50, dtype="u4")
    table.insert(keys, keys)
    table.find(keys), table.contains(keys), table.erase(keys), table.items(), table.stats()
    assert seen
    assert [each for each in seen if "Cops<dg::u32,dg::u32,dg::Layout::soa>" not in each] == []


def test_settings():
    with pytest.raises(
        SpecError, match=r"layout='packed' with keys or values of 8.*use layout='aos'"
    ):
        HashMap("i8", "i8", 10, method="cops", layout="packed")
    with pytest.raises(SpecError, match="width=3; use 0 or 1 or 2 or 4"):
        HashMap("i4", "i4", method="cops", width=3)
    with pytest.raises(SpecError, match=r"load=1\.5; use a number from 0\.05 to 0\.98"):
        HashMap("i4", "i4", method="cops", load=1.5)
    with pytest.raises(SpecError, match="whose size is set by load="):
        HashMap("i4", "i4", method="cops", max_load=0.9)
    details = HashMap("i8", "i4", 10, method="cops", width=1).stats().details
    assert (details["layout"], details["mapping"]) == ("aos", "one-to-one")
    details = HashSet("i8", 10, method="cops").stats().details
    assert (details["width"], details["mapping"]) == (4, "many-to-one")
    assert MultiMap("i8", "i8", 10, method="cops").stats().details["width"] == 8
