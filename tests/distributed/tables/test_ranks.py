"""Verbs of distributed tables on ranks of one process, against models."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agreement import fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, key_of, rows_of
from ranks import Ranks
from strategies import key_pool, keys_from, random_keys

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.constants import ANY_ORDER_PARTS
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.collective.shared_memory import CALLS
from dgpuhash.distributed.collective.streams import SideStream
from dgpuhash.distributed.pipeline.rounds import TOGETHER, PipelinedRounds
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.tables.open_addressing import batch_insert, cardinality
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild

DTYPES = [
    ("int8", "float32"),
    ("uint32", "int64"),
    ("int64", "int16"),
    ("float64", "complex128"),
    ("datetime64[s]", "S5"),
]
# Rows of a piece, and of a slice, by the number of ranks: one slice, several, many.
ROWS = {1: (7, 7), 2: (7, 3), 3: (20, 1)}
# What may be left out of a question.
SPARINGS = [
    PruningOptions(),
    PruningOptions(bloom_filter=True),
    PruningOptions(deduplicate=True),
    PruningOptions(bloom_filter=True, deduplicate=True),
]
FEW = settings(max_examples=15)


def layouts():
    cuts = st.lists(st.integers(0, 60), max_size=5)
    return st.tuples(cuts, st.lists(st.integers(0, 2), min_size=1, max_size=4))


def sequences(test):
    """Run `test` for several numbers of ranks and pairs of dtypes."""
    test = FEW(given(data=st.data())(test))
    test = pytest.mark.parametrize("size", [1, 2, 3])(test)
    return pytest.mark.parametrize(("key", "value"), DTYPES)(test)


def steps(key, verbs):
    return st.lists(
        st.tuples(st.sampled_from(verbs), keys_from(key), st.integers(0, 2**16), layouts()),
        max_size=8,
    )


def numbered(value, n, seed):
    return (np.arange(n) + seed).astype(np.int32).astype(value)


def bytes_of(device, column, dtype):
    """Return each row of a host array in the form of the device, as bytes."""
    return rows_of(device.host(device.backend.from_host(column), dtype))


@sequences
def test_set(device, size, key, value, data):
    ranks, model = Ranks(device, size, ROWS[size], "set", key), SetModel()
    for verb, keys, seed, layout in data.draw(
        steps(key, ["insert", "erase", "contains", "count", "add"])
    ):
        got = ranks.joined(Verb(verb, sparing=SPARINGS[seed % 4]), *layout, keys)
        if verb == "insert":
            fresh_once(keys, got[0], model.insert(keys))
        elif verb == "add":
            assert got == []
            model.insert(keys)
        elif verb == "erase":
            fresh_once(keys, got[0], model.erase(keys))
        else:
            assert got[0].dtype == (bool if verb == "contains" else np.int64)
            assert got[0].astype(bool).tolist() == model.contains(keys)
        assert len(ranks) == len(model)


@sequences
def test_map(device, size, key, value, data):
    ranks, model = Ranks(device, size, ROWS[size], "map", key, value), MapModel()
    default = numbered(value, 1, 77)[0]
    for verb, keys, seed, layout in data.draw(
        steps(key, ["insert", "insert", "upsert", "erase", "find"])
    ):
        values = numbered(value, len(keys), seed)
        if verb == "insert":
            keep = ("first", "last")[seed % 2]
            got = ranks.joined(Verb(verb, keep=keep), *layout, keys, values)
            assert got[0].tolist() == model.insert(keys, values, keep)
        elif verb == "upsert":
            assert ranks.joined(Verb(verb), *layout, keys, values) == []
            model.upsert(keys, values)
        elif verb == "erase":
            got = ranks.joined(Verb(verb), *layout, keys)
            fresh_once(keys, got[0], model.erase(keys))
        else:
            question = Verb(verb, default=default, sparing=SPARINGS[seed % 4])
            found, there = ranks.joined(question, *layout, keys)
            assert there.tolist() == model.contains(keys)
            wanted = model.find(keys, numbered(value, 1, 77).tobytes())
            assert bytes_of(device, found, value) == wanted
        assert len(ranks) == len(model)


@sequences
def test_any_pair_of_a_key_is_whole(device, size, key, value, data):
    ranks, pool = Ranks(device, size, ROWS[size], "map", key, value), key_pool(key)
    keys = data.draw(keys_from(key))
    model, values = MapModel(), numbered(value, len(keys), 5)
    choices = model.candidates(keys, values)
    fresh = ranks.joined(Verb("insert"), *data.draw(layouts()), keys, values)[0]
    fresh_once(keys, fresh, model.insert(keys, values))
    found, there = ranks.joined(Verb("find"), [], [0], pool)
    assert there.tolist() == model.contains(pool)
    for one, row, stored in zip(pool, bytes_of(device, found, value), there, strict=True):
        assert not stored or row in choices[key_of(one)]


@sequences
def test_multi_map(device, size, key, value, data):
    ranks, model = Ranks(device, size, ROWS[size], "multimap", key, value), MultiMapModel()
    for verb, keys, seed, layout in data.draw(
        steps(key, ["insert", "insert", "erase", "find", "count"])
    ):
        values = numbered(value, len(keys), seed)
        if verb == "insert":
            assert ranks.joined(Verb(verb), *layout, keys, values) == []
            model.insert(keys, values)
        elif verb == "erase":
            fresh_once(keys, ranks.joined(Verb(verb), *layout, keys)[0], model.erase(keys))
        elif verb == "count":
            question = Verb(verb, sparing=SPARINGS[seed % 4])
            assert ranks.joined(question, *layout, keys)[0].tolist() == model.count(keys)
        else:
            rows, counts = [], []
            question = Verb(verb, sparing=SPARINGS[seed % 4])
            for found, offsets in ranks.ask(question, *layout, keys):
                assert offsets[0] == 0 and offsets[-1] == len(found)
                rows += rows_of(device.host(found, value))
                counts += np.diff(device.backend.to_host(offsets)).tolist()
            wanted, offsets = model.find(keys)
            assert rows == wanted
            assert counts == np.diff(offsets).tolist()
        assert len(ranks) == len(model)


def test_few_pieces_are_on_their_way_at_once(device, monkeypatch):
    start, most = PipelinedRounds._start, Counter()

    class Watched:
        def __init__(self, rounds, transfer):
            self.rounds, self.transfer = rounds, transfer
            rounds.open = getattr(rounds, "open", 0) + 1
            most[id(rounds)] = max(most[id(rounds)], rounds.open)

        def wait(self):
            self.rounds.open -= 1
            return self.transfer.wait()

    def watched(rounds, *args, **places):
        return Watched(rounds, start(rounds, *args, **places))

    ranks, keys = Ranks(device, 2, (3, 3), "map", "int64", "int64"), np.arange(90) % 50
    monkeypatch.setattr(PipelinedRounds, "_start", watched)
    (fresh,) = ranks.joined(Verb("insert", keep="last"), [45], [0, 1], keys, keys)
    assert np.flatnonzero(fresh).tolist() == list(range(40, 90))
    assert set(most.values()) == {TOGETHER + 1}


@pytest.mark.parametrize("slice_rows", [30, 10**3])
def test_own_rows_travel_in_a_single_slice_only(device, monkeypatch, slice_rows):
    """Where there are several, a rank asks its own table while others' rows are on their way."""
    start, sent = PipelinedRounds._start, Counter()

    def watched(rounds, columns, counts, **places):
        sent["own"] += int(counts[rounds._collective.rank])
        sent["all"] += int(counts.sum())
        return start(rounds, columns, counts, **places)

    ranks, keys = Ranks(device, 3, (10**3, slice_rows), "map", "int64", "int64"), np.arange(600)
    ranks.joined(Verb("insert"), [200, 400], [0, 1, 2], keys[::2], keys[::2] * 3)
    monkeypatch.setattr(PipelinedRounds, "_start", watched)
    found, there = ranks.joined(Verb("find"), [200, 400], [0, 1, 2], keys)
    assert there.tolist() == [True, False] * 300
    assert (found[::2] == keys[::2] * 3).all()
    if slice_rows < 200:
        assert sent["own"] == 0 < sent["all"] < 2 * 600
    else:
        assert sent["own"] > 0
        assert sent["all"] == 2 * 600


