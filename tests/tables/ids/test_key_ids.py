"""Two-way index: ids of keys and keys of ids, against a dictionary, by every method that has it."""

from __future__ import annotations

import copy
import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import keys_of
from strategies import KEY_DTYPES, key_pool, keys_from, random_keys
from table_methods.contracts import each_method

import dgpuhash
from dgpuhash import HashMap, HashSet, KeyIds
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import (
    DgpuhashError,
    FormatError,
    IdError,
    KeyTypeError,
    ShapeError,
    SpecError,
)
from dgpuhash.tables.serialization import read_file, write_file

# Primes of hash functions that papers print, and what a multiplication by them has in common.
PRIMES = [1_900_813, 334_214_459, 4_294_967_291]
every_method = each_method("ids")


def numbers(device, table, keys) -> dict[bytes, int]:
    """Return the id of each key that has one."""
    ids, found = table.ids_of(device.array(keys))
    assert ids.dtype == np.int64 and found.dtype == bool
    ids, found = device.backend.to_host(ids), device.backend.to_host(found)
    assert (ids[~found] == -1).all()
    return {
        key: int(number)
        for key, number, there in zip(keys_of(keys), ids, found, strict=True)
        if there
    }


def check(device, table, keys, asked) -> dict[bytes, int]:
    """Check both directions against a dictionary of the keys; return their ids."""
    first: dict[bytes, int] = {}
    for key in keys_of(keys):
        first.setdefault(key, len(first))
    held = numbers(device, table, keys)
    assert held.keys() == first.keys() and len(table) == len(first)
    assert sorted(held.values()) == list(range(len(first)))
    if table.method == "auto":
        assert held == first
    listed = device.host(table.items(), table.key_dtype)
    assert [held[key] for key in keys_of(listed)] == list(range(len(first)))
    assert numbers(device, table, asked) == {
        key: held[key] for key in keys_of(asked) if key in held
    }
    there = device.backend.to_host(table.contains(device.array(asked)))
    assert there.tolist() == [key in held for key in keys_of(asked)]
    back = np.random.default_rng(3).permutation(len(first)).repeat(2)
    named = device.host(table.keys_of(device.array(back)), table.key_dtype)
    assert [held[key] for key in keys_of(named)] == back.tolist()
    return held


@every_method
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_every_dtype(device, key, method):
    keys = random_keys(key, 400, 1, distinct=90)
    table = KeyIds.from_keys(device.array(keys), method=method, device=device.name)
    # On a GPU dates come as integers.
    if device.name == "cpu":
        assert table.key_dtype == key
    check(device, table, keys, key_pool(key))


@every_method
@pytest.mark.parametrize("key", ["int32", "float64"])
@given(data=st.data())
def test_ids_are_those_of_a_dictionary(device, key, method, data):
    keys, asked = data.draw(keys_from(key)), data.draw(keys_from(key))
    table = KeyIds.from_keys(device.array(keys), method=method, device=device.name)
    check(device, table, keys, asked)


@every_method
def test_many_keys(device, method):
    keys = random_keys("int64", 20_000, 5, distinct=9_000)
    table = KeyIds.from_keys(device.array(keys), method=method)
    held = check(device, table, keys, random_keys("int64", 500, 6))
    stats = table.stats()
    assert stats.size == len(held) == stats.capacity and stats.nbytes == table.nbytes
    assert stats.slots >= len(held) and stats.seed == table.spec.seed and stats.reseeds == 0


@every_method
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_keys_chosen_for_the_papers_functions(device, dtype, method):
    steps = np.arange(600, dtype=np.uint64)
    for prime in PRIMES:
        multiples = (steps * np.uint64(prime)).astype(dtype)
        alike = steps % 7 + np.uint64(prime) * steps
        for keys in (multiples, alike.astype(dtype)):
            check(device, KeyIds.from_keys(device.array(keys), method=method), keys, keys[::3] + 1)


