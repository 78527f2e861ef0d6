"""Assertions that a table and its dictionary hold the same pairs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from model import MapModel, MultiMapModel, SetModel, keys_of, rows_of

__all__ = ["agree", "fresh_once", "pairs_of"]


def pairs_of(device: Any, table: Any) -> list[tuple[bytes, bytes]]:
    """Return all pairs of a map or multimap, as bytes."""
    keys, values = table.items()
    return list(
        zip(
            keys_of(device.host(keys, table.key_dtype)),
            rows_of(device.host(values, table.value_dtype)),
            strict=True,
        )
    )


def agree(device: Any, table: Any, model: SetModel | MapModel | MultiMapModel) -> None:
    """Assert that the table holds exactly the pairs of the model."""
    assert len(table) == len(model)
    if isinstance(model, SetModel):
        keys = keys_of(device.host(table.items(), table.key_dtype))
        assert len(keys) == len(model)
        assert set(keys) == model.keys
    elif isinstance(model, MapModel):
        pairs = pairs_of(device, table)
        assert len(pairs) == len(model)
        assert dict(pairs) == model.pairs
    else:
        assert table.n_keys == len(model.lists)
        lists: dict[bytes, list[bytes]] = {}
        for key, value in pairs_of(device, table):
            lists.setdefault(key, []).append(value)
        assert lists == model.lists


def fresh_once(keys: Any, mask: Any, expected: list[bool]) -> None:
    """Assert that the mask marks exactly one expected row of each key.

    The expected keys are those with a row that `expected` marks.
    """
    names = keys_of(keys)
    marked = Counter(name for name, mark in zip(names, np.asarray(mask), strict=True) if mark)
    assert marked == Counter(name for name, mark in zip(names, expected, strict=True) if mark)
