"""Bitwise equality of tables built on a GPU and on the CPU, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.tables import HashMap, HashSet, MultiMap

pytestmark = pytest.mark.gpu

N = 600
WIDTHS = [("u4", "u4"), ("u8", "u8"), ("u4", "u8"), ("u8", "u4"), ("i2", "f4"), ("f8", "i1")]


def bits_of(thing: Any, owner: str) -> dict[str, bytes]:
    """Return the bytes of every array of a table by its path, not pointers."""
    found: dict[str, bytes] = {}
    if hasattr(thing, "__cuda_array_interface__"):
        found[owner] = backend.get("cuda").to_host(thing).tobytes()
    elif isinstance(thing, np.ndarray):
        found[owner] = thing.tobytes()
    elif isinstance(thing, list | tuple):
        for number, part in enumerate(thing):
            found |= bits_of(part, f"{owner}[{number}]")
    elif type(thing).__module__.startswith("dgpuhash.tables") and hasattr(thing, "__dict__"):
        for name, part in vars(thing).items():
            found |= bits_of(part, f"{owner}.{name}")
    return found


def assert_same_bits(cpu: Any, gpu: Any, unwritten: tuple[str, ...] = ()) -> None:
    """Assert that two tables have the same bytes.

    `unwritten` names arrays with places that nothing was written to.
    """
    expected, seen = bits_of(cpu, "table"), bits_of(gpu, "table")
    for name in unwritten:
        del expected[name], seen[name]
    assert expected.keys() == seen.keys()
    assert sum(map(len, expected.values())) > 64
    assert [name for name in expected if expected[name] != seen[name]] == []


def rows(key: str, value: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return keys with duplicates and the reserved keys, and values."""
    generator = np.random.default_rng(11)
    keys = generator.integers(0, 400, N).astype(key)
    if np.dtype(key).kind == "u":
        top = np.iinfo(key).max
        keys[5:9] = top, top - 1, top, 0
    return keys, generator.integers(0, 100, N).astype(value)


@pytest.mark.parametrize("key", sorted({key for key, _ in WIDTHS}))
def test_set(key: str) -> None:
    keys, _ = rows(key, "u1")
    made = []
    for name in ("cpu", "cuda"):
        device = backend.get(name)
        table = HashSet(key, capacity=N, device=name, seed=3)
        for row in range(N):
            table.insert(device.from_host(keys[row : row + 1]))
            if row % 7 == 0:
                table.erase(device.from_host(keys[row // 2 : row // 2 + 1]))
        made.append(table)
    assert_same_bits(*made)


@pytest.mark.parametrize(("key", "value"), WIDTHS)
def test_map(key: str, value: str) -> None:
    keys, values = rows(key, value)
    made = []
    for name in ("cpu", "cuda"):
        device = backend.get(name)
        table = HashMap(key, value, capacity=N, device=name, seed=3)
        for row in range(N):
            pair = [device.from_host(part[row : row + 1]) for part in (keys, values)]
            if row % 3:
                table.insert(*pair)
            else:
                table.upsert(*pair)
            if row % 7 == 0:
                table.erase(device.from_host(keys[row // 2 : row // 2 + 1]))
        made.append(table)
    assert_same_bits(*made)


@pytest.mark.parametrize(("key", "value"), WIDTHS)
def test_multimap(key: str, value: str) -> None:
    keys, values = rows(key, value)
    made = []
    for name in ("cpu", "cuda"):
        device = backend.get(name)
        table = MultiMap(key, value, capacity=N, device=name, seed=3)
        for row in range(0, N, 3):
            chosen = [device.from_host(part[row : row + 1]) for part in (keys, values)]
            table.insert(*chosen)
        made.append(table)
    # The handles, which the key table holds, say where in the pool values stand; its rest is bare.
    assert_same_bits(
        *made,
        unwritten=tuple(f"table._store._lists._{name}" for name in ("pool", "handles", "records")),
    )
    queries = np.unique(keys)
    values_of_each = []
    for table in made:
        device = backend.get(table.device)
        answers = table.find(device.from_host(queries))
        values_of_each.append([device.to_host(part).tobytes() for part in answers])
    assert values_of_each[0] == values_of_each[1]
