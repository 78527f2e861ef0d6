"""Methods of tables: found by themselves, and their settings checked."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap, TableSpec
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.tables import serialization
from dgpuhash.tables.methods.auto import Auto
from dgpuhash.tables.stores import method as rows
from dgpuhash.tables.stores.method import VERBS, Method, Methods, Setting

TOY = Method(
    name="toy",
    paper="None",
    section="§0",
    nouns={"set": Auto, "map": Auto, "multimap": Auto},
    when="never",
    settings={
        "space": Setting(1.5, 1.05, 4.0, size=True),
        "width": Setting(4, choices=(1, 4, 32)),
        "layout": Setting("soa", choices=("soa", "aos")),
        "growth": Setting(1.5, 1.0, 2.0),
    },
    verbs=tuple(verb for verb in VERBS if verb != "erase"),
    ordered=False,
)


@pytest.fixture
def toy(monkeypatch):
    """Method `toy` beside those of the package; its tables are those of `auto`."""
    found = Methods({**dgpuhash.methods(), "toy": TOY})
    monkeypatch.setattr(rows, "_found", lambda path: found)
    return TOY


def test_auto_comes_first_and_serves_all():
    found = dgpuhash.methods()
    assert next(iter(found)) == "auto"
    assert set(found["auto"].nouns) == {"set", "map", "multimap", "ids"}
    assert set(found["auto"].verbs) == {*VERBS, "lca"}
    assert all(name == each.name for name, each in found.items())


def test_methods_print_as_a_table():
    head, auto, *_ = repr(dgpuhash.methods()).splitlines()
    assert head.split() == ["method", "tables", "settings", "source", "when"]
    assert auto.startswith("auto ") and "set map multimap ids" in auto


@pytest.mark.parametrize("make", [HashSet, HashMap, MultiMap])
def test_settings_are_part_of_the_spec(toy, make):
    types = ("i8",) if make is HashSet else ("i8", "i4")
    table = make(*types, method="toy", space=2, layout="aos")
    wanted = (("growth", 1.5), ("layout", "aos"), ("space", 2.0), ("width", 4))
    assert table.method == "toy" and table.spec.settings == wanted
    assert "(toy)" in repr(table) and "(auto)" not in repr(make(*types))
    assert TableSpec.from_json(table.spec.to_json()) == table.spec
    assert pickle.loads(pickle.dumps(table)).spec == table.spec
    assert table.copy().method == "toy"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"space": 1.0}, "space=1.0; use a number from 1.05 to 4.0"),
        ({"space": "much"}, "space='much'; use a number"),
        ({"space": float("nan")}, "space=nan"),
        ({"space": True}, "space=True"),
        ({"width": 2}, "use 1 or 4 or 32"),
        ({"width": float("inf")}, "width=inf"),
        ({"layout": "packed"}, "use 'soa' or 'aos'"),
        ({"layout": 1}, "layout=1"),
        ({"chain": 0.6}, "no setting 'chain'; its settings: growth, layout, space, width"),
        (
            {"max_load": 0.9},
            "max_load=0.9 has no effect with method='toy', whose size is set by space=",
        ),
    ],
)
def test_an_impossible_setting_says_what_is_possible(toy, settings, said):
    with pytest.raises(SpecError) as raised:
        HashMap("i8", "i8", method="toy", **settings)
    assert said in str(raised.value)


def test_settings_of_a_multimap_go_to_its_method(toy):
    assert dict(MultiMap("i8", "i8", method="toy", growth=2).spec.settings)["growth"] == 2.0
    assert MultiMap("i8", "i8", growth=2).spec.growth == 2.0
    with pytest.raises(SpecError, match="no setting 'initial_bucket'"):
        MultiMap("i8", "i8", method="toy", initial_bucket=2)


def test_auto_refuses_settings_of_methods(toy):
    with pytest.raises(SpecError, match=r"'space' is a setting of .*toy"):
        HashSet("i8", space=1.25)
    with pytest.raises(SpecError, match=r"no setting 'colour'; its settings: none of its own$"):
        HashSet.from_keys([1], colour="red")


def test_an_unknown_method_says_which_there_are(toy):
    with pytest.raises(SpecError, match=r"'wormhole' is no method; methods of HashMap: auto.* toy"):
        HashMap("i8", "i8", method="wormhole")
    with pytest.raises(SpecError, match="method=3"):
        HashMap("i8", "i8", method=3)


def test_a_method_without_the_noun(toy, monkeypatch):
    monkeypatch.setitem(toy.nouns, "multimap", toy.nouns["multimap"])
    monkeypatch.delitem(toy.nouns, "multimap")
    with pytest.raises(SpecError, match="'toy' serves no MultiMap; methods of MultiMap: auto"):
        MultiMap("i8", "i8", method="toy")


def test_what_a_method_lacks_names_those_that_have_it(toy):
    toy.require("insert", "map")
    with pytest.raises(UnsupportedError, match=r"HashMap of method 'toy' cannot erase; .*: auto"):
        toy.require("erase", "map")


def test_stable_finds_need_an_order(toy):
    table = MultiMap("i8", "i8", method="toy")
    with pytest.raises(UnsupportedError, match=r"keeps no order .*: auto"):
        table.find([1], stable=True)
    assert MultiMap.from_arrays([1], [2]).find([1], stable=True)[0].tolist() == [2]


def _saved(table, path, **fields):
    """Save a table, with other fields in its spec; None drops one."""
    table.save(path)
    header, buffers = serialization.read_file(path)
    spec = json.loads(header["spec"])
    for name, given in fields.items():
        spec.pop(name)
        if given is not None:
            spec[name] = given
    header["spec"] = json.dumps(spec)
    path.unlink()
    serialization.write_file(path, header, buffers)
    return path


def test_a_save_keeps_method_and_settings(toy, tmp_path):
    table = HashMap.from_arrays([1, 2], [3, 4], method="toy", space=3.0)
    table.save(tmp_path / "a")
    loaded = dgpuhash.load(tmp_path / "a")
    assert loaded.spec == table.spec
    assert loaded.find([2, 5])[0].tolist() == [4, 0]


def test_a_save_from_before_there_were_methods(tmp_path):
    path = _saved(HashSet.from_keys([1, 2]), tmp_path / "a", method=None, settings=None)
    assert HashSet.load(path).method == "auto"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": "wormhole"}, "'wormhole' is no method"),
        ({"settings": [["space", 1.5]]}, "no setting 'space'"),
        ({"settings": [["space", [1]]]}, "setting space="),
        ({"settings": 7}, "settings=7"),
    ],
)
def test_a_save_of_another_method(tmp_path, fields, said):
    path = _saved(HashSet.from_keys([1, 2]), tmp_path / "a", **fields)
    with pytest.raises(FormatError) as raised:
        HashSet.load(path)
    assert said in str(raised.value)


def test_stats_have_the_details_of_a_method():
    stats = HashSet.from_keys(np.arange(9)).stats()
    assert stats.details == {}
    other = dgpuhash.TableStats(**{
        name: getattr(stats, name) for name in stats.__slots__ if name != "details"
    }, details={"slabs": 4, "chain": 0.5, "mapping": "one-to-one"})  # fmt: skip
    assert other == stats
    assert ("slabs", "4") in other.rows() and ("mapping", "one-to-one") in other.rows()
