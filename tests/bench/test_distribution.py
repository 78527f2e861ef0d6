"""Keys and their distributions."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.bench.keys import Distribution, draw, keys_of, unique_keys
from dgpuhash.errors import SpecError


@pytest.mark.parametrize("dtype", ["u4", "u8", "i4", "i8"])
def test_keys_are_unique_and_disjoint(device: str, dtype: str) -> None:
    used = backend.get(device)
    both = [
        used.to_host(unique_keys(used, first, 50_000, np.dtype(dtype))) for first in (0, 50_000)
    ]
    assert both[0].dtype == np.dtype(dtype)
    assert len(np.unique(np.concatenate(both))) == 100_000


def test_a_number_has_the_same_key_on_every_device(device: str) -> None:
    used = backend.get(device)
    made = used.to_host(keys_of(used.xp.arange(5), np.dtype("u8")))
    np.testing.assert_array_equal(made, keys_of(np.arange(5), np.dtype("u8")))
    assert made[0] == 0
    assert made[1] == 0xB456BCFC34C2CB2C


@pytest.mark.parametrize("text", ["unique", "uniform:1", "uniform:8", "uniform:10000", "zipf:1.5"])
def test_a_sample_knows_its_keys(device: str, text: str) -> None:
    used = backend.get(device)
    sample = Distribution.of(text).sample(used, 10_000)
    numbers = used.to_host(sample.numbers)
    assert numbers.min() >= 1
    assert numbers.max() <= sample.most
    present, counts = np.unique(numbers, return_counts=True)
    np.testing.assert_array_equal(used.to_host(sample.present()), present)
    np.testing.assert_array_equal(used.to_host(sample.counts())[present], counts)
    assert int(sample.counts().sum()) == len(sample) == 10_000
    assert sample.distinct() == len(present)


def test_uniform_keys_come_about_equally_often(device: str) -> None:
    counts = backend.get(device).to_host(draw(backend.get(device), 100_000, 10).counts())[1:]
    assert (abs(counts - 10_000) < 500).all()


def test_the_first_keys_of_zipf_come_as_often_as_they_should(device: str) -> None:
    used = backend.get(device)
    counts = used.to_host(Distribution.of("zipf:1.5").sample(used, 100_000).counts())
    share = 1 / (np.arange(1, 100_001) ** -1.5).sum()
    np.testing.assert_allclose(counts[1:4] / 100_000, share * np.arange(1, 4) ** -1.5, rtol=0.05)


@pytest.mark.parametrize(
    "text",
    ["", "uniform", "uniform:0.5", "uniform:x", "zipf:0", "unique:2", "normal:1", "zipf:nan"],
)
def test_impossible_distributions(text: str) -> None:
    with pytest.raises(SpecError, match=r"zipf:1\.5"):
        Distribution.of(text)
