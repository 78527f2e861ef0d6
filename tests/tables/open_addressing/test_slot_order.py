"""Saved tables are filled in the order of their slots, or anew where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

import dgpuhash
from dgpuhash import CountMap, HashMap, HashSet, MultiMap
from dgpuhash.errors import FormatError
from dgpuhash.tables.open_addressing import slot_order
from dgpuhash.tables.serialization import read_file, write_file

N = 3000
RECORD = np.dtype([("high", "u8"), ("low", "u8")])
ORDER = {"bucket layout", "bucket counts", "bucket overflow"}


@pytest.fixture(autouse=True)
def of_few_keys(monkeypatch):
    """Tables of any size keep their order, and slots are filled in several slices."""
    monkeypatch.setattr(slot_order, "_LEAST_KEYS", 1)
    monkeypatch.setattr(slot_order, "_SLICE", {"cpu": 100, "cuda": 100})


@pytest.fixture
def inserts(monkeypatch):
    """Return what counts the stores that had keys inserted."""
    from dgpuhash.tables.open_addressing.growth import Storage

    made, add = [], Storage.add
    monkeypatch.setattr(Storage, "add", lambda self, *rest: (made.append(1), add(self, *rest))[1])
    return made


def keys_of(dtype, seed=0, n=N):
    words = np.random.default_rng(seed).permutation(2**16)[:n]
    if dtype == RECORD:
        made = np.zeros(n, RECORD)
        made["low"], made["high"] = words, words % 7
        return made
    made = words.astype(dtype)
    # Those that mark free slots stand aside.
    if made.dtype.kind == "u":
        made[:2] = [np.iinfo(dtype).max, np.iinfo(dtype).max - 1]
    return made


MAPS = [(key, value) for key in ("u4", "u8", "i8", "f8") for value in ("u1", "u4", "f8", "i8")]


@pytest.mark.parametrize(("key", "value"), MAPS)
def test_maps(device, tmp_path, inserts, key, value):
    check_map(device, tmp_path, inserts, key, value)


@pytest.mark.parametrize("value", ["u4", "i8"])
def test_maps_of_records(host, tmp_path, inserts, value):
    check_map(host, tmp_path, inserts, RECORD, value)


def check_map(device, tmp_path, inserts, key, value):
    keys, values = keys_of(key), (np.arange(N) % 251).astype(value)
    made = HashMap.from_arrays(device.array(keys), device.array(values), device=device.name)
    # Buckets overflow, and some keys stand beyond their segments.
    made.reserve(int(N * 1.02))
    made.save(tmp_path / "map")
    assert set(read_file(tmp_path / "map")[1]) > ORDER
    inserts.clear()
    loaded = dgpuhash.tables.load(tmp_path / "map", device.name)
    assert not inserts
    assert (len(loaded), loaded.nbytes, loaded.stats().seed) == (N, made.nbytes, made.stats().seed)
    others = keys_of(key, 1)
    for asked in (keys, others):
        for one, other in zip(
            loaded.find(device.array(asked)), made.find(device.array(asked)), strict=True
        ):
            assert device.host(one, one.dtype).tolist() == device.host(other, one.dtype).tolist()
    # It goes on as any table does.
    loaded.erase(device.array(keys[:100]))
    loaded.insert(device.array(others), device.array(values))
    kept = np.union1d(keys[100:], others)
    assert len(loaded) == len(kept)
    assert bool(loaded.contains(device.array(kept)).all())


@pytest.mark.parametrize("key", ["u4", "i8"])
def test_sets_and_counts(device, tmp_path, inserts, key):
    keys = keys_of(key)
    for kind in (HashSet, CountMap):
        made = kind(key, device=device.name)
        made.insert(device.array(np.append(keys, keys[:9])))
        made.save(tmp_path / "table", overwrite=True)
        inserts.clear()
        loaded = kind.load(tmp_path / "table", device.name)
        assert not inserts
        assert len(loaded) == N
        assert bool(loaded.contains(device.array(keys)).all())
    assert device.host(loaded.find(device.array(keys))[0], "u8").sum() == N + 9


@pytest.mark.parametrize("value", ["u4", "i8", "f4"])
@pytest.mark.parametrize("key", ["u4", "i8"])
def test_lists(device, tmp_path, inserts, key, value):
    keys = keys_of(key)
    rows = np.random.default_rng(3).integers(0, N, 2 * N)
    values = np.arange(2 * N).astype(value)
    made = MultiMap(key, value, device=device.name)
    for part in (slice(0, N), slice(N, 2 * N)):
        made.insert(device.array(keys[rows[part]]), device.array(values[part]))
    made.save(tmp_path / "lists")
    inserts.clear()
    loaded = MultiMap.load(tmp_path / "lists", device.name)
    assert not inserts
    assert (len(loaded), loaded.n_keys) == (len(made), made.n_keys)
    for one, other in zip(
        loaded.find(device.array(keys)), made.find(device.array(keys)), strict=True
    ):
        assert device.host(one, one.dtype).tolist() == device.host(other, one.dtype).tolist()
    loaded.insert(device.array(keys[:5]), device.array(values[:5]))
    assert len(loaded) == 2 * N + 5


def changed(path, change):
    """Rewrite a file with other buffers, and right checksums."""
    header, buffers = read_file(path)
    buffers = {name: buffer.copy() for name, buffer in buffers.items()}
    change(buffers)
    write_file(path, header, buffers, overwrite=True)


def lay(**numbers):
    """Return what changes the layout of slots: version, strayed, buckets, segment, slots."""

    def change(buffers):
        layout = buffers["bucket layout"].view(np.int64)
        for name, number in numbers.items():
            layout[["version", "strayed", "buckets", "segment", "slots"].index(name)] = number

    return change


def without(*names):
    def change(buffers):
        for name in names:
            del buffers[name]

    return change


def shuffle(buffers):
    """The keys come in another order than they stood in."""
    order = np.random.default_rng(5).permutation(N)
    for name in ("keys", "values"):
        words = buffers[name].view(np.int64)
        words[:] = words[order]


def shift(buffers):
    buffers["bucket counts"][:] = np.roll(buffers["bucket counts"], 1)


def crowd(buffers):
    buffers["bucket counts"][0] = 200


def twice(buffers):
    """As in a file of two parts."""
    for name in ORDER:
        buffers[name] = np.tile(buffers[name], 2)


def mark(buffers):
    """A key has the bits of a free slot."""
    buffers["keys"].view(np.int64)[N // 2] = -1


@pytest.mark.parametrize(
    "change",
    [
        without(*ORDER),
        twice,
        lay(version=2),
        lay(segment=1),
        lay(slots=8),
        shuffle,
        shift,
        crowd,
        mark,
    ],
    ids=["old", "parts", "version", "segment", "slots", "shuffled", "shifted", "crowded", "mark"],
)
def test_other_layouts_are_inserted_anew(device, tmp_path, inserts, change):
    """As files of releases that knew no order."""
    keys = keys_of("i8")
    made = HashMap.from_arrays(
        device.array(keys), device.array(np.arange(N)), device=device.name, seed=1
    )
    made.save(tmp_path / "map")
    changed(tmp_path / "map", change)
    inserts.clear()
    loaded = HashMap.load(tmp_path / "map", device.name)
    assert inserts
    left = keys if change is not mark else np.setdiff1d(keys, [])
    found = device.host(loaded.contains(device.array(left)), bool)
    assert found.sum() == N - (change is mark)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without("bucket counts"), "missing"),
        (without("bucket overflow"), "missing"),
        (lay(buckets=2**40), "bucket counts"),
        (lay(segment=3), "impossible"),
        (lay(segment=0), "impossible"),
        (lay(slots=-1), "impossible"),
    ],
)
def test_layouts_that_lie_are_refused(tmp_path, change, told):
    HashSet.from_keys(np.arange(N)).save(tmp_path / "set")
    changed(tmp_path / "set", change)
    with pytest.raises(FormatError, match=told):
        HashSet.load(tmp_path / "set")


def test_what_has_no_order(tmp_path, inserts):
    """Marks of erased keys hold no place, and mostly free slots are made anew."""
    keys = np.arange(N)
    erased = HashSet.from_keys(keys, seed=2)
    erased.reserve(int(N * 1.01))
    erased.erase(keys[::2])
    sparse = HashSet.from_keys(keys)
    sparse.reserve(20 * N)
    cuckoo = HashSet.from_keys(keys, method="cuckoo")
    for made in (erased, sparse, cuckoo):
        made.save(tmp_path / "set", overwrite=True)
        assert set(read_file(tmp_path / "set")[1]) == {"keys"}
        loaded = HashSet.load(tmp_path / "set")
        assert np.array_equal(np.sort(loaded.items()), np.sort(made.items()))
    assert loaded.nbytes < sparse.nbytes


@pytest.mark.gpu
@pytest.mark.parametrize(("key", "value"), [("u4", "u4"), ("u8", "u4"), ("i8", "i8")])
def test_each_device_takes_the_slots_of_the_other(tmp_path, inserts, key, value):
    import cupy

    keys, values = keys_of(key), np.arange(N).astype(value)
    for home, other in (("cpu", "cuda"), ("cuda", "cpu")):
        put = {"cpu": np.asarray, "cuda": cupy.asarray}
        made = HashMap(key, value, device=home)
        made.insert(put[home](keys), put[home](values))
        made.save(tmp_path / "map", overwrite=True)
        inserts.clear()
        loaded = HashMap.load(tmp_path / "map", other)
        assert not inserts
        found, there = loaded.find(put[other](keys))
        assert bool(there.all())
        assert bool((found == put[other](values)).all())
