"""Verbs of distributed tables that write rows into others' memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from agreement import fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, SetModel, key_of, rows_of
from ranks import LandingEnd, Ranks
from strategies import keys_from, random_keys

from dgpuhash.distributed.pipeline.slices import ALIGNED, LandingColumns, RoundLayout
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.tables import HashMap
from dgpuhash.tables.open_addressing import batch_insert, cardinality

PAIRS = [("uint32", "int64"), ("int64", "int64"), ("int64", None)]
DTYPES = [("int8", "float32"), ("uint32", "int64"), ("int64", "int16"), ("float64", "complex128")]


@given(data=st.data(), rounds=st.integers(1, 4), ranks=st.integers(1, 6), turned=st.booleans())
def test_rooms_hold_what_comes_and_nothing_overlaps(data, rounds, ranks, turned):
    flat = st.lists(st.integers(0, 200), min_size=rounds * ranks**2, max_size=rounds * ranks**2)
    counts = np.array(data.draw(flat)).reshape(rounds, ranks, ranks)
    rows = RoundLayout.of(counts, turned=turned)
    for receiver in range(ranks):
        end = 0
        for number in range(rounds):
            begin = rows.begins[number, receiver]
            assert begin % ALIGNED == 0 and begin >= end
            order = [(receiver + turned + step) % ranks for step in range(ranks)]
            end = begin
            for sender in order if turned else range(ranks):
                assert rows.firsts[number, sender, receiver] == end
                end += counts[number, sender, receiver]
        assert end <= rows.ends[receiver]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 999)), min_size=1, max_size=5))
def test_columns_of_a_field_do_not_overlap(given_ranks):
    rows, begins = zip(*given_ranks, strict=True)
    like = [np.empty(0, np.int64), np.empty(0, np.uint8), np.empty((0, 5), np.uint8)]
    field = LandingColumns(like, rows, begins)
    firsts, ends = field.places([0] * len(rows)), field.places(rows)
    for rank, begin in enumerate(begins):
        edges = [begin, *itertools.chain(*zip(firsts[rank], ends[rank], strict=True))]
        assert edges == sorted(edges)
        assert edges[-1] <= field.ends[rank]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("key", "value"), DTYPES)
@settings(max_examples=10)
@given(data=st.data())
def test_sequences(device, size, key, value, data):
    """Of one piece in many slices; of several pieces none lands."""
    rows = data.draw(st.sampled_from([(10**6, 3), (20, 3)]))
    ranks = Ranks(device, size, rows, "map", key, value, ends=LandingEnd)
    model, default = MapModel(), np.array([77]).astype(value)
    verbs = st.sampled_from(["insert", "erase", "find", "contains", "count"])
    cuts = st.tuples(
        st.lists(st.integers(0, 60), max_size=5), st.lists(st.integers(0, 2), min_size=1)
    )
    for verb, keys, layout in data.draw(
        st.lists(st.tuples(verbs, keys_from(key), cuts), max_size=8)
    ):
        # The same of each row of a key, as any of them is stored.
        values = np.array([hash(key_of(one)) % 97 for one in keys], np.int32).astype(value)
        if verb == "insert":
            got = ranks.joined(Verb(verb), *layout, keys, values)
            fresh_once(keys, got[0], model.insert(keys, values))
        elif verb == "erase":
            fresh_once(keys, ranks.joined(Verb(verb), *layout, keys)[0], model.erase(keys))
        elif verb == "find":
            found, there = ranks.joined(Verb(verb, default=default[0]), *layout, keys)
            assert there.tolist() == model.contains(keys)
            stored = device.host(device.backend.from_host(found), value)
            assert rows_of(stored) == model.find(keys, default.tobytes())
        else:
            got = ranks.joined(Verb(verb), *layout, keys)
            assert got[0].astype(bool).tolist() == model.contains(keys)
        assert len(ranks) == len(model)


@pytest.mark.parametrize("verb", ["find", "contains", "count", "erase"])
def test_slices_and_answers_land(device, verb):
    keys = np.random.default_rng(3).permutation(3_000)
    ranks = Ranks(device, 3, (10**6, 200), "map", "int64", "int64", ends=LandingEnd)
    ranks.joined(Verb("insert"), [1000], [0, 2], keys[::2], keys[::2] * 3)
    before = [end.landed for end in ranks.ends]
    question = Verb(verb, sparing=PruningOptions(bloom_filter=False, deduplicate=False))
    got = ranks.joined(question, [500, 1_700], [0, 1, 2], keys)
    assert got[-1].astype(bool).tolist() == [True, False] * 1_500
    if verb == "find":
        assert (got[0][::2] == keys[::2] * 3).all()
    answer = {"find": 9, "count": 8}.get(verb, 1)
    landed = sum(end.landed for end in ranks.ends) - sum(before)
    # The keys of slices, and for each answer's exchange all of the room.
    assert landed > len(keys) * (8 + answer) / 2


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("value", ["int64", "uint32", "int16", "V5"])
def test_lookups_write_to_the_memory_of_those_who_asked(device, monkeypatch, size, value):
    """Of long slices, and words as wide as arrays have them; other answers are copied there."""
    written, real = [], HashMap._find_to

    def find_to(table, keys, default, values, found):
        written.append(real(table, keys, default, values, found))
        return written[-1]

    monkeypatch.setattr(HashMap, "_find_to", find_to)
    random = np.random.default_rng(size)
    keys = random.permutation(20_000)
    values = (keys % 30_000).astype("i8").view("V8").astype("V5") if value == "V5" else keys
    values = np.ascontiguousarray(values.astype(value))
    ranks = Ranks(device, size, (10**6, 2_000), "map", "int64", value, ends=LandingEnd)
    ranks.joined(Verb("insert"), [9_000], [0, 1], keys[::2], values[::2])
    question = Verb("find", sparing=PruningOptions(bloom_filter=False, deduplicate=False))
    found, there = ranks.joined(question, [3_000, 12_345], [0, 1, 0], keys)
    assert there[::2].all() and not there[1::2].any()
    stored = device.host(device.backend.from_host(found), value)
    assert rows_of(stored[::2]) == rows_of(values[::2])
    # Own rows of each half before there was room for answers are none of them.
    slices = size * (size - 1)
    assert not any(written) if value == "V5" else all(written) and len(written) > slices


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(
    ("key", "value"), [("uint32", "int64"), ("int64", "int64"), ("int64", None)]
)
@pytest.mark.parametrize("distinct", [True, False])
def test_new_keys_land_range_by_range(device, monkeypatch, size, key, value, distinct):
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(
        cardinality, "new_key_flags", lambda home, *_: home.from_host(np.array([True]))
    )
    keys = np.unique(random_keys(key, 60_000, 3))
    keys = keys if distinct else np.concatenate([keys, keys[::-2]])
    keys = np.random.default_rng(size).permutation(keys)
    values = [] if value is None else [np.arange(len(keys), dtype=value)]
    spec = ("set", key) if value is None else ("map", key, value)
    ranks = Ranks(device, size, (10**6, 6_000), *spec, capacity=50_000, ends=LandingEnd)
    got = ranks.joined(Verb("insert"), [len(keys) // 3, len(keys) // 2], [0, 1, 2], keys, *values)
    model = SetModel() if value is None else MapModel()
    fresh_once(keys, got[0], model.insert(keys, *values))
    assert len(ranks) == len(model)
    assert min(end.landed for end in ranks.ends) > len(keys) * keys.itemsize / size / 2
    assert ranks.joined(Verb("contains"), [], [0], keys)[0].all()
    if distinct and values:
        found, there = ranks.joined(Verb("find"), [1000], [0, 1], keys)
        assert there.all()
        assert (found == values[0]).all()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rows", [[0], [0, 500], [500, 0, 0, 1], [3, 400]])
@pytest.mark.parametrize("alike", [True, False])
def test_ranks_without_rows_and_owners_of_all(device, size, rows, alike):
    keys = np.full(sum(rows), 7) if alike else np.arange(sum(rows))
    ranks = Ranks(device, size, (10**6, 20), "map", "int64", "int64", ends=LandingEnd)
    layout = np.cumsum(rows)[:-1].tolist(), list(range(len(rows)))
    got = ranks.joined(Verb("insert"), *layout, keys, keys * 3)
    model = MapModel()
    fresh_once(keys, got[0], model.insert(keys, keys * 3))
    asked = keys + np.arange(len(keys)) % 2 * 10**6
    found, there = ranks.joined(Verb("find", default=1), *layout, asked)
    assert there.tolist() == model.contains(asked)
    assert (found == np.where(there, asked * 3, 1)).all()
    assert ranks.joined(Verb("erase"), *layout, keys)[0].sum() == len(model)
    assert len(ranks) == 0
