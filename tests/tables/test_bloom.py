"""Bloom filters: no false negative, few false positives, merged parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.tables.bloom import BloomFilter

SEED = 0x5EED


def filter_of(backend, keys, blocks=None):
    made = BloomFilter(backend, blocks or BloomFilter.blocks_for(len(keys)), seed=SEED)
    made.add(keys)
    return made


@pytest.mark.parametrize("word", ["u4", "u8"])
@settings(max_examples=30)
@given(data=st.data())
def test_every_added_key_passes(device, word, data):
    most = np.iinfo(word).max
    numbers = data.draw(st.lists(st.integers(0, most) | st.sampled_from([0, 1, most]), max_size=60))
    keys = device.backend.from_host(np.array(numbers, word))
    made = filter_of(device.backend, keys, data.draw(st.integers(1, 9)))
    assert device.backend.to_host(made.test(keys)).all()


def test_few_others_pass(device):
    backend = device.backend
    keys = np.random.default_rng(1).permutation(400_000).astype(np.uint64)
    made = filter_of(backend, backend.from_host(keys[:200_000]))
    assert made.nbytes < 1.4 * 200_000
    assert backend.to_host(made.test(backend.from_host(keys[:200_000]))).all()
    passed = backend.to_host(made.test(backend.from_host(keys[200_000:])))
    assert 0.005 < passed.mean() < 0.015


def test_ranges_make_the_whole(device):
    backend, parts = device.backend, 3
    keys = np.random.default_rng(2).integers(0, 2**63, 5000).astype(np.uint64)
    hashes = backend.hash_keys(backend.from_host(keys), SEED)
    owners = backend.to_host(backend.owner_of(hashes, parts))
    whole = filter_of(backend, backend.from_host(keys), parts * 50)
    made = BloomFilter(backend, parts * 50, seed=SEED)
    for part in range(parts):
        made.range(part, parts).add(backend.from_host(keys[owners == part]))
    assert (backend.to_host(made.words) == backend.to_host(whole.words)).all()


def test_nothing_passes_an_empty_one(device):
    backend = device.backend
    made = filter_of(backend, backend.empty(0, np.uint32))
    assert backend.to_host(made.test(backend.empty(0, np.uint32))).shape == (0,)
    assert not backend.to_host(made.test(backend.from_host(np.arange(9, dtype=np.uint32)))).any()
