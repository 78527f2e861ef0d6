"""Grouping by key of pairs that come in batches, more than one sort should hold twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.pool import list_numbers

__all__ = ["group_batches"]

# Log2 of the parts: on a CPU a part lies in the caches.
_PARTS_BITS = {"cpu": 6, "cuda": 4}


def group_batches(
    backend: Backend,
    batches: Iterable[tuple[Any, Any]],
    seed: int,
    cut: Callable[[GroupedBatch], GroupedBatch],
) -> GroupedBatch | None:
    """Return the pairs of all batches grouped by key, those of one key in the order they came.

    The keys are in the order of ascending hash. Batches are dealt out to parts by the highest bits
    of the hash as they come, and each part is grouped by itself.

    Parameters
    ----------
    backend : Backend
    batches : iterable of (array, array)
        Key words and value words.
    seed : int
        Of the hash.
    cut : callable
        Takes from a grouped part the values that have no place.
    """
    shared = _PARTS_BITS[backend.name]
    held = []
    for bits, words in batches:
        moved, bounds = backend.split(bits, words, parts=2**shared, seed=seed)
        held.append((moved.keys, moved.values, backend.to_host(bounds).tolist()))
    n_rows = sum(len(bits) for bits, _, _ in held)
    if not n_rows:
        return None
    xp = backend.xp
    # What is not written takes no memory on a CPU.
    keys = backend.empty(n_rows, held[0][0].dtype)
    values = backend.empty(n_rows, held[0][1].dtype)
    starts = backend.empty(n_rows + 1, np.int64)
    runs = size = 0
    for part in range(2**shared):
        ends = [slice(*bounds[part : part + 2]) for _, _, bounds in held]
        bits = xp.concatenate([each[rows] for (each, _, _), rows in zip(held, ends, strict=True)])
        words = xp.concatenate([each[rows] for (_, each, _), rows in zip(held, ends, strict=True)])
        if not len(bits):
            continue
        batch = cut(
            _in_order(backend, group_by_key(backend, bits, words, seed, None, shared), seed)
        )
        n, end = runs + len(batch.keys), size + len(batch.values)
        keys[runs:n], values[size:end] = batch.keys, batch.values
        first = xp.arange(len(batch.keys)) if batch.starts is None else batch.starts[:-1]
        starts[runs:n] = first + size
        runs, size = n, end
    starts[runs] = size
    return GroupedBatch(keys[:runs], starts[: runs + 1], values[:size], by_hash=True)


def _in_order(backend: Backend, batch: GroupedBatch, seed: int) -> GroupedBatch:
    """Return a batch with its keys by ascending hash, whatever their order is."""
    if batch.by_hash:
        return batch
    xp, starts = backend.xp, batch.starts
    if starts is None:
        starts = xp.arange(len(batch.keys) + 1, dtype=np.int64)
    order = backend.stable_order(backend.hash_keys(batch.keys, seed))
    sizes = (starts[1:] - starts[:-1])[order]
    ends = backend.zeros(len(sizes) + 1, np.int64)
    xp.cumsum(sizes, out=ends[1:])
    owners = list_numbers(backend, ends, len(batch.values))
    places = xp.arange(len(batch.values)) + (starts[:-1][order] - ends[:-1])[owners]
    return GroupedBatch(batch.keys[order], ends, batch.values[places], by_hash=True)
