"""Benchmark keys in another table's order, with neighbouring hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.tables import (
    HashMap,
    HashSet,
    MultiMap,
    factorize,
    group_reduce,
    isin,
    join_indices,
    unique,
    value_counts,
)
from dgpuhash.typing import Device

_N = (10**3, 2**17 + 1, 2**20)
# Keys of the other table for each measured key.
_PART = 4
_SLICES = 100


def run(
    backend: Backend, *, n: Sequence[int] | None = None, repeats: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows of verbs on keys in another table's order, and permuted.

    The verbs are those of tables and column functions. The keys are the first n of a table of four
    times as many, in the order of `items`: their hashes are as close together as possible. The
    floor is the time of n random keys in the same run: a ratio of one means that the order of the
    keys makes no difference. ``slices`` inserts the keys in a hundred batches. Each verb's answer
    must have n keys.

    Parameters
    ----------
    backend : Backend
    n : sequence of int, optional
        Numbers of keys.
    repeats : int, optional
        Measurements of each figure.
    """
    for rows in n or _N:
        yield from _rows(backend, rows, repeats or REPEATS[backend.name])


def _rows(backend: Backend, n: int, repeats: int) -> Iterator[dict[str, Any]]:
    drawn = np.random.default_rng(n).choice(2**60, 2 * _PART * n + 8, replace=False)
    other = HashSet.from_keys(backend.from_host(drawn[: _PART * n]))
    close = backend.asarray(other.items()[:n])
    order = backend.from_host(np.random.default_rng(1).permutation(n))
    random = backend.from_host(drawn[-n:])
    orders = {"a slice of a table": close, "a slice, permuted": close[order]}
    for verb, work in _verbs(backend.name).items():
        floor, _ = median_time(backend, partial(work, random), repeats=repeats)
        for name, keys in orders.items():
            seconds, found = median_time(backend, partial(work, keys), repeats=repeats)
            require(found == n, "keys were lost", verb=verb, n=n, distribution=name)
            yield duration(seconds, floor, verb=verb, n=n, distribution=name)


def _verbs(device: Device) -> dict[str, Callable[[Any], int]]:
    """Return functions of keys, by verb, that return the number of keys found."""

    def slices(keys: Any) -> int:
        table, rows = HashSet(keys.dtype, device=device), -(-len(keys) // _SLICES)
        for start in range(0, len(keys), rows):
            table.insert(keys[start : start + rows])
        return len(table)

    return {
        "HashSet": lambda keys: len(HashSet.from_keys(keys)),
        "HashMap": lambda keys: len(HashMap.from_arrays(keys, keys)),
        "MultiMap": lambda keys: len(MultiMap.from_arrays(keys, keys)),
        "slices": slices,
        "factorize": lambda keys: len(factorize(keys)[1]),
        "unique": lambda keys: len(unique(keys)),
        "value_counts": lambda keys: len(value_counts(keys)[0]),
        "group_reduce": lambda keys: len(group_reduce(keys, keys, "sum")[0]),
        "isin": lambda keys: int(isin(keys, keys).sum()),
        "join_indices": lambda keys: len(join_indices(keys, keys)[0]),
    }
