"""Blocks of Bloom filters: no false negative, the expected rate, merged parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, BloomBlocks, blocks_for, keys_for, rate_at

SEED = 0x5EED


def filter_of(backend, keys, blocks=None):
    made = BloomBlocks(backend, blocks or blocks_for(len(keys), 0.01), seed=SEED)
    made.insert(keys)
    return made


@pytest.mark.parametrize("word", ["u4", "u8"])
@settings(max_examples=30)
@given(data=st.data())
def test_every_added_key_passes(device, word, data):
    most = np.iinfo(word).max
    numbers = data.draw(st.lists(st.integers(0, most) | st.sampled_from([0, 1, most]), max_size=60))
    keys = device.backend.from_host(np.array(numbers, word))
    made = filter_of(device.backend, keys, data.draw(st.integers(1, 9)))
    assert device.backend.to_host(made.contains(keys)).all()


@pytest.mark.parametrize("rate", [0.0005, 0.001, 0.01, 0.05, 0.25])
def test_the_rate_is_the_expected_one(device, rate):
    backend, count = device.backend, 200_000
    blocks = blocks_for(count, rate)
    keys = np.random.default_rng(1).integers(0, 2**63, count + 2_000_000).astype(np.uint64)
    made = filter_of(backend, backend.from_host(keys[:count]), blocks)
    assert made.nbytes == blocks * BLOCK_NBYTES
    assert backend.to_host(made.contains(backend.from_host(keys[:count]))).all()
    measured = backend.to_host(made.contains(backend.from_host(keys[count:]))).mean()
    # About 1000 of the keys pass at the lowest rate: 10 % are three standard deviations.
    assert measured == pytest.approx(rate, rel=0.1)
    ones, expected = made.fill()
    assert expected == pytest.approx(rate, rel=0.03)
    words = backend.to_host(made.words).view(np.uint32)
    shares = np.bitwise_count(words).reshape(blocks, 8) / 32
    assert ones == np.bitwise_count(words).sum()
    assert expected == pytest.approx(shares.prod(axis=1).mean(), abs=2**-27)


def test_sizes_follow_the_rate():
    drawn = np.random.default_rng(3).poisson(24.3, 400_000)
    assert rate_at(24.3) == pytest.approx(((1 - (31 / 32) ** drawn) ** 8).mean(), rel=0.01)
    assert rate_at(0) == 0 and rate_at(1e9) == 1
    for rate in (0.0005, 0.01, 0.25):
        blocks = blocks_for(10**9, rate)
        assert rate_at(10**9 / blocks) <= rate <= rate_at(10**9 / (blocks - 1))
        assert keys_for(blocks, rate) >= 10**9 > keys_for(blocks - 1, rate)
    assert blocks_for(0, 0.01) == blocks_for(1, 0.25) == 1


@pytest.mark.parametrize("blocks", [150, 151, 1, 2])
def test_ranges_make_the_whole(device, blocks):
    backend, parts = device.backend, 3
    keys = np.random.default_rng(2).integers(0, 2**63, 5000).astype(np.uint64)
    hashes = backend.hash_keys(backend.from_host(keys), SEED)
    owners = backend.to_host(backend.owner_of(hashes, parts))
    whole = filter_of(backend, backend.from_host(keys), blocks)
    made = BloomBlocks(backend, blocks, seed=SEED)
    for part in range(parts):
        own = backend.from_host(keys[owners == part])
        made.range(part, parts).insert(own)
        alone = BloomBlocks(backend, blocks, seed=SEED, part=part, parts=parts)
        alone.insert(own)
        assert backend.to_host(alone.contains(own)).all()
        # Nothing comes of keys that others own, but of those that share a block at a bound.
        others = backend.from_host(keys[owners != part])
        alone.contains(others)
        alone.insert(others)
        assert backend.to_host(alone.contains(own)).all()
        assert len(alone.words) == len(made.range(part, parts).words)
        assert (backend.to_host(alone.words & ~whole.range(part, parts).words) == 0).all()
    assert (backend.to_host(made.words) == backend.to_host(whole.words)).all()


def test_nothing_passes_an_empty_one(device):
    backend = device.backend
    made = filter_of(backend, backend.empty(0, np.uint32))
    assert backend.to_host(made.contains(backend.empty(0, np.uint32))).shape == (0,)
    assert not backend.to_host(
        made.contains(backend.from_host(np.arange(9, dtype=np.uint32)))
    ).any()
