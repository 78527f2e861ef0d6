"""A batch of pairs grouped by key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, args

__all__ = ["KeyRuns", "key_runs"]

_SEGMENT = {"cpu": 2**14, "cuda": 2**12}
# Below, sorting by key is cheaper than the passes of a sort by hash.
_FEW_ROWS = {"cpu": 2**12, "cuda": 2**16}
# Bits of the hash to sort by: about one in 2**32 pairs of different keys is not told apart.
_HASH_BITS = 32
# Rows of keys that are not told apart, for one tile to part them.
_MOST_MENDED = 2**12


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Runs of values, one for each distinct key, in input order inside a run."""

    keys: Any
    """The distinct keys' words."""
    starts: Any
    """Where each run begins in `values`, and the last one's end (int64); None: each has one."""
    values: Any
    by_hash: bool = False
    """Whether the keys come by ascending hash."""


def key_runs(backend: Backend, bits: Any, values: Any, seed: int) -> KeyRuns:
    """The pairs of key words and value words, neither of them changed, grouped by key.

    The keys of large batches come by ascending hash, as they stand in a table with that seed.
    """
    rows = len(bits)
    if rows <= _FEW_ROWS[backend.name]:
        order = backend.stable_order(bits)
        bits, values = bits[order], values[order]
        return _write(backend, bits, values, _count(backend, bits)[0], by_hash=False)
    bits, values = backend.sort_by_hash(bits, values, bits=_HASH_BITS, seed=seed)
    owners = seed, 2**_HASH_BITS - 1
    mixed_rows = backend.empty(max(rows // 16, 1), np.int64)
    places, mixed = _count(backend, bits, owners, mixed_rows)
    if mixed > len(mixed_rows):
        _sort(backend, bits, values, seed)
    elif mixed:
        _mend(backend, bits, values, owners, mixed_rows[:mixed])
    if mixed:
        places, _ = _count(backend, bits)
    return _write(backend, bits, values, places, by_hash=True)


def _sort(backend: Backend, bits: Any, values: Any, seed: int) -> None:
    """Bring rows into the order of all bits of their hashes."""
    order = backend.stable_order(backend.hash_keys(bits, seed))
    bits[...], values[...] = bits[order], values[order]


def _segments(backend: Backend, rows: int) -> tuple[int, int]:
    segment = _SEGMENT[backend.name]
    return math.ceil(rows / segment), segment


def _count(
    backend: Backend, bits: Any, owners: tuple[int, int] = (0, 0), mixed_rows: Any = None
) -> tuple[Any, int]:
    """Where the runs of each segment begin and the last one's end; and the number of mixed rows.

    Those are the rows whose key is another than before and has the same one of the `owners`, which
    are given as seed and number.
    """
    rows = len(bits)
    segments, segment = _segments(backend, rows)
    places = backend.zeros(segments + 1, np.uint64)
    mixed = backend.zeros(1, np.uint64)
    backend.run(
        args.run_count(bits.dtype), args.RUN_COUNT, segments,
        order=owners, keys=bits, counts=places[1:], mixed=mixed, mixed_rows=mixed_rows,
        mixed_most=0 if mixed_rows is None else len(mixed_rows),
        rows=rows, segment_rows=segment,
    )  # fmt: skip
    backend.xp.cumsum(places, out=places)
    return places, 0 if mixed_rows is None else int(mixed[0])


def _write(backend: Backend, bits: Any, values: Any, places: Any, *, by_hash: bool) -> KeyRuns:
    rows, runs = len(bits), int(places[-1])
    if runs == rows:
        return KeyRuns(bits, None, values, by_hash)
    keys, starts = backend.empty(runs, bits.dtype), backend.empty(runs + 1, np.int64)
    starts[runs:] = rows
    segments, segment = _segments(backend, rows)
    backend.run(
        args.run_write(bits.dtype), args.RUN_WRITE, segments,
        keys=bits, places=places, starts=starts, run_keys=keys, rows=rows, segment_rows=segment,
    )  # fmt: skip
    return KeyRuns(keys, starts, values, by_hash)


def _mend(
    backend: Backend, bits: Any, values: Any, owners: tuple[int, int], mixed_rows: Any
) -> None:
    """Bring rows with the same owner into the order of all bits of their hashes."""
    xp, mixed = backend.xp, len(mixed_rows)
    firsts, lengths = (backend.empty(mixed, np.int64) for _ in range(2))
    backend.run(
        args.run_mixed(bits.dtype), args.RUN_MIXED, mixed,
        order=owners, keys=bits, mixed_rows=mixed_rows, firsts=firsts, lengths=lengths,
        rows=len(bits),
    )  # fmt: skip
    many = xp.flatnonzero(lengths > _MOST_MENDED)
    for first, length in _distinct(backend, firsts[many], lengths[many]):
        part = slice(first, first + length)
        _sort(backend, bits[part], values[part], owners[0])
    lengths[many] = 0
    places = xp.cumsum(lengths)
    room = int(places[-1])
    backend.run(
        args.run_mend(bits.dtype, values.dtype), args.RUN_MEND, mixed,
        order=owners, keys=bits, values=values,
        firsts=firsts, lengths=lengths, places=places - lengths,
        scratch_keys=backend.empty(room, bits.dtype),
        scratch_values=backend.empty(room, values.dtype),
    )  # fmt: skip


def _distinct(backend: Backend, firsts: Any, lengths: Any) -> list[tuple[int, int]]:
    pairs = zip(backend.to_host(firsts).tolist(), backend.to_host(lengths).tolist(), strict=True)
    return sorted(set(pairs))
