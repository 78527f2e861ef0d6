"""Generate random keys on the device, with chosen frequencies in a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.errors import SpecError

_SHIFTS = {4: (16, 13, 16), 8: (33, 33, 33)}
_FACTORS = {4: (0x85EBCA6B, 0xC2B2AE35), 8: (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)}
_WORDS = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def keys_of(numbers: Any, dtype: np.dtype[Any]) -> Any:
    """Return a pseudo-random key for each number, by a bijective mix.

    Different numbers have different keys.

    Parameters
    ----------
    numbers : array of integers
        Numbers to mix, below 2**32 for 32-bit keys.
    dtype : dtype
        An integer dtype of 32 or 64 bits.

    Examples
    --------
    >>> keys_of(np.arange(3), np.dtype("i8")).dtype
    dtype('int64')
    """
    keys = numbers.astype(_WORDS[dtype.itemsize])
    kind = keys.dtype.type
    for shift, factor in zip(
        _SHIFTS[dtype.itemsize], (*_FACTORS[dtype.itemsize], None), strict=True
    ):
        keys ^= keys >> kind(shift)
        if factor is not None:
            keys *= kind(factor)
    return keys.view(dtype)


def unique_keys(backend: Backend, first: int, n: int, dtype: np.dtype[Any]) -> Any:
    """Return the `n` distinct keys of ``first`` to ``first + n - 1``.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> made = unique_keys(backend.get("cpu"), 0, 1000, np.dtype("u4"))
    >>> len(set(made.tolist()))
    1000
    """
    return keys_of(backend.xp.arange(first, first + n, dtype=_WORDS[dtype.itemsize]), dtype)


def values_of(keys: Any, dtype: np.dtype[Any]) -> Any:
    """Derive the value of each key.

    An answer can then be checked without the input.
    """
    return (keys ^ (keys >> keys.dtype.type(7))).astype(dtype)


def uniform_floats(backend: Backend, n: int, stream: int) -> Any:
    """Return `n` random float64 in [0, 1), different for each `stream`.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> round(float(uniform_floats(backend.get("cpu"), 10_000, 1).mean()), 1)
    0.5
    """
    words = unique_keys(backend, (stream + 1) << 48, n, np.dtype(np.uint64))
    words >>= np.uint64(11)
    made = words.astype(np.float64)
    made *= 2.0**-53
    return made


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of keys over the rows of a batch.

    Attributes
    ----------
    name : {"unique", "uniform", "zipf"}
        ``unique``: every row has its own key. ``uniform``: each row has one of ``n / parameter``
        keys. ``zipf``: each row has one of n keys, that of rank r with probability proportional to
        ``r ** -parameter``.
    parameter : float
        Mean rows of a key, or the exponent.

    Examples
    --------
    >>> Distribution.of("uniform:8")
    Distribution(name='uniform', parameter=8.0)
    >>> str(Distribution.of("zipf:1.5"))
    'zipf:1.5'
    """

    name: str
    parameter: float = 1.0

    @classmethod
    def of(cls, text: str) -> Distribution:
        """Parse ``unique``, ``uniform:MULTIPLICITY`` or ``zipf:EXPONENT``.

        Raises
        ------
        SpecError
            When `text` is none of these.
        """
        name, _, number = text.partition(":")
        try:
            parameter = float(number) if number else 1.0
        except ValueError:
            parameter = 0.0
        least = {"unique": 1.0, "uniform": 1.0, "zipf": 0.01}
        if (
            name not in least
            or (name != "unique") != bool(number)
            or not (least[name] <= parameter < math.inf)
        ):
            raise SpecError(
                f"distribution {text!r}; use 'unique', 'uniform:8' (mean rows of a key, at least "
                "1) or 'zipf:1.5' (the exponent, above 0)"
            )
        return cls(name, parameter)

    def __str__(self) -> str:
        return self.name if self.name == "unique" else f"{self.name}:{self.parameter:g}"

    def sample(self, backend: Backend, n: int) -> KeyDraw:
        """Draw the key numbers of `n` rows."""
        if self.name == "unique":
            return KeyDraw(backend, backend.xp.arange(1, n + 1, dtype=np.int64), n, every=True)
        if self.name == "uniform":
            return draw(backend, n, max(1, round(n / self.parameter)))
        reached = backend.xp.arange(1, n + 1, dtype=np.float64)
        reached **= -self.parameter
        reached = backend.xp.cumsum(reached)
        points = uniform_floats(backend, n, 0)
        points *= reached[-1]
        ranks = backend.xp.searchsorted(reached, points, side="right")
        del reached, points
        return KeyDraw(backend, backend.xp.minimum(ranks, n - 1) + 1, n)


class KeyDraw:
    """Key numbers of a batch, from which answers follow without a hash table.

    Attributes
    ----------
    numbers : array of int64
        The number of each row's key, from 1 to `most`.
    most : int
        The upper bound of the numbers.
    """

    def __init__(self, backend: Backend, numbers: Any, most: int, *, every: bool = False) -> None:
        self.numbers: Any = numbers
        self.most: int = most
        self._backend, self._every = backend, every

    def __len__(self) -> int:
        return len(self.numbers)

    def counts(self) -> Any:
        """Count the rows of each number from 0 to `most`, as int64; number 0 has none."""
        if self._every:
            made = self._backend.full(self.most + 1, 1, np.int64)
            made[0] = 0
            return made
        return self._backend.xp.bincount(self.numbers, minlength=self.most + 1)

    def present(self) -> Any:
        """Return the distinct numbers of the batch, ascending."""
        if self._every:
            return self.numbers
        return self._backend.xp.flatnonzero(self.counts())

    def check_lists(self, present: Any, read: Any, offsets: Any, what: dict[str, Any]) -> None:
        """Raise unless `read` has the row numbers of each key in `present`, concatenated.

        Raises
        ------
        DgpuhashError
        """
        xp = self._backend.xp
        counts = self.counts()[present]
        require(
            (offsets[1:] - offsets[:-1] == counts).all(), "a list was too short or long", **what
        )
        seen = self._backend.zeros(len(self), bool)
        seen[read] = True
        require(len(read) == len(self) and seen.all(), "a value was lost", **what)
        # Keys are looked up by ascending number, and each list has the right length.
        owners = self.numbers[read]
        require((owners[1:] >= owners[:-1]).all(), "a value was in another key's list", **what)
        require(xp.array_equal(owners[offsets[:-1]], present), "a list was another key's", **what)

    def distinct(self) -> int:
        """Count the distinct numbers of the batch."""
        return len(self) if self._every else len(self.present())


def draw(backend: Backend, n: int, most: int, stream: int = 0) -> KeyDraw:
    """Draw `n` rows, each with one of `most` equally likely keys.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> sample = draw(backend.get("cpu"), 1000, 10)
    >>> sample.distinct(), int(sample.counts().sum())
    (10, 1000)
    """
    points = uniform_floats(backend, n, stream)
    points *= most
    numbers = points.astype(np.int64)
    numbers += 1
    return KeyDraw(backend, numbers, most)
