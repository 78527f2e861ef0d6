"""Shared parts of the papers' figures: sizes, floors, timing and published rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import rate, require
from dgpuhash.bench.keys import keys_of, unique_keys, values_of
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.timing import median_time
from dgpuhash.tables import HashMap
from dgpuhash.tables.stores.mixed import Op

# On a CPU each figure has this share of a GPU's rows.
_CPU_SHARE = 2**7


@dataclass(frozen=True)
class FigureRun:
    """One run of a figure: device, repetitions, and share of its rows.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    repeats : int
        Runs whose median counts.
    divisor : int
        Divides the rows of each figure, so that a small machine can run it.
    """

    backend: Backend
    repeats: int
    divisor: int = 1

    def rows(self, most: int) -> int:
        """Return the rows of a figure with `most` rows on a GPU; at least 1,024."""
        share = self.divisor * (1 if self.backend.name == "cuda" else _CPU_SHARE)
        return max(2**10, most // share)

    @cached_property
    def floors(self) -> Floors:
        """Bare accesses of this run."""
        return Floors(self.backend, self.repeats)

    def keys(self, first: int, n: int, bits: int = 32) -> Any:
        """Return `n` distinct random keys, different for other numbers."""
        return unique_keys(self.backend, first, n, np.dtype(f"u{bits // 8}"))

    def values(self, keys: Any) -> Any:
        """Return the value of each key, of the same dtype."""
        return values_of(keys, keys.dtype)

    def time(self, work: Callable[[], Any], **settings: Any) -> tuple[float, Any]:
        """Return the median seconds of `work`, and its last result."""
        return median_time(self.backend, work, repeats=self.repeats, **settings)

    def row(
        self, figure: str, verb: str, n: int, seconds: float, floor: float | None, *,
        theirs: float | None = None, source: str = "", **what: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the row of one figure.

        Parameters
        ----------
        figure, verb : str
            Which figure, and what was timed.
        n : int
            Rows.
        seconds : float
            Their time.
        floor : float or None
            Rows a second of bare accesses.
        theirs : float, optional
            G/s that `source` reached.
        source : str
            Whose figure `theirs` is, and where it was measured.
        **what
            The settings.
        """
        beside: dict[str, Any] = {} if theirs is None else {"peer": theirs, "source": source}
        return rate(n / seconds, floor, figure=figure, verb=verb, n=n, **what, **beside)


Part = tuple[Op, bool, float]
"""An operation, whether its keys are stored before, and its share of the batch."""


class Mix:
    """One shuffled mixed batch on a table of the keys 1 to `stored`.

    Parameters
    ----------
    case : Case
    stored : int
        Keys that the table has.
    parts : sequence of Part
        Shares of what the batch does; the first part takes what is left by rounding.
    n : int, optional
        Rows of the batch; as many as are stored by default.
    """

    def __init__(
        self, case: FigureRun, stored: int, parts: Sequence[Part], n: int | None = None
    ) -> None:
        xp, n = case.backend.xp, n or stored
        counts = [int(n * share) for _, _, share in parts]
        counts[0] += n - sum(counts)
        firsts = {True: 1, False: stored + 1}
        numbers, ops, expected = [], [], []
        self._grown = 0
        for (op, there, _), count in zip(parts, counts, strict=True):
            numbers.append(xp.arange(firsts[there], firsts[there] + count))
            firsts[there] += count
            ops.append(xp.full(count, int(op), np.uint8))
            writes = op in (Op.INSERT, Op.UPSERT)
            expected.append(xp.full(count, there != writes, bool))
            self._grown += count * (int(writes and not there) - int(op is Op.ERASE and there))
        order = case.backend.from_host(np.random.default_rng(1).permutation(n))
        self.keys: Any = keys_of(xp.concatenate(numbers)[order], np.dtype("u4"))
        self.ops: Any = xp.concatenate(ops)[order]
        self.expected: Any = xp.concatenate(expected)[order]
        self.values: Any = case.values(self.keys)

    def check(self, table: HashMap, got: Any, flags: Any, before: int) -> None:
        """Raise unless every result, and the size of a table that had `before` keys, is right."""
        require((flags == self.expected).all(), "an operation's answer was wrong")
        found = (self.ops == int(Op.FIND)) & flags
        require(((got == self.values) | ~found).all(), "a value was wrong")
        require(len(table) == before + self._grown, "the table's size was wrong")


class SortedArray:
    """Sorted pairs; lookups are binary searches without an early exit.

    Parameters
    ----------
    backend : Backend
        Its array library sorts, on a GPU by radix sort, and searches.

    Examples
    --------
    >>> import numpy as np
    >>> from dgpuhash import backend
    >>> pairs = SortedArray(backend.get("cpu"))
    >>> pairs.insert(np.array([7, 3], "u4"), np.array([70, 30], "u4"))
    >>> values, found = pairs.find(np.array([3, 5], "u4"))
    >>> found.tolist(), int(values[0])
    ([True, False], 30)
    """

    def __init__(self, backend: Backend) -> None:
        self._xp = backend.xp
        self.clear()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and ends of lists."""
        held = (self._keys, self._values, self._ends)
        return sum(int(each.nbytes) for each in held if each is not None)

    def clear(self) -> None:
        """Drop all pairs."""
        self._keys, self._values, self._ends = self._xp.empty(0, "u4"), None, None

    def insert(self, keys: Any, values: Any) -> None:
        """Sort pairs of distinct keys, replacing the earlier ones."""
        order = self._xp.argsort(keys)
        self._keys, self._values = keys[order], values[order]

    def find(self, keys: Any) -> tuple[Any, Any]:
        """Return the value at each key's position, and whether it belongs to the key."""
        assert self._values is not None
        places, found = self._places(keys)
        return self._values[places], found

    @classmethod
    def of_distinct(cls, backend: Backend, keys: Any) -> SortedArray:
        """Return the array of the distinct keys, with their positions as ids."""
        made = cls(backend)
        made._keys = made._xp.unique(keys)
        return made

    def ids_of(self, keys: Any) -> tuple[Any, Any]:
        """Return the id of each key, and a mask of stored keys."""
        return self._places(keys)

    def keys_of(self, ids: Any) -> Any:
        """Return the key of each id."""
        return self._keys[ids]

    def group(self, keys: Any, values: Any) -> None:
        """Sort pairs with repeated keys, and record the end of each key's values."""
        xp = self._xp
        order = xp.argsort(keys)
        ordered, self._values = keys[order], values[order]
        self._keys, counts = xp.unique(ordered, return_counts=True)
        self._ends = xp.cumsum(counts)

    def count(self, keys: Any) -> Any:
        """Return each key's number of values."""
        assert self._ends is not None
        places, found = self._places(keys)
        starts = self._xp.where(places > 0, self._ends[places - 1], 0)
        return self._xp.where(found, self._ends[places] - starts, 0)

    def _places(self, keys: Any) -> tuple[Any, Any]:
        places = self._xp.searchsorted(self._keys, keys)
        places = self._xp.minimum(places, len(self._keys) - 1)
        return places, self._keys[places] == keys
