"""Key tables of named methods: without maps, without multimaps, without an order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dgpuhash
from dgpuhash import FrameIndex
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.frames.keys.table import KeyTable
from dgpuhash.tables.bucket_list.storage import ListStorage
from dgpuhash.tables.methods.auto import Auto
from dgpuhash.tables.stores import method as rows
from dgpuhash.tables.stores.method import Method, Methods, Setting


class Backwards(ListStorage):
    """Lists of values that a find gives in the opposite order."""

    @classmethod
    def open(cls, backend, spec, key, value, capacity):
        return cls(backend, spec, key, capacity)

    def find(self, bits):
        values, offsets = super().find(bits)
        owners = np.repeat(np.arange(len(bits)), np.diff(offsets))
        return values[np.lexsort([-np.arange(len(values)), owners])], offsets


def made(name, **fields):
    settings = {"space": Setting(1.5, 1.05, 4.0, size=True)}
    return Method(name=name, paper="", section="", when="never", settings=settings, **fields)


TOYS = {
    "listless": made("listless", nouns={"map": Auto}),
    "mapless": made("mapless", nouns={"multimap": Auto}),
    "unordered": made("unordered", nouns={"map": Auto, "multimap": Backwards}, ordered=False),
}
NAMED = [*TOYS, *dgpuhash.methods()]


@pytest.fixture
def toys(monkeypatch):
    found = Methods({**dgpuhash.methods(), **TOYS})
    monkeypatch.setattr(rows, "_found", lambda path: found)
    return found


def frames(repeats):
    random = np.random.default_rng(4)
    keys = random.permutation(600) // (3 if repeats else 1)
    right = pd.DataFrame({"k": keys, "v": np.arange(600)})
    return right, pd.DataFrame({"k": random.integers(0, 700, 500), "x": np.arange(500)})


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("repeats", [False, True])
def test_merges_and_changes(toys, tmp_path, name, repeats):
    right, left = frames(repeats)
    options = {} if "space" not in toys[name].settings else {"space": 2}
    serves_lists, erases = "multimap" in toys[name].nouns, "erase" in toys[name].verbs
    if repeats and not serves_lists:
        with pytest.raises(UnsupportedError, match=r"several rows.*has no multimaps.*auto"):
            FrameIndex.build(right, on="k", method=name, **options)
        return
    index = FrameIndex.build(right[:200], on="k", method=name, **options)
    index.insert(right[200:])
    for how in ("inner", "left"):
        wanted = left.merge(right, how=how)
        pd.testing.assert_frame_equal(index.merge(left, how=how), wanted)
    table = index._rows.table.table
    assert table.method == name
    assert dict(table.spec.settings).items() >= options.items()
    assert (name == "auto") == ("(" not in index.stats().table)
    index.save(tmp_path / "saved")
    loaded = FrameIndex.load(tmp_path / "saved")
    assert loaded._rows.table.table.spec.method == name
    pd.testing.assert_frame_equal(loaded.merge(left), left.merge(right))
    if not serves_lists:
        with pytest.raises(UnsupportedError, match="several rows"):
            index.insert(right[:3])
    if erases:
        gone = right["k"].unique()[:150]
        assert index.erase(pd.DataFrame({"k": gone})) == right["k"].isin(gone).sum()
        kept = right[~right["k"].isin(gone)]
        pd.testing.assert_frame_equal(index.merge(left), left.merge(kept))


def test_what_cannot_be(toys, tmp_path, monkeypatch):
    right, _ = frames(repeats=False)
    with pytest.raises(SpecError, match="'wormhole' is no method"):
        FrameIndex.build(right, on="k", method="wormhole")
    with pytest.raises(SpecError, match="no setting 'width'"):
        FrameIndex.build(right, on="k", method="mapless", width=3)
    FrameIndex.build(right, on="k", method="mapless").save(tmp_path / "saved")
    monkeypatch.undo()
    with pytest.raises(FormatError, match="'mapless' is no method"):
        FrameIndex.load(tmp_path / "saved")


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("apart", [1, 5, 1000])
def test_rows_come_in_their_order_however_far_apart(device, repeats, apart):
    table = KeyTable(np.dtype(np.uint64), device.name, "cpu")
    codes = np.random.default_rng(apart).permutation(500).astype(np.uint64) // repeats
    table.insert(codes, np.arange(500) * apart + 7)
    table.erase(codes[:200])
    left = np.flatnonzero(~np.isin(codes, codes[:200]))
    found, rows = table.items()
    assert rows.tolist() == table.rows().tolist() == (left * apart + 7).tolist()
    assert found.tolist() == codes[left].tolist()
    table.erase(codes)
    assert [len(each) for each in (*table.items(), table.rows())] == [0, 0, 0]