def test_what_regions_leave_finds_its_kernels_loaded(device, placed, monkeypatch):
    """Ranks wait for each other, so none may load one when only it has such rows."""
    backend, loaded, late = type(device.backend), set(), set()
    launch, load, finish = backend.launch, backend.load, StreamedBuild.finish
    finishing = threading.local()

    def loads(self, *kernels):
        loaded.update(kernel.expression for kernel in kernels)
        load(self, *kernels)

    def launches(self, kernel, *given):
        if hasattr(finishing, "here"):
            late.add(kernel.expression)
        launch(self, kernel, *given)

    def finishes(self):
        finishing.here = True
        return finish(self)

    monkeypatch.setattr(backend, "load", loads)
    monkeypatch.setattr(backend, "launch", launches)
    monkeypatch.setattr(StreamedBuild, "finish", finishes)
    keys = np.random.default_rng(5).permutation(30_000)
    rows, spec = (10**6, 6_000), ("map", "int64", "int64")
    ranks = Ranks(device, 2, rows, *spec, capacity=15_300, max_load=0.99)
    ranks.joined(Verb("add"), [15_000], [0, 1], keys, keys)
    assert len(ranks) == len(keys) == sum(placed)
    assert late
    assert late <= loaded


@pytest.mark.parametrize("switch", [True, "auto"])
def test_a_filter_that_one_rank_has_lost_is_no_filter(device, switch):
    ranks, keys = Ranks(device, 3, (100, 100), "set", "int64"), np.arange(90)
    ranks.joined(Verb("insert"), [30, 60], [0, 1, 2], keys)
    for lost in (None, 1):
        if lost is not None:
            ranks.parts[lost].replica = None
        question = Verb("contains", sparing=PruningOptions(lost is None or switch))
        found = ranks.joined(question, [30, 60], [0, 1, 2], keys + 45)[0]
        assert found.tolist() == (keys < 45).tolist()
        names = {part.replica and part.replica.name for part in ranks.parts}
        assert len(names) == 1
    assert (None in names) == (switch == "auto")


