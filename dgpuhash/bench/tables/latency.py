"""Benchmark of calls with few keys on a large table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.keys import keys_of
from dgpuhash.bench.tables.pairs import Pairs
from dgpuhash.bench.timing import empty_launch, latency

BATCHES = (10**3, 10**4, 10**5)
_LOAD = 0.8
_CALLS = 50


def rows(
    backend: Backend, pairs: Pairs, n: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield rows of the time of each verb's calls on a table of `n` keys.

    Verbs are ``find``, ``contains``, ``insert`` and ``erase``. The time is the wall-clock time of
    one call until the device has finished; ``launch`` is the part until the call returns, in the
    same unit. On a GPU ``overhead`` is what the host adds to ``empty_launch``, the launch of a
    kernel that does nothing. The floor is one launch that only touches as many slots of a table of
    the same size. Batches look up stored keys, insert new keys, and erase the new keys; checked is
    that all stored keys are found with their values, that all new keys are inserted, and that all
    of these are erased.
    """
    xp = backend.xp
    most = max(batches)
    calls = _CALLS + 1
    capacity = n + calls * sum(batches)
    table = pairs.table(backend, capacity, _LOAD)
    keys = keys_of(xp.arange(1, n + 1), pairs.key)
    pairs.insert(table, keys, pairs.values(keys))
    slots = backend.zeros(8 * table.nbytes // pairs.floor_bits, f"u{pairs.floor_bits // 8}")
    made = n
    for batch in batches:
        what: dict[str, Any] = {"pairs": pairs.name, "n": n, "load": _LOAD, "batch": batch}
        what |= pairs.method.label
        asked = keys_of(xp.arange(1, batch + 1) * max(1, n // most) % n + 1, pairs.key)
        touched = asked.view(f"u{pairs.key.itemsize}").astype(slots.dtype)
        floor, _ = latency(
            backend,
            partial(
                backend.run, kernel_named("limit_lookup", f"u{pairs.floor_bits // 8}"), batch,
                keys=touched, values=xp.empty_like(touched), slots=slots,
                slot_count=len(slots) // 2,
            ),
            calls=_CALLS,
        )  # fmt: skip
        yield _row(backend, partial(pairs.find, table, asked), floor, **what, verb="find")
        yield _row(backend, partial(table.contains, asked), floor, **what, verb="contains")
        values, found = pairs.find(table, asked)
        require(found.all(), "a stored key was not found", **what)
        if values is not None:
            require((values == pairs.values(asked)).all(), "a value was wrong", **what)
        require(table.contains(asked).all(), "a stored key was not there", **what)
        later = [
            keys_of(xp.arange(first, first + batch), pairs.key)
            for first in range(made + 1, made + 1 + calls * batch, batch)
        ]
        made += calls * batch
        before = len(table)
        inserts = [partial(pairs.insert, table, each, pairs.values(each)) for each in later]
        yield _row(backend, partial(_next, iter(inserts)), floor, **what, verb="insert")
        require(len(table) == before + calls * batch, "an inserted key was not new", **what)
        if "erase" not in pairs.method.row.verbs:
            continue
        erases = [partial(table.erase, each) for each in later]
        yield _row(backend, partial(_next, iter(erases)), floor, **what, verb="erase")
        require(len(table) == before, "a key was not erased", **what)


def _next(pending: Iterator[Callable[[], Any]]) -> Any:
    return next(pending)()


def _row(backend: Backend, work: Callable[[], object], floor: float, **what: Any) -> dict[str, Any]:
    whole, launched = latency(backend, work, calls=_CALLS)
    parts = {"launch": launched}
    if backend.name == "cuda":
        empty = empty_launch(backend, calls=_CALLS)
        parts |= {"empty_launch": empty, "overhead": launched - empty}
    made = duration(whole, floor, unit="us", **what)
    return made | {name: float(f"{seconds * 1e6:.4g}") for name, seconds in parts.items()}
