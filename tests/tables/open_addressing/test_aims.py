"""Slots whose keys were all stored by aim, and what ends that: then half a bucket will not do."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash.backend.kernel import WIDE_WORD
from dgpuhash.tables.open_addressing.bulk_build import RegionBatch
from dgpuhash.tables.open_addressing.extent import Extent
from dgpuhash.tables.open_addressing.slots import Slots

WORD = np.dtype(np.uint64)
ROWS = 700


def slots_of(device, key=WORD, value=WORD):
    """Return empty slots for 1,024 keys; on a CPU, which does not aim by itself, they aim too."""
    made = Slots(device.backend, key, value, slots=1024, seed=7)
    made.clear()
    assert made.aimed == (device.name == "cuda" and key.itemsize <= 8)
    made.aimed = key.itemsize <= 8
    return made


def words(device, first, last):
    return device.array(np.arange(first, last, dtype=WORD))


def insert(slots, keys):
    return slots.insert(keys, keys)


def check(device, slots, first, last):
    """The keys from `first` to `last`, without `last`, are there, once each, and no others."""
    assert slots.state().occupied == last - first
    asked = words(device, first, last + 50)
    values, found = (device.backend.to_host(each) for each in slots.find(asked, 0))
    assert found.sum() == found[: last - first].sum() == last - first
    assert (values[: last - first] == np.arange(first, last)).all()


# Each gets slots with the keys below ROWS; returns what it makes of them, and the first key there.
def erased(device, slots):
    slots.erase(words(device, 0, 400))
    return slots, 400


def erased_in_a_step(device, slots):
    slots.erasing(words(device, 0, 400))()
    return slots, 400


def limited(device, slots):
    slots.insert_limited(words(device, 100, 200), words(device, 100, 200), slots.slots)
    return slots, 0


def moved(device, slots):
    target = slots.like(1024)
    target.clear()
    target.aimed = True
    slots.move_to(target)
    return target, 0


@pytest.mark.parametrize("end", [erased, erased_in_a_step, limited, moved])
def test_other_changes_end_it(device, end):
    slots = slots_of(device)
    insert(slots, words(device, 0, ROWS))
    assert slots.aimed
    slots, first = end(device, slots)
    assert not slots.aimed
    check(device, slots, first, ROWS)
    # Keys with holes before them are found, and not stored twice.
    insert(slots, words(device, 0, ROWS + 100))
    assert not slots.aimed
    check(device, slots, 0, ROWS + 100)
    slots.clear()
    assert slots.aimed == (device.name == "cuda")


def test_inserts_and_replacements_keep_it(device):
    slots = slots_of(device)
    for last in (1, 200, 500, 900):
        fresh = device.backend.to_host(insert(slots, words(device, 0, last)))
        assert fresh.sum() == last - {1: 0, 200: 1, 500: 200, 900: 500}[last]
    slots.inserting(words(device, 850, 950), words(device, 850, 950))()
    slots.replace(words(device, 0, 950), words(device, 0, 950))
    assert slots.aimed
    assert slots.copy().aimed
    check(device, slots, 0, 950)


def test_regions_are_not_built_by_aim(device):
    slots = slots_of(device)
    extent = Extent.of(WORD, WORD, 1024)
    keys = words(device, 0, ROWS)
    batch = RegionBatch.of(device.backend, extent, slots.seed, keys, keys)
    assert batch is not None
    left = batch.insert(slots)
    assert not slots.aimed
    if left:
        batch.insert_leftovers(slots, left, told=False)
    check(device, slots, 0, ROWS)


def test_keys_of_16_bytes_have_whole_buckets(device):
    assert not slots_of(device, WIDE_WORD).aimed
