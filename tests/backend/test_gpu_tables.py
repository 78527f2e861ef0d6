"""Every verb of every table on a GPU, at sizes for compute-sanitizer.

compute-sanitizer takes about a minute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.tables import HashMap, HashSet, MultiMap

pytestmark = pytest.mark.gpu

N = 3000
WIDTHS = [("u4", "u4"), ("u8", "u8"), ("u4", "u8"), ("u8", "u4")]


def to_gpu(host: np.ndarray[Any, Any]) -> Any:
    return backend.get("cuda").from_host(host)


def to_host(device: Any) -> np.ndarray[Any, Any]:
    return backend.get("cuda").to_host(device)


def some_keys(dtype: str) -> np.ndarray[Any, Any]:
    """Return keys of which half are duplicates, with the reserved keys."""
    top = np.iinfo(dtype).max
    keys = np.random.default_rng(7).integers(0, top, N, dtype=dtype)
    keys[N // 2 :] = keys[: N - N // 2]
    keys[:4] = 0, top, top - 1, top
    return keys


@pytest.mark.parametrize(("key", "value"), WIDTHS)
def test_map(key: str, value: str) -> None:
    keys = some_keys(key)
    values = np.arange(N, dtype=value)
    table = HashMap(key, value, device="cuda")
    fresh = to_host(table.insert(to_gpu(keys), to_gpu(values), keep="last"))
    expected = {int(k): int(v) for k, v in zip(keys, values, strict=True)}
    assert len(table) == fresh.sum() == len(expected)
    answer, found = (to_host(part) for part in table.find(to_gpu(keys)))
    assert found.all()
    assert answer.tolist() == [expected[int(each)] for each in keys]
    erased = to_host(table.erase(to_gpu(keys[: N // 4])))
    gone = {int(each) for each in keys[: N // 4]}
    assert erased.sum() == len(gone)
    found = to_host(table.contains(to_gpu(keys)))
    assert found.tolist() == [int(each) not in gone for each in keys]
    assert len(table.items()[0]) == len(expected) - len(gone)


@pytest.mark.parametrize("key", ["u4", "u8"])
def test_set(key: str) -> None:
    keys = some_keys(key)
    table = HashSet(key, device="cuda")
    fresh = to_host(table.insert(to_gpu(keys)))
    assert fresh.sum() == len(np.unique(keys)) == len(table)
    assert to_host(table.contains(to_gpu(keys))).all()
    assert to_host(table.erase(to_gpu(keys))).sum() == len(np.unique(keys))
    assert len(table) == 0


@pytest.mark.parametrize(("key", "value"), WIDTHS)
def test_multimap(key: str, value: str) -> None:
    keys = some_keys(key) % np.array(200, key)
    values = np.arange(N, dtype=value)
    table = MultiMap(key, value, device="cuda")
    for half in (slice(0, N // 2), slice(N // 2, N)):
        table.insert(to_gpu(keys[half]), to_gpu(values[half]))
    queries = np.unique(keys)
    found, offsets = (to_host(part) for part in table.find(to_gpu(queries), stable=True))
    assert offsets[-1] == N
    for row, query in enumerate(queries):
        np.testing.assert_array_equal(found[offsets[row] : offsets[row + 1]], values[keys == query])