@every_method
@pytest.mark.parametrize("key", ["uint32", "uint64"])
def test_patterns_that_slots_reserve_have_ids(device, key, method):
    top = np.iinfo(key).max
    for keys in ([top], [top - 1], [top - 1, top], [5, top, 9, top - 1], [0, top - 2]):
        keys = np.array(keys, key)
        check(device, KeyIds.from_keys(device.array(keys), method=method), keys, key_pool(key))


@every_method
@pytest.mark.parametrize("key", ["int16", "float32", "datetime64[s]"])
def test_copies_and_saves_have_the_same_ids(device, key, method, tmp_path):
    keys = random_keys(key, 300, 2, distinct=120)
    table = KeyIds.from_keys(device.array(keys), method=method, device=device.name)
    held = check(device, table, keys, key_pool(key))
    table.save(tmp_path / "ids")
    for made in (
        table.copy(),
        copy.copy(table),
        copy.deepcopy(table),
        pickle.loads(pickle.dumps(table)),
        KeyIds.load(tmp_path / "ids", device.name),
        dgpuhash.load(tmp_path / "ids", device.name),
    ):
        assert type(made) is KeyIds and made.method == method and made.device == device.name
        assert made.spec.settings == table.spec.settings
        assert made.stats().seed == table.stats().seed
        assert numbers(device, made, keys) == held == check(device, made, made_in(held, keys), keys)


def made_in(held, keys) -> np.ndarray:
    """Return the keys in the order of their ids."""
    rows = {held[key]: row for row, key in enumerate(keys_of(keys))}
    return keys[[rows[number] for number in range(len(rows))]]


@every_method
def test_no_keys(device, method, tmp_path):
    for table in (
        KeyIds.from_keys(device.array(np.zeros(0, "int32")), method=method),
        KeyIds("int32", method=method, device=device.name),
        KeyIds("int32", method=method),
    ):
        assert len(table) == 0 and "no keys" in repr(table)
        assert numbers(device, table, np.arange(3, dtype="int32")) == {}
        assert len(table.items()) == len(table.keys_of(device.array(np.zeros(0, int)))) == 0
        with pytest.raises(IdError, match="id 0 in row 0 has no key; ids are none"):
            table.keys_of(device.array(np.zeros(2, int)))
        table.save(tmp_path / "ids", overwrite=True)
        assert len(KeyIds.load(tmp_path / "ids")) == 0


@every_method
def test_ids_out_of_range_name_row_and_remedy(device, method):
    table = KeyIds.from_keys(device.array(np.array([30, 10, 30])), method=method)
    for ids, wrong, row in (
        (np.array([0, 1, 2, 9]), "2", 2),
        (np.array([1, -1]), "-1", 1),
        (np.array([200, 0], "uint8"), "200", 0),
        (np.array([1, 2**63 + 5], "uint64"), "9,223,372,036,854,775,813", 1),
    ):
        with pytest.raises(
            IndexError, match=rf"id {wrong} in row {row} .* 0 to 1; .*ids\[found\]"
        ) as got:
            table.keys_of(device.array(ids))
        assert isinstance(got.value, DgpuhashError)
    ids, found = table.ids_of(device.array(np.array([10, 99])))
    assert device.backend.to_host(table.keys_of(ids[found])).tolist() == [10]


def test_what_are_no_ids_and_no_keys():
    table = KeyIds.from_keys([30, 10])
    for ids in ([0.0], [True], ["0"], np.array([0, 1], "M8[s]"), [None]):
        with pytest.raises((KeyTypeError, ShapeError)):
            table.keys_of(ids)
    for ids in (0, np.zeros((2, 1), int), np.zeros((2, 1), "uint64")):
        with pytest.raises(ShapeError):
            table.keys_of(ids)
    for keys in (["a"], [None], np.zeros((2, 2)), np.zeros(2, "S3")):
        with pytest.raises((KeyTypeError, ShapeError)):
            KeyIds.from_keys(keys)
        with pytest.raises((KeyTypeError, ShapeError)):
            table.ids_of(keys)
    with pytest.raises(KeyTypeError):
        KeyIds("S3")


