"""A batch of pairs grouped by key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, args

__all__ = ["KeyRuns", "key_runs"]

_SEGMENT = {"cpu": 2**14, "cuda": 2**12}


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Runs of values, one for each distinct key, in input order inside a run."""

    keys: Any
    """The distinct keys' words."""
    starts: Any
    """Where each run begins in `values`, and the last one's end (int64)."""
    values: Any


def key_runs(backend: Backend, bits: Any, values: Any) -> KeyRuns:
    """The pairs of key words and value words, neither of them changed, grouped by key."""
    order = backend.stable_order(bits)
    return _runs(backend, bits[order], values[order])


def _runs(backend: Backend, bits: Any, values: Any) -> KeyRuns:
    """The runs of a batch whose equal keys stand together."""
    rows, xp = len(bits), backend.xp
    segment = _SEGMENT[backend.name]
    segments = math.ceil(rows / segment)
    places = backend.zeros(segments + 1, np.uint64)
    backend.run(
        args.run_count(bits.dtype), args.RUN_COUNT, segments,
        keys=bits, counts=places[1:], rows=rows, segment_rows=segment,
    )  # fmt: skip
    xp.cumsum(places, out=places)
    runs = int(places[-1])
    if runs == rows:
        return KeyRuns(bits, xp.arange(rows + 1, dtype=np.int64), values)
    keys, starts = backend.empty(runs, bits.dtype), backend.empty(runs + 1, np.int64)
    starts[runs:] = rows
    backend.run(
        args.run_write(bits.dtype), args.RUN_WRITE, segments,
        keys=bits, places=places, starts=starts, run_keys=keys, rows=rows, segment_rows=segment,
    )  # fmt: skip
    return KeyRuns(keys, starts, values)
