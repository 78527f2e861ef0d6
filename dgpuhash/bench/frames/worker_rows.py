"""Rows that are grouped on workers, and what the groups of some keys must be."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.workers.cluster import Workers
from dgpuhash.frames import frames_named
from dgpuhash.typing import Device

#: What is asked of the groups: a sum and a count, the number of different values, the median.
VERBS = ("sum + count", "nunique", "median")
# Values are below that, so that every sum is exact.
_VALUES = 2**20
# Keys whose answers are compared, and rows that they may have together.
_MOST_KEYS, _MOST_ROWS = 1000, 2**21
_SEED = 57


def made_rows(device: Device, rank: int, n: int, groups: int) -> Any:
    """Return the rows of a worker: keys below `groups`, and values."""
    xp: Any = backend.get(device).xp
    random = xp.random.default_rng(_SEED + rank)
    keys = random.integers(0, groups, n, dtype=np.int64)
    values = random.integers(0, _VALUES, n, dtype=np.int64)
    return frames_named("cudf" if device == "cuda" else "pandas").make({"k": keys, "v": values})


def _among(keys: Any, sample: Any) -> Any:
    """Return a mask of the keys that are in a sample, which is in order."""
    xp: Any = backend.get(None, keys).xp
    known = xp.asarray(sample)
    places = xp.minimum(xp.searchsorted(known, keys), len(known) - 1)
    return known[places] == keys


def _arrays(frame: Any) -> list[Any]:
    frames = frames_named("cudf" if type(frame).__module__.startswith("cudf") else "pandas")
    return [frames.array(frame[label]) for label in frame.columns]


def rows_of_keys(frame: Any, groups: int, sample: Any) -> tuple[Any, Any, Any]:
    """Return bits of the keys that a worker has; keys and values of the rows of some keys."""
    keys, values = _arrays(frame)
    device = backend.get(None, keys)
    there = device.xp.zeros(groups, bool)
    there[keys] = True
    rows = device.xp.flatnonzero(_among(keys, sample))
    bits = device.to_host(device.xp.packbits(there))
    return bits, device.to_host(keys[rows]), device.to_host(values[rows])


def answers_of(part: Any, sample: Any) -> tuple[int, pd.DataFrame]:
    """Return the rows of an answer's partition, and those of some keys."""
    frame = part.reset_index()
    keys = _arrays(frame.iloc[:, :1])[0]
    chosen = frame.take(backend.get(None, keys).xp.flatnonzero(_among(keys, sample)))
    return len(frame), chosen.to_pandas() if hasattr(chosen, "to_pandas") else chosen


@dataclass(frozen=True)
class GroupedRows:
    """The rows of all workers, of which a sample of keys is compared.

    Attributes
    ----------
    n : int
        Rows of a worker.
    groups : int
        Keys are below that.
    workers : int
    """

    n: int
    groups: int
    workers: int

    @functools.cached_property
    def sample(self) -> Any:
        """Keys whose answers are compared, in order."""
        of_a_key = max(1, self.n * self.workers // self.groups)
        size = max(1, min(_MOST_KEYS, self.groups, _MOST_ROWS // of_a_key))
        found = np.random.default_rng(_SEED).integers(0, self.groups, size)
        return np.unique(found)

    def expected(self, crew: Workers, frames: Sequence[Any]) -> Expected:
        """Return what an answer must be, which no library is asked for: NumPy sorts the rows."""
        futures = [
            crew.client.submit(rows_of_keys, each, self.groups, self.sample, pure=False)
            for each in frames
        ]
        bits, keys, values = zip(*crew.client.gather(futures), strict=True)
        there = np.bitwise_or.reduce(np.stack(bits), axis=0)
        rows, theirs = np.concatenate(keys), np.concatenate(values)
        order = np.lexsort([theirs, rows])
        return Expected(int(np.bitwise_count(there).sum()), rows[order], theirs[order])


@dataclass(frozen=True)
class Expected:
    """What an answer must be: how many groups there are, and the rows of some, in order."""

    groups: int
    keys: Any
    values: Any

    def check(self, verb: str, parts: Sequence[tuple[int, pd.DataFrame]], **what: Any) -> None:
        """Raise DgpuhashError unless an answer is right; `parts` are of `answers_of`."""
        found = pd.concat([chosen for _, chosen in parts], ignore_index=True)
        rows = sum(count for count, _ in parts)
        require(rows == self.groups, f"{rows:,} groups, not {self.groups:,},", verb=verb, **what)
        made = found.to_numpy(dtype=np.float64)
        made = made[np.argsort(made[:, 0], kind="stable")]
        wanted = self.answer(verb)
        same = made.shape == wanted.shape and bool((made == wanted).all())
        require(same, "the answer is another one,", verb=verb, **what)

    def answer(self, verb: str) -> Any:
        """Return keys and aggregates as a matrix."""
        starts = np.flatnonzero(np.diff(self.keys, prepend=-1))
        sizes = np.diff(starts, append=len(self.keys))
        columns = [self.keys[starts]]
        if verb == "sum + count":
            columns += [np.add.reduceat(self.values, starts), sizes]
        elif verb == "nunique":
            fresh = np.diff(self.values, prepend=-1) != 0
            fresh[starts] = True
            columns.append(np.add.reduceat(fresh.astype(np.int64), starts))
        else:
            low, high = (starts + (sizes - odd) // 2 for odd in (1, 0))
            columns.append((self.values[low] + self.values[high]) / 2)
        return np.stack(columns, axis=1).astype(np.float64)
