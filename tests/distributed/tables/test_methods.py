"""Distributed tables whose shards store keys by named methods."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import VERBS, Ranks, play

import dgpuhash
from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.spec import TableSpec
from dgpuhash.tables.methods import probed
from dgpuhash.tables.methods.auto import Auto
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.stores import method as rows
from dgpuhash.tables.stores.method import VERBS as ALL_VERBS
from dgpuhash.tables.stores.method import Method, Methods, Setting

KINDS = {"set": DistributedSet, "map": DistributedMap, "multimap": DistributedMultiMap}
NAMED = [
    (name, kind)
    for name, each in dgpuhash.methods().items()
    for kind in each.nouns
    if kind in KINDS
]
DTYPES = {"set": ("uint32", None), "map": ("int64", "float64"), "multimap": ("uint32", "uint32")}
inserts = []


class Plain(Storage):
    """Storage that knows no ranges, and notes the rows of each insert."""

    @classmethod
    def open(cls, backend, spec, key, value, capacity):
        load, seed = spec.max_load, spec.seed
        return cls(backend, key, value, max_load=load, seed=seed, capacity=capacity)

    def ranges(self, rows, owners):
        return None

    def insert(self, keys, values, then=None):
        inserts.append(len(keys))
        return super().insert(keys, values, then)

    def add(self, keys, values):
        inserts.append(len(keys))
        super().add(keys, values)

    def figures(self):
        size = len(self)
        figures = super().figures()._asdict()
        return Figures(**figures | {"details": {"slots": size, "space": 2.0, "layout": "soa"}})


TOY = Method(
    name="toy",
    paper="None",
    section="",
    nouns={"set": Plain, "map": Plain, "multimap": Auto},
    when="never",
    settings={"space": Setting(1.5, 1.05, 4.0, size=True)},
    verbs=tuple(verb for verb in ALL_VERBS if verb != "erase"),
    static=True,
)


@pytest.fixture
def toy(monkeypatch):
    """Method `toy` beside those of the package, which takes all rows of a verb at once."""
    found = Methods({**dgpuhash.methods(), "toy": TOY})
    monkeypatch.setattr(rows, "_found", lambda path: found)
    inserts.clear()
    return TOY


@pytest.mark.parametrize("mode", ["distributed", "independent"])
@pytest.mark.parametrize(("name", "kind"), NAMED)
@settings(max_examples=5)
@given(data=st.data())
def test_sequences(device, name, kind, mode, data):
    method = dgpuhash.methods()[name]
    verbs = [each for each in VERBS[kind] if Verb(each).method_verb in method.verbs]
    key, value = DTYPES[kind]
    conflict = "sum" if (kind, mode) == ("map", "independent") else "error"
    ranks = Ranks(
        device, 2, (14, 5), kind, key, value, method=name, mode=TableMode.of(mode, conflict)
    )  # fmt: skip
    play(ranks, data, verbs, ordered=method.ordered)
    assert {part.table.method for part in ranks.parts} == {name}


@pytest.mark.parametrize("mode", ["distributed", "independent"])
@pytest.mark.parametrize("verb", ["add", "insert"])
def test_a_static_table_takes_all_rows_at_once(device, toy, monkeypatch, verb, mode):
    offers, offer = [], VerbExecution.offer

    def noted(self, *given):
        offers.append(offer(self, *given))
        return offers[-1]

    monkeypatch.setattr(VerbExecution, "offer", noted)
    keys = np.random.default_rng(3).permutation(3000)
    for method, pieces in (("toy", 1), ("auto", None)):
        ranks = Ranks(
            device, 2, (100, 50), "map", "int64", "int64", method=method, mode=TableMode.of(mode)
        )  # fmt: skip
        ranks.joined(Verb(verb), [700, 1500], [0, 1, 0], keys, keys * 2)
        assert len(ranks) == 3000
        found, there = ranks.joined(Verb("find"), [40], [1, 0], keys + 1)
        assert (there == (keys < 2999)).all()
        assert (found[there] == keys[there] * 2 + 2).all()
        if pieces is not None:
            assert sorted(inserts) == sorted(len(part.table) for part in ranks.parts)
    assert offers == [None] * 4


@pytest.mark.parametrize("name", [name for name, each in dgpuhash.methods().items() if each.static])
def test_static_tables_are_built_once_a_verb(device, name):
    """Rows come in rounds of 100, and each insert after the first counts as one rebuild."""
    keys = np.random.default_rng(3).permutation(3000)
    ranks = Ranks(device, 2, (100, 50), "map", "int64", "int64", method=name)
    for part in np.array_split(keys, 3):
        ranks.joined(Verb("insert"), [300, 700], [0, 1, 0], part, part * 2)
    found, there = ranks.joined(Verb("find"), [40], [1, 0], keys)
    assert there.all() and (found == keys * 2).all()
    assert [part.table.stats().details["rebuilds"] for part in ranks.parts] == [2, 2]


def test_a_method_stays(threads, toy, tmp_path):
    keys = np.arange(900)
    with DistributedMap.from_arrays(keys, keys, method="toy", space=2, keep="first") as table:
        wanted = ("toy", (("space", 2.0),))
        assert (table.spec.method, table.spec.settings) == wanted
        assert "int64 -> int64 (toy): 900 pairs" in repr(table)
        stats = table.stats()
        assert stats["method_slots"].tolist() == stats["size"].tolist()
        assert stats["space"].tolist() == [2.0] * 3
        assert stats.attrs["details"] == {"slots": 900, "space": 2.0, "layout": "soa"}
        with pytest.raises(UnsupportedError, match=r"'toy' cannot erase; .*: auto"):
            table.erase([1])
        assert table.find([1, 900])[1].tolist() == [True, False]
        table.save(tmp_path / "saved")
        with table.copy() as copy:
            copy.upsert([1000], [5])
            assert copy.spec == table.spec
            assert len(copy) == 901
        threads.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].tables.clear())
        assert table.rebuild() == (0, 1, 2)
        methods_held = threads.run(
            lambda dask_worker: [
                hosted.part.table.method
                for hosted in dask_worker.plugins["dgpuhash"].tables.values()
            ]
        )
        assert [*methods_held.values()] == [["toy"]] * 3
        with DistributedMap.load(tmp_path / "saved", workers=table.workers[:2]) as loaded:
            assert loaded.spec == table.spec
            assert len(loaded) == 900
    with pytest.raises(SpecError, match="no setting 'width'"):
        DistributedSet("int64", method="toy", width=3)
    with pytest.raises(SpecError, match=r"'space' is a setting of .*toy"):
        DistributedMultiMap("int64", "int64", space=3)


def test_a_save_of_an_unknown_method(threads, toy, tmp_path, monkeypatch):
    with DistributedSet.from_keys(np.arange(9), method="toy") as table:
        table.save(tmp_path / "saved")
    monkeypatch.undo()
    with pytest.raises(FormatError, match="'toy' is no method"):
        DistributedSet.load(tmp_path / "saved")


@pytest.mark.parametrize(("name", "kind"), [pair for pair in NAMED if pair[0] != "auto"])
def test_each_method(threads, name, kind, tmp_path):
    spec = TableSpec.of(kind, "uint32", None if kind == "set" else "uint32", method=name)
    keys = np.arange(5000, dtype="u4") % 2500 if kind == "multimap" else np.arange(5000, dtype="u4")
    columns = [keys] if kind == "set" else [keys, keys + 7]
    table = KINDS[kind](*(column.dtype for column in columns), method=name)
    with table:
        table.insert(*columns)
        assert table.contains(np.array([3, 4999, 6000], "u4")).tolist() == [
            True,
            kind != "multimap",
            False,
        ]
        details = table.stats().attrs["details"]
        assert details
        json.dumps(details)
        table.save(tmp_path / "saved")
        with KINDS[kind].load(tmp_path / "saved", workers=table.workers[:1]) as loaded:
            assert loaded.spec == table.spec
            assert loaded.spec.method == spec.method
            assert len(loaded) == len(table) == 5000


@pytest.mark.parametrize("name", ["linear", "quadratic", "double"])
def test_shards_that_run_out_of_probes(threads, name, monkeypatch, tmp_path):
    """Each is built anew with other functions; settings stay through saves, erased keys go."""
    drawn = probed.Probed._drawn
    # One probe is not enough for any function.
    monkeypatch.setattr(
        probed.Probed,
        "_drawn",
        lambda made: drawn(made) | {"most_probes": 1 + 99 * made.generation},
    )
    keys = np.random.default_rng(7).permutation(np.arange(4000, dtype="u4"))
    with DistributedMap("u4", "u4", method=name, space=2.5, family="xor") as table:
        table.insert(keys, keys + 7)
        stats = table.stats()
        assert stats["reseeds"].min() >= 1 and stats["family"].tolist() == ["xor"] * 3
        assert table.erase(keys[:1000]).sum() == 1000
        table.upsert(keys[500:1500], keys[500:1500])
        table.save(tmp_path / "saved")
        with DistributedMap.load(tmp_path / "saved", workers=table.workers[:2]) as loaded:
            assert loaded.spec == table.spec
            for each in (table, loaded):
                values, found = each.find(keys)
                assert len(each) == 3500 and (found == (np.arange(4000) >= 500)).all()
                wanted = np.where(np.arange(4000) < 1500, keys, keys + 7)
                assert (values[found] == wanted[found]).all()