@pytest.fixture
def placed(monkeypatch):
    """Place all batches range by range, and record their rows.

    Of five ranks two have no rows of their own in these tests.
    """
    placed = []
    real = StreamedBuild.place

    def place(self, keys, *rest, **options):
        placed.append(len(keys))
        return real(self, keys, *rest, **options)

    monkeypatch.setattr(StreamedBuild, "place", place)
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(
        cardinality, "new_key_flags", lambda home, *_: home.from_host(np.array([True]))
    )
    return placed


@pytest.mark.parametrize(("key", "value"), [*DTYPES[:4], ("uint64", None)])
@pytest.mark.parametrize(
    ("size", "told", "distinct", "most"),
    [(2, True, True, 300), (3, True, False, 6), (5, False, False, 6), (5, False, False, 300)],
)
def test_new_keys_range_by_range(
    device, placed, monkeypatch, key, value, size, told, distinct, most
):
    monkeypatch.setitem(ANY_ORDER_PARTS, device.name, most)
    rows = 200 if key == "int8" else 60_000
    keys = random_keys(key, rows, 3)
    keys = np.unique(keys) if distinct else np.concatenate([keys, keys[::-2]])
    keys = np.random.default_rng(size).permutation(keys)
    kind = "set" if value is None else "map"
    spec = (kind, key) if value is None else (kind, key, value)
    ranks = Ranks(device, size, (10**6, 6_000), *spec, capacity=50_000)
    values = [] if value is None else [numbered(value, len(keys), 1)]
    layout = [len(keys) // 3, len(keys) // 2], [0, 1, 2, 1]
    verb = Verb("insert" if told else "add")
    got = ranks.joined(verb, *layout, keys, *values)
    wide = value == "complex128"
    assert sum(placed) == (0 if wide else len(keys))
    assert len(placed) <= size or size * 2 <= len(placed)
    model = SetModel() if value is None else MapModel()
    choices = model.candidates(keys, *values) if values else None
    fresh = model.insert(keys, *values)
    assert len(ranks) == len(model)
    if told:
        fresh_once(keys, got[0], fresh)
    stored = np.concatenate([keys[:2000], random_keys(key, 2000, 4)])
    if value is None:
        assert ranks.joined(Verb("contains"), [], [0], stored)[0].tolist() == model.contains(stored)
        return
    found, there = ranks.joined(Verb("find"), [1000], [0, 1], stored)
    assert there.tolist() == model.contains(stored)
    for one, row, is_there in zip(stored, bytes_of(device, found, value), there, strict=True):
        assert not is_there or row in choices[key_of(one)]
    ranks.joined(verb, *layout, keys[:100], *(column[:100] for column in values))
    assert sum(placed) <= len(keys)
    assert len(ranks) == len(model)


@pytest.mark.parametrize("size", [2, 5])
def test_own_new_rows_are_placed_from_where_they_lie(device, placed, monkeypatch, size):
    """Of the rows that travel none is its sender's own, and all set out before one is placed."""
    start, place, sent, steps = LocalCollective.start, StreamedBuild.place, [], defaultdict(str)

    def starts(end, columns, counts, **places):
        sent.append((int(counts[end.rank]), int(counts.sum())))
        steps[threading.get_ident()] += "s"
        return start(end, columns, counts, **places)

    def places(intake, *args, **options):
        steps[threading.get_ident()] += "p"
        place(intake, *args, **options)

    def short_ranges(backend, **options):
        """Return ranges for more rounds than a group has calls in flight."""
        made = ranges_of(backend, **options)
        parts = -(-made.buckets >> made.shift)
        return replace(made, part_shift=0, each=2, number=-(-parts // 2))

    ranges_of = RegionRanges.of
    monkeypatch.setattr(RegionRanges, "of", short_ranges)
    monkeypatch.setattr(LocalCollective, "start", starts)
    monkeypatch.setattr(StreamedBuild, "place", places)
    keys = np.random.default_rng(7).permutation(300_000)
    ranks = Ranks(device, size, (10**6, 3_000), "map", "int64", "int64", capacity=320_000)
    cuts = [40_000, 130_000, 140_000, 220_000]
    (fresh,) = ranks.joined(Verb("insert"), cuts, list(range(size)), keys, keys * 3)
    own, travelling = np.sum(sent, axis=0)
    assert own == 0
    assert travelling == pytest.approx((1 - 1 / size) * len(keys), rel=0.05)
    assert len(sent) > size * CALLS
    assert all(each == "".join(sorted(each, reverse=True)) for each in steps.values())
    monkeypatch.setattr(LocalCollective, "start", start)
    assert fresh.all()
    assert sum(placed) == len(ranks) == len(keys)
    found, there = ranks.joined(Verb("find"), [100_000], [0, 1], keys)
    assert there.all()
    assert (found == keys * 3).all()


@pytest.mark.parametrize("refusing", [1, 3])
def test_rows_that_are_put_in_order_in_vain_are_waited_for(device, placed, monkeypatch, refusing):
    """Where a rank's keys are not new nobody places them, and memory is not used anew at once."""
    waited, left = [], [True] * (3 - refusing)
    rejoin = SideStream.rejoin
    monkeypatch.setattr(SideStream, "rejoin", lambda side: waited.append(side) or rejoin(side))
    ask, before = VerbExecution._ask, []

    def asked(asking: VerbExecution, *args: Any) -> None:
        before.append(waited.count(asking._part.side))
        ask(asking, *args)

    monkeypatch.setattr(VerbExecution, "_ask", asked)

    def newness(home: Backend, *_: Any) -> Any:
        return home.from_host(np.array([bool(left and left.pop())]))

    monkeypatch.setattr(cardinality, "new_key_flags", newness)
    keys = np.random.default_rng(3).integers(0, 20_000, 60_000)
    ranks = Ranks(device, 3, (10**6, 6_000), "map", "int64", "int64", capacity=50_000)
    (fresh,) = ranks.joined(Verb("insert"), [10_000, 30_000], [0, 1, 2], keys, keys * 3)
    assert placed == []
    assert before == [1, 1, 1]
    assert int(fresh.sum()) == len(ranks) == len(np.unique(keys))
    found, there = ranks.joined(Verb("find"), [1000], [0, 1], keys)
    assert there.all()
    assert (found == keys * 3).all()
