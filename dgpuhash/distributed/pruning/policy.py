"""Decide for each query whether pruning its keys pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.columns.distinct import estimate_distinct
from dgpuhash.tables.open_addressing.cardinality import KeySample
from dgpuhash.typing import Device

# Batches with fewer rows on a worker are not sampled.
_LEAST_ROWS = 2**16
# Rows for each distinct key, as a sample estimates them, from which deduplication pays; between
# GPUs it never pays.
_LEAST_REPEATS = {"cpu": 16}


def gather_lists(backend: Backend, counts: Any, starts: Any, values: Any) -> Any:
    """Return the values of lists that begin at `starts`, concatenated."""
    return values[list_positions(backend, counts, starts)[1]]


def list_positions(backend: Backend, counts: Any, starts: Any) -> tuple[Any, Any]:
    """Return the owning list and the position of each value of some lists.

    List i has ``counts[i]`` values from position ``starts[i]`` on.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> list_positions(backend.get("cpu"), np.array([2, 0, 1]), np.array([5, 9, 5]))
    (array([0, 0, 2]), array([5, 6, 5]))
    """
    xp = backend.xp
    filled = xp.flatnonzero(counts)
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts[filled])])
    total = int(offsets[-1])
    if total == len(filled):
        return filled, starts[filled]
    owners = list_numbers(backend, offsets, total)
    shifts = starts[filled] - offsets[:-1]
    return filled[owners], xp.arange(total) + shifts[owners]


def keys_may_repeat(backend: Backend, rows: int) -> bool:
    """Return whether batches of `rows` rows are worth sampling for duplicates."""
    return rows >= _LEAST_ROWS and backend.name in _LEAST_REPEATS


def keys_repeat(backend: Backend, chunks: Sequence[Any]) -> bool:
    """Return whether a sample has enough duplicates for deduplication to pay.

    The keys are given as words.
    """
    rows = sum(map(len, chunks))
    if not keys_may_repeat(backend, rows):
        return False
    # An odd step, since keys often repeat after a power of two.
    step = rows // _LEAST_ROWS | 1
    sample = KeySample.of(backend, backend.xp.concatenate([chunk[::step] for chunk in chunks]))
    keys = estimate_distinct(sample.rows - sample.repeated, sample.rows)
    return keys * _LEAST_REPEATS[backend.name] <= rows


Switch = Literal["auto"] | bool

# Rows of a query (for tasks: of a worker's recent queries), and the share of absent keys among
# them, from which an existing filter pays. Between the GPUs of a host keys travel nearly as fast as
# they are looked up in a filter.
_LEAST = {"cpu": (2**18, 0.25), "cuda": (2**28, 0.75)}


@dataclass(frozen=True, slots=True)
class PruningOptions:
    """Options of pruning: filter absent keys, and send duplicate keys once.

    Attributes
    ----------
    bloom_filter : {True, False, "auto"}
        Whether to drop keys that a Bloom filter of all stored keys, replicated on each worker,
        reports as absent. ``"auto"``: when that pays, judging by earlier queries.
    deduplicate : {True, False, "auto"}
        Whether a worker sends each of its keys once. ``"auto"``: when that pays, judging by a
        sample.
    absent_rows : int
        Rows of earlier queries whose keys were not stored.
    """

    bloom_filter: Switch = False
    deduplicate: Switch = False
    absent_rows: int = 0

    @classmethod
    def of(cls, bloom_filter: Switch, deduplicate: Switch) -> Self:
        """Return the options that a user gave.

        Raises
        ------
        SpecError
            When an option is not True, False or ``"auto"``.
        """
        given = {"bloom_filter": bloom_filter, "deduplicate": deduplicate}
        for name, switch in given.items():
            if not (isinstance(switch, bool) or (isinstance(switch, str) and switch == "auto")):
                raise SpecError(f"{name}={switch!r}; use True, False or 'auto'")
        return cls(bloom_filter, deduplicate)

    def may_deduplicate(self, backend: Backend, rows: int) -> bool:
        """Return whether `deduplicates` can be true for a batch of `rows` rows."""
        if self.deduplicate == "auto":
            return keys_may_repeat(backend, rows)
        return self.deduplicate

    def deduplicates(self, backend: Backend, chunks: Sequence[Any]) -> bool:
        """Return whether to send each of these keys (words) only once."""
        if self.deduplicate == "auto":
            return keys_repeat(backend, chunks)
        return self.deduplicate


NO_PRUNING = PruningOptions()


class AbsentKeyStats:
    """Statistics of absent keys in the queries since a table's last change.

    Examples
    --------
    >>> seen, wanted = AbsentKeyStats(), PruningOptions("auto", False)
    >>> seen.with_stats(wanted, "cpu", rows=2**20).bloom_filter
    False
    >>> seen.note(rows=2**20, absent_rows=2**19)
    >>> seen.with_stats(wanted, "cpu", rows=2**20)
    PruningOptions(bloom_filter='auto', deduplicate=False, absent_rows=524288)
    """

    def __init__(self) -> None:
        self._absent_rows = self._last_rows = 0
        self._share = 0.0

    def note(self, *, rows: int, absent_rows: int) -> None:
        """Record the outcome of a query."""
        self._last_rows = rows
        if rows:
            self._absent_rows += absent_rows
            self._share = absent_rows / rows

    def forget(self) -> None:
        """Reset the count of absent rows after keys were added."""
        self._absent_rows = 0

    def with_stats(
        self, sparing: PruningOptions, device: Device | None, *, rows: int | None = None
    ) -> PruningOptions:
        """Return `sparing` with these statistics, for the workers of one query.

        Without `rows`, the query is taken to be as large as the last one.
        """
        rows = self._last_rows if rows is None else rows
        if sparing.bloom_filter != "auto":
            return sparing
        least_rows, least_share = _LEAST[device or "cpu"]
        if rows < least_rows or self._share < least_share or not self._absent_rows:
            return replace(sparing, bloom_filter=False)
        return replace(sparing, absent_rows=self._absent_rows)


class RecentAbsentKeyStats:
    """Statistics of absent keys in recent queries of one worker's tasks.

    As `AbsentKeyStats`, with a moving average of the share of absent keys.

    Attributes
    ----------
    absent_rows : int
        Rows whose keys were not stored.

    Examples
    --------
    >>> seen = RecentAbsentKeyStats()
    >>> for _ in range(4):
    ...     seen.note("cpu", rows=2**16, absent_rows=2**15)
    >>> seen.pays("cpu"), seen.absent_rows
    (True, 131072)
    """

    def __init__(self) -> None:
        self.absent_rows: int = 0
        self._share = 0.0

    def note(self, device: Device, rows: int, absent_rows: int) -> None:
        """Record the outcome of a query; small queries change the average little."""
        if rows:
            weight = min(1.0, rows / _LEAST[device][0])
            self.absent_rows += absent_rows
            self._share += weight * (absent_rows / rows - self._share)

    def pays(self, device: Device) -> bool:
        """Return whether the share of absent keys is large enough for a filter."""
        return self._share >= _LEAST[device][1]
