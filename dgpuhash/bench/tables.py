"""How fast are insert, find and absent keys on a HashMap, beside this machine's own floors?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.keys import unique_keys, values_of
from dgpuhash.bench.limits import insert_floor, lookup_floor
from dgpuhash.bench.timing import median_time
from dgpuhash.errors import DgpuhashError
from dgpuhash.tables import HashMap

__all__ = ["run"]

# Pairs by bits of a key (and of a value).
SIZES = {
    "cuda": {32: (2**24, 2**28), 64: (2**27, 2**28)},
    "cpu": {32: (2**20, 2**22), 64: (2**20, 2**22)},
}


def run(
    backend: Backend,
    *,
    sizes: Sequence[int] | None = None,
    bits: Sequence[int] = (32, 64),
    loads: Sequence[float] = (0.5, 0.8),
    repeats: int = 5,
) -> Iterator[dict[str, Any]]:
    """Three rows (insert, find, absent) for each width, size and load.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    sizes : sequence of int, optional
        Pairs in the table.
    bits : sequence of {32, 64}
        Width of keys and of values.
    loads : sequence of float
        Share of the slots in use when all pairs are in.
    repeats : int
        Runs whose median counts.

    Raises
    ------
    DgpuhashError
        When an answer on the timed data is wrong.
    """
    for width in bits:
        for n in SIZES[backend.name][width] if sizes is None else sizes:
            for load in loads:
                yield from _measure(backend, np.dtype(f"u{width // 8}"), n, load, repeats)


def _measure(
    backend: Backend, dtype: np.dtype[Any], n: int, load: float, repeats: int
) -> Iterator[dict[str, Any]]:
    table = HashMap(dtype, dtype, capacity=n, max_load=load, device=backend.name)
    nbytes = table.nbytes // 64 * 64
    keys = unique_keys(backend, 0, n, dtype)
    values = values_of(keys, dtype)
    seconds = {}
    seconds["insert"], fresh = median_time(
        backend, partial(table.insert, keys, values), repeats=repeats, before=table.clear
    )
    _require(bool(fresh.all()) and len(table) == n, "an inserted key was not new", n, load)
    del fresh
    seconds["find"], (answer, found) = median_time(
        backend, partial(table.find, keys), repeats=repeats
    )
    _require(bool(found.all()), "a stored key was not found", n, load)
    _require(bool((answer == values).all()), "a value was wrong", n, load)
    del answer, values
    absent_keys = unique_keys(backend, n, n, dtype)
    seconds["absent"], (_, found) = median_time(
        backend, partial(table.find, absent_keys), repeats=repeats
    )
    _require(not bool(found.any()), "an absent key was found", n, load)
    del absent_keys, found, _, table
    floors = {"insert": insert_floor(backend, keys, nbytes, repeats)}
    floors["find"] = floors["absent"] = lookup_floor(backend, keys, nbytes, repeats)
    width = 8 * dtype.itemsize
    for verb, time in seconds.items():
        yield {
            "pairs": f"{width}/{width}",
            "n": n,
            "load": load,
            "verb": verb,
            "rate": round(n / time / 1e9, 4),
            "unit": "G/s",
            "floor": round(floors[verb] / 1e9, 4),
            "ratio": round(n / time / floors[verb], 3),
            "correct": True,
        }


def _require(holds: bool, problem: str, n: int, load: float) -> None:
    if not holds:
        raise DgpuhashError(
            f"{problem} while measuring {n:,} pairs at load {load}; the figures are void: run the "
            "tests on this device and report what fails"
        )
