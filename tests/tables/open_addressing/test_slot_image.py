"""Slots as they are in memory, in a file and back."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash import HashMap
from dgpuhash.errors import FormatError
from dgpuhash.tables.open_addressing import slot_image
from dgpuhash.tables.open_addressing.slot_image import SlotImage
from dgpuhash.tables.serialization import Buffers, map_file, read_file, write_file

N = 3000
KEY, VALUE = np.dtype("u8"), np.dtype("u4")


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(slot_image, "_SLICE", 500)


@pytest.fixture
def keys():
    made = np.random.default_rng(1).integers(0, 2**64, N, np.uint64)
    # Those that mark free slots stand aside.
    made[:2] = [2**64 - 1, 2**64 - 2]
    return made


def table_of(device, keys, seed=7):
    made = HashMap(KEY, VALUE, int(N * 1.02), device=device.name, seed=seed)
    made.insert(device.array(keys), device.array(np.arange(len(keys), dtype=VALUE)))
    return made


def image_of(table):
    return SlotImage.of(table._opened().slots)


def written(table, path):
    """Return the image in the map of a file."""
    write_file(path, {}, image_of(table).buffers(), overwrite=True)
    return read(path)


def read(path):
    return SlotImage.of_buffers(Buffers(str(path), map_file(path)[1]), KEY, VALUE)


def check_same(device, loaded, keys):
    values, found = loaded.find(device.array(keys))
    assert bool(found.all())
    assert device.host(values, VALUE).tolist() == list(range(len(keys)))
    assert not loaded.contains(device.array(keys ^ np.uint64(2**40))).any()


def test_slots_are_those_of_the_file(device, tmp_path, keys):
    made = table_of(device, keys)
    image = written(made, tmp_path / "slots")
    before = (tmp_path / "slots").read_bytes()
    loaded = HashMap(KEY, VALUE, device=device.name, seed=7)
    assert loaded._take(image.slots)
    assert (len(loaded), loaded.nbytes) == (N, made.nbytes)
    check_same(device, loaded, keys)
    # It goes on as any table does, and the file stays.
    others = keys[:100] ^ np.uint64(2**50)
    loaded.erase(device.array(keys[:50]))
    loaded.upsert(device.array(others), device.array(np.arange(100, dtype=VALUE)))
    loaded.insert(device.array(keys), device.array(np.arange(N, dtype=VALUE)), keep="any")
    assert len(loaded) == N + 100
    check_same(device, loaded, keys)
    assert (tmp_path / "slots").read_bytes() == before


def test_slots_with_marks_of_erased_keys(device, tmp_path, keys):
    made = table_of(device, keys)
    made.erase(device.array(keys[1::2]))
    image = written(made, tmp_path / "slots")
    loaded = HashMap(KEY, VALUE, device=device.name, seed=7)
    assert loaded._take(image.slots)
    found = device.host(loaded.contains(device.array(keys)), bool)
    assert found.tolist() == [row % 2 == 0 for row in range(N)]
    assert loaded.stats().tombstones == made.stats().tombstones
    assert image.has_values_below(N)


def test_slots_of_another_seed_are_inserted_anew(device, tmp_path, keys):
    image = written(table_of(device, keys), tmp_path / "slots")
    loaded = HashMap(KEY, VALUE, device=device.name, seed=8)
    assert not loaded._take(image.slots)
    for some, values in image.slices():
        loaded.insert(device.array(some), device.array(values))
    assert len(loaded) == N
    check_same(device, loaded, keys)


def test_too_full_slots_are_not_taken(device, keys):
    image = image_of(table_of(device, keys))
    loaded = HashMap(KEY, VALUE, device=device.name, seed=7, max_load=0.5)
    assert not loaded._take(image.slots)
    assert len(loaded) == 0


def test_values_are_counted(host, keys):
    """Those of free slots are all ones, and all others are below a number."""
    image = image_of(table_of(host, keys))
    assert image.has_values_below(N)
    assert not image.has_values_below(N - 1)
    image.values[np.flatnonzero(image.keys == 2**64 - 1)[0]] = 5
    assert not image.has_values_below(N)


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        ("slot layout", np.array([2, 512, 4, 4096]), "unknown layout"),
        ("slot layout", np.array([1, 512, 4]), "unknown layout"),
        ("slot layout", np.array([1, 512, 3, 4096]), "impossible"),
        ("slot layout", np.array([1, 512, 0, 4096]), "impossible"),
        ("slot layout", np.array([1, 2**40, 4, 2**43]), "slot keys"),
        ("slot keys", np.zeros(4, KEY), "slot keys"),
        ("slot values", np.zeros(4, VALUE), "slot values"),
        ("slot overflow", np.zeros(4, np.uint32), "slot overflow"),
        ("slot state", np.zeros(7, np.uint64), "slot state"),
        ("slot state", None, "missing"),
    ],
)
def test_files_that_lie_are_refused(host, tmp_path, keys, name, array, told):
    written(table_of(host, keys), tmp_path / "slots")
    header, buffers = read_file(tmp_path / "slots")
    if array is None:
        del buffers[name]
    else:
        buffers[name] = array
    write_file(tmp_path / "slots", header, buffers, overwrite=True)
    with pytest.raises(FormatError, match=told):
        read(tmp_path / "slots")


@pytest.mark.gpu
@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_each_device_takes_the_slots_of_the_other(tmp_path, keys, home):
    import cupy

    put = {"cpu": np.asarray, "cuda": cupy.asarray}
    made = HashMap(KEY, VALUE, device=home, seed=7)
    made.insert(put[home](keys), put[home](np.arange(N, dtype=VALUE)))
    image = written(made, tmp_path / "slots")
    (other,) = {"cpu", "cuda"} - {home}
    loaded = HashMap(KEY, VALUE, device=other, seed=7)
    assert loaded._take(image.slots)
    values, found = loaded.find(put[other](keys))
    assert bool(found.all())
    assert values.tolist() == list(range(N))
