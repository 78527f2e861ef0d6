"""DistributedBloomFilter: the bits of one filter, on any number of workers."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of, kill
from distributed import Client

import dgpuhash
from dgpuhash import BloomFilter
from dgpuhash.distributed import DistributedBloomFilter, DistributedSet
from dgpuhash.errors import (
    DeviceError,
    FormatError,
    IndexLost,
    KeyTypeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster

KEYS = np.random.default_rng(4).integers(0, 2**62, 20_000)
OTHERS = np.random.default_rng(5).integers(0, 2**62, 100_000)


def twin_of(made: DistributedBloomFilter, keys: np.ndarray) -> BloomFilter:
    """Return the filter on one device that has the same bits."""
    twin = BloomFilter._of(made.spec, 0, "cpu")
    twin.insert(keys)
    return twin


def check_close(fewer: np.ndarray, more: np.ndarray) -> None:
    """Check that answers are the same but for keys of the blocks at bounds of shards."""
    assert (fewer <= more).all() and (fewer != more).mean() < 0.001


def test_answers_are_those_of_one_filter(threads):
    with DistributedBloomFilter("i8", len(KEYS), rate=0.05, seed=9) as made:
        assert "for 20,000 keys" in repr(made) and made.rate == 0
        assert made.insert(da.from_array(KEYS[:15_000], chunks=4000)) is None
        assert made.insert(KEYS[15_000:]) is None
        twin = twin_of(made, KEYS)
        asked = np.concatenate([KEYS[::7], OTHERS])
        expected = twin.contains(asked)
        assert expected[: len(KEYS[::7])].all() and 0.04 < expected[3000:].mean() < 0.06
        lazy = made.contains(da.from_array(asked, chunks=9000))
        assert isinstance(lazy, da.Array)
        check_close(lazy.compute(), expected)
        assert (made.contains(asked, deduplicate=True) == lazy.compute()).all()
        assert made.contains(pd.Series(asked[:9], index=list("abcdefghi"))).loc["c"]
        assert (
            made.contains([0.5, float(KEYS[0])]).tolist()
            == twin.contains([0.5, float(KEYS[0])]).tolist()
        )
        stats = made.stats()
        assert len(stats) == 3 and stats["blocks"].sum() >= twin.stats().blocks
        assert made.rate == pytest.approx(twin.rate, rel=0.02)
        assert made.nbytes == stats["nbytes"].sum() and made.capacity == len(KEYS)
        assert "epoch 2" in repr(made) and "<table" in made._repr_html_()
        made.clear()
        assert made.rate == 0 and not made.contains(KEYS).any()


@pytest.mark.parametrize("dtype", ["bool", "u2", "f4", "M8[ns]"])
def test_keys_of_every_dtype(threads, dtype):
    keys = (KEYS[:200] % 30_000).astype(dtype)
    with DistributedBloomFilter.from_keys(keys) as made:
        assert made.capacity == 200 and made.contains(keys).all()
    with DistributedBloomFilter(dtype, nbytes=32) as tiny:
        # All workers share its only block.
        tiny.insert(keys)
        assert tiny.contains(keys).all()


def test_impossible_arguments(threads):
    for settings in ({}, {"capacity": 5, "nbytes": 64}, {"capacity": 5, "rate": 0.9}):
        with pytest.raises(SpecError):
            DistributedBloomFilter("i8", **settings)
    with DistributedBloomFilter("i8", 10) as made:
        with pytest.raises(KeyTypeError):
            made.insert([1.5])
        made.insert([1])
        with pytest.raises(DeviceError):
            made._settle("cuda")
    lazy = da.from_array(KEYS, chunks=5000)
    with pytest.raises(UnsupportedError, match="capacity="):
        DistributedBloomFilter.from_keys(lazy[lazy > 5])


def test_unions(threads):
    made = [DistributedBloomFilter("i8", len(KEYS), seed=2) for _ in range(4)]
    for one, its in zip(made, np.array_split(KEYS, 3), strict=False):
        one.insert(its)
    union = made[0].union(*made[1:])
    check_close(union.contains(OTHERS), twin_of(union, KEYS).contains(OTHERS))
    assert union.contains(KEYS).all() and not made[0].contains(KEYS).all()
    made[3] |= made[0]
    made[3] |= made[3]
    assert (made[3].contains(KEYS) == made[0].contains(KEYS)).all()
    assert ((made[1] | made[2]).contains(KEYS[7000:])).all()
    with DistributedBloomFilter("i8", len(KEYS), seed=3) as other, pytest.raises(SpecError):
        union | other
    few = list(threads.scheduler_info(n_workers=-1)["workers"])[:2]
    elsewhere = DistributedBloomFilter("i8", len(KEYS), seed=2, workers=few)
    with elsewhere, pytest.raises(UnsupportedError, match="workers="):
        union | elsewhere
    with pytest.raises(TypeError):
        union | {1}
    for each in (*made, union):
        each.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_saves_are_loaded_on_any_number_of_workers(threads, tmp_path, workers):
    addresses = list(threads.scheduler_info(n_workers=-1)["workers"])
    with DistributedBloomFilter("i8", len(KEYS), rate=0.02) as made:
        made.insert(KEYS)
        expected = made.contains(OTHERS)
        made.save(tmp_path / "seen")
        spec = made.spec
    with DistributedBloomFilter.load(tmp_path / "seen", workers=addresses[:workers]) as found:
        assert found.spec == spec and found.capacity == len(KEYS)
        check_close(expected, found.contains(OTHERS))
        assert found.contains(KEYS).all()
        found.insert(OTHERS[:10])
        with found.copy() as copied:
            assert copied.contains(OTHERS[:10]).all()
    with dgpuhash.load(tmp_path / "seen", client=threads) as again:
        assert type(again) is DistributedBloomFilter and again.contains(KEYS).all()
    with pytest.raises(FormatError, match="bloom_filter and not a set"):
        DistributedSet.load(tmp_path / "seen")


def test_damaged_saves(threads, tmp_path):
    with DistributedBloomFilter.from_keys(KEYS) as made:
        made.save(tmp_path / "seen")
    (first, *_) = sorted((tmp_path / "seen").glob("*.arrow"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(FormatError, match="checksum"):
        DistributedBloomFilter.load(tmp_path / "seen")


def test_a_lost_shard_is_made_anew_from_the_save(tmp_path):
    with cluster_of(3, processes=True) as client:
        made = DistributedBloomFilter.from_keys(KEYS, client=client)
        expected = made.contains(OTHERS)
        made.save(tmp_path / "seen")
        kill(client, made.workers[1])
        with pytest.raises(IndexLost):
            made.contains(OTHERS)
        rebuilt = made.rebuild()
        assert 1 in rebuilt
        check_close(expected, made.contains(OTHERS))
        assert made.contains(KEYS).all()
        made.close()


def test_the_client_may_be_given(threads: Client):
    with DistributedBloomFilter("u4", 100, client=threads) as made:
        made.insert(np.arange(100, dtype="u4"))
        assert made.contains(np.arange(100)).all()
        with pytest.raises(UnsupportedError):
            made.__reduce__()
