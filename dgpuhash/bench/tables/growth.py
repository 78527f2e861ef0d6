"""Benchmark growing and ageing tables, and adversarial keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, rate, require, short
from dgpuhash.bench.keys import keys_of
from dgpuhash.bench.memory import peak_bytes
from dgpuhash.tables import HashMap, HashSet

_KEY = np.dtype("u4")
_N = {"cpu": 2**20, "cuda": 2**28}
_BATCHES = {"cpu": (2**12, 2**14, 2**16), "cuda": (2**16, 2**18, 2**20, 2**22)}
_REPEATS = 2
# Slices of a hundredth of the keys that come and go, and how many of them are timed at both ends.
_SLICES, _ENDS = 1000, 100
_LOAD = 0.85
# Keys among which those close to each other are chosen, for each one; and the seed that is known.
_AMONG, _SEED = 16, 1


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    batch: Sequence[int] | None = None,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of inserts into a doubling table, of ageing, and of adversarial keys.

    Verbs, and what each stands beside:

    - ``insert``: inserts in slices into a blank map, beside one with room for all; each slice ends
      before the next one begins. ``worst call`` (ms) and ``peak bytes`` (in bytes of the grown
      table) are of the same inserts.
    - ``ageing``: keys inserted and erased in 1,000 slices of 1 % at load 0.85 (WarpSpeed's): the
      last 100 slices beside the first 100; ``lines`` of a lookup at the end and the start.
    - ``adversarial``: inserts of keys whose hashes are the least for the table's seed, as someone
      chooses them who knows it, beside other keys.

    Parameters
    ----------
    backend : Backend
    n : sequence of int, optional
        Keys.
    batch : sequence of int, optional
        Rows of a slice.
    repeats : int, optional
        Turns of each figure, of which the shortest counts.
    """
    batches = batch or _BATCHES[backend.name]
    for keys in n or [_N[backend.name]]:
        for rows in batches:
            yield from _growth(backend, keys, rows, repeats or _REPEATS)
        yield from _ageing(backend, keys, max(batches))
        yield _adversarial(backend, keys // _AMONG, max(batches), repeats or _REPEATS)


def _growth(backend: Backend, n: int, batch: int, repeats: int) -> Iterator[dict[str, Any]]:
    what: dict[str, Any] = {"n": n, "batch": batch}

    def fill(capacity: int) -> tuple[list[float], HashMap]:
        table = HashMap(_KEY, _KEY, capacity, device=backend.name)
        inserts = (_insert(table, keys) for keys in _slices(backend, 0, n, batch))
        return _seconds(backend, inserts), table

    turns: dict[int, list[list[float]]] = {n: [], 0: []}
    for _ in range(repeats):
        for capacity, taken in turns.items():
            taken.append(fill(capacity)[0])
    roomy, grown = (min(map(sum, taken)) for taken in turns.values())
    yield rate(n / grown, n / roomy, verb="insert", **what)
    worst = [min(map(max, taken)) for taken in turns.values()]
    yield duration(worst[1], worst[0], verb="worst call", **what)
    (needed, _), (peak, (_, table)) = (peak_bytes(backend, lambda: fill(rows)) for rows in (n, 0))  # noqa: B023
    require(len(table) == n, "a key was not stored", **what)
    yield _amount(peak / table.nbytes, needed / table.nbytes, verb="peak bytes", **what)


def _ageing(backend: Backend, n: int, batch: int) -> Iterator[dict[str, Any]]:
    rows = -(-n // 100)
    what: dict[str, Any] = {"n": n, "batch": rows}
    table = HashMap(_KEY, _KEY, n, max_load=_LOAD, device=backend.name)
    for keys in _slices(backend, 0, n, batch):
        table.insert(keys, keys)
    lines, seconds = [table.stats().lines_per_lookup], []
    for first in range(0, _SLICES * rows, rows):
        old, new = (next(_slices(backend, start, rows, rows)) for start in (first, n + first))
        seconds += _seconds(backend, [lambda: table.erase(old), lambda: table.insert(new, new)])  # noqa: B023
    lines.append(table.stats().lines_per_lookup)
    require(len(table) == n and table.contains(new).all(), "a key was lost", **what)
    each, ends = 2 * rows * _ENDS, 2 * _ENDS
    start, end = sum(seconds[:ends]), sum(seconds[-ends:])
    yield rate(each / end, each / start, verb="ageing", **what)
    yield _amount(lines[1], lines[0], verb="lines", **what)


def _adversarial(backend: Backend, n: int, batch: int, repeats: int) -> dict[str, Any]:
    others = backend.xp.arange(_AMONG * n)
    chosen = HashSet.from_keys(others, seed=_SEED).items()[:n]

    def fill(keys: Any) -> float:
        table = HashSet(keys.dtype, seed=_SEED, device=backend.name)
        slices = [keys[first : first + batch] for first in range(0, n, batch)]
        seconds = sum(_seconds(backend, (_insert(table, each) for each in slices)))
        require(len(table) == n, "a key was lost", verb="adversarial", n=n)
        return seconds

    turns = [(fill(others[:n]), fill(chosen)) for _ in range(repeats)]
    usual, close = (min(taken) for taken in zip(*turns, strict=True))
    return rate(n / close, n / usual, verb="adversarial", n=n, batch=batch)


def _insert(table: Any, keys: Any) -> Callable[[], object]:
    values = [keys] if isinstance(table, HashMap) else []
    return lambda: table.insert(keys, *values)


def _slices(backend: Backend, first: int, n: int, rows: int) -> Iterator[Any]:
    for start in range(first, first + n, rows):
        yield keys_of(backend.xp.arange(start + 1, min(start + rows, first + n) + 1), _KEY)


def _seconds(backend: Backend, calls: Iterable[Callable[[], object]]) -> list[float]:
    """Return how long each call takes, to the end of its work on the device."""
    taken = []
    for call in calls:
        backend.synchronize()
        start = time.perf_counter()
        call()
        backend.synchronize()
        taken.append(time.perf_counter() - start)
    return taken


def _amount(amount: float, floor: float, **what: Any) -> dict[str, Any]:
    made = {**what, "amount": short(amount), "floor": short(floor)}
    return made | {"ratio": short(floor / amount), "correct": True}