def test_methods_without_ids_and_their_settings_are_refused():
    for method in ("slab", "bucket_list"):
        with pytest.raises(SpecError, match=r"serves no KeyIds; methods of KeyIds: auto, .*cops"):
            KeyIds.from_keys([1], method=method)
    with pytest.raises(SpecError, match="is no method"):
        KeyIds("int8", method="none")
    with pytest.raises(SpecError, match="no setting 'load'"):
        KeyIds("int8", load=0.5)
    with pytest.raises(SpecError, match="layout='packed' with keys or values of 8 bytes"):
        KeyIds.from_keys([1], method="cops", layout="packed")


@pytest.mark.parametrize("layout", ["packed", "aos", "soa"])
@pytest.mark.parametrize("load", [0.3, 0.98])
def test_settings_of_a_method(device, layout, load):
    keys = random_keys("uint32", 3000, 4, distinct=2000)
    table = KeyIds.from_keys(device.array(keys), method="cops", layout=layout, load=load, width=1)
    check(device, table, keys, key_pool("uint32"))
    stats = table.stats()
    assert stats.details["layout"] == layout and stats.details["width"] == 1
    assert stats.load == pytest.approx(load, rel=0.1)
    assert table.nbytes == 8 * stats.slots + 64 + 4 * len(table)


@pytest.mark.parametrize("stash", [101, 0])
def test_keys_in_the_stash_and_builds_that_fail(device, stash):
    settings = {"method": "cuckoo", "functions": 2, "space": 2.1, "stash": stash}
    seen = 0
    for seed in range(30):
        keys = random_keys("uint32", 400, seed, distinct=250)
        table = KeyIds.from_keys(device.array(keys), seed=seed, **settings)
        details = table.stats().details
        if details["stash"] or details["attempts"]:
            seen += 1
            held = check(device, table, keys, key_pool("uint32"))
            assert numbers(device, pickle.loads(pickle.dumps(table)), keys) == held
            assert table.nbytes == 8 * (table.stats().slots + stash) + 64 + 16 + 4 * len(table)
    assert 0 < seen < 15


@every_method
@pytest.mark.parametrize("key", ["uint32", "uint64"])
def test_memory_is_that_of_a_map_and_the_keys(device, key, method):
    keys = random_keys(key, 3000, 4, distinct=2000)
    table = KeyIds.from_keys(device.array(keys), method=method, seed=3)
    listed = table.items()
    assert table.stats().storage_density == listed.nbytes / table.nbytes
    if method == "auto":
        assert table.nbytes == 16 * table.stats().slots + listed.nbytes
    else:
        held = HashMap.from_arrays(listed, listed, method=method, seed=3)
        assert table.nbytes == held.nbytes + listed.nbytes


def test_sizes_follow_distinct_keys(device):
    few = device.array(np.arange(100_000) % 50)
    table = KeyIds.from_keys(few)
    stats = table.stats()
    assert stats.slots < 200 and stats.nbytes == 16 * stats.slots + 8 * 50 == table.nbytes
    assert device.backend.to_host(table.ids_of(few)[0]).tolist() == list(range(50)) * 2000
    many = KeyIds.from_keys(device.array(np.arange(10_000)))
    assert 10_000 / 0.7 < many.stats().slots < 10_000 / 0.5


def test_other_dtypes_are_compared_by_value():
    table = KeyIds.from_keys(np.array([3, 200, 5], "uint8"))
    ids, found = table.ids_of(np.array([5.0, 5.5, np.nan, 200]))
    assert ids.tolist() == [2, -1, -1, 1] and found.tolist() == [True, False, False, True]
    assert table.ids_of([300, -56, 3])[0].tolist() == [-1, -1, 0]
    assert table.contains(np.array([2**40 + 3, 3])).tolist() == [False, True]
    assert table.keys_of(np.array([2, 2], "int8")).tolist() == [5, 5]
    dates = KeyIds.from_keys(np.array(["NaT", "2020-01-01", "NaT"], "M8[D]"))
    assert len(dates) == 2 and dates.ids_of(np.array(["2020-01-01"], "M8[s]"))[0].tolist() == [1]


def test_answers_are_of_the_kind_of_the_question():
    table = KeyIds.from_keys(pd.Series([30, 10, 30]))
    asked = pd.Series([10, 99], index=["a", "b"])
    ids, found = table.ids_of(asked)
    pd.testing.assert_series_equal(ids, pd.Series([1, -1], index=["a", "b"]))
    pd.testing.assert_series_equal(found, pd.Series([True, False], index=["a", "b"]))
    pd.testing.assert_series_equal(table.keys_of(ids[found]), pd.Series([10], index=["a"]))


def test_arrays_of_the_user_are_not_kept():
    keys = np.arange(100, 200)
    table = KeyIds.from_keys(keys)
    keys[:] = 0
    table.items()[:] = 0
    assert table.ids_of([150])[0].tolist() == [50] and table.keys_of([50]).tolist() == [150]


@each_method("ids")
def test_kernels_are_those_of_the_method(monkeypatch, method):
    seen: list[str] = []
    for name in ("launch", "prepare"):
        real = getattr(CpuBackend, name)

        def note(self, kernel, args, n, real=real):
            seen.append(kernel.expression)
            return real(self, kernel, args, n)

        monkeypatch.setattr(CpuBackend, name, note)
    table = KeyIds.from_keys(np.arange(500), method=method)
    built = list(seen)
    seen.clear()
    table.ids_of(np.arange(9))
    assert len(seen) == 1
    if method == "auto":
        assert seen[0].startswith("dg::group_find")
    else:
        kind = type(table._store._maps.table).__name__
        assert f"find<dg::{kind}<" in seen[0]
        assert sum(f"verb::number<dg::{kind}<" in each for each in built) == 1
    assert not any(re.match(r"dg::(open|region|list)_", each) for each in built)


def test_repr_and_html_tell_what_it_is():
    table = KeyIds.from_keys(np.arange(2000), method="cops", seed=5)
    assert repr(table).startswith("<KeyIds int64 (cops): 2,000 keys with ids 0 to 1,999, ")
    assert repr(table).endswith(" KiB, cpu, seed 5>") and "windows" in table._repr_html_()
    assert "1 key with id 0" in repr(KeyIds.from_keys([7]))
    assert repr(KeyIds("int8", seed=3)) == "<KeyIds int8: no keys, 0 B, no device yet, seed 3>"


@pytest.fixture(params=["auto", "cops", "two_level_cuckoo"])
def saved(request, tmp_path):
    KeyIds.from_keys(np.array([7, 8, 9, 8]), method=request.param).save(tmp_path / "ids")
    return tmp_path / "ids"


def test_files_that_claim_other_keys(saved):
    header, buffers = read_file(saved)
    keys = buffers["keys"].view(np.uint64)
    for size, raw in ((3, keys[[0, 1, 1]]), (2, keys), (4, keys), (3, keys[:2])):
        write_file(saved, {**header, "size": size}, {"keys": raw}, overwrite=True)
        with pytest.raises(FormatError, match="is damaged"):
            KeyIds.load(saved)
    write_file(saved, header, {}, overwrite=True)
    with pytest.raises(FormatError, match="'keys' is missing"):
        KeyIds.load(saved)
    write_file(saved, header, {"keys": keys}, overwrite=True)
    with pytest.raises(FormatError, match="holds a ids and not a set"):
        HashSet.load(saved)
    for name in ("method", "kind"):
        wrong = json.dumps({**json.loads(header["spec"]), name: "gone"})
        write_file(saved, {**header, "spec": wrong}, {"keys": keys}, overwrite=True)
        with pytest.raises(FormatError, match="gone"):
            KeyIds.load(saved)


def test_damaged_bytes(saved):
    whole = saved.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:cut])
        with pytest.raises(FormatError):
            KeyIds.load(saved)
    for place in range(0, len(whole), 37):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            KeyIds.load(saved)
        except FormatError:
            continue
        # Padding between the manifest and the keys tells nothing.
        assert whole[place] == 0
