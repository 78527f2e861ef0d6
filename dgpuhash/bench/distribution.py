"""Distributions of key frequencies in a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.keys import uniform_floats
from dgpuhash.errors import SpecError


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

    def sample(self, backend: Backend, n: int) -> Sample:
        """Draw the key numbers of `n` rows."""
        if self.name == "unique":
            return Sample(backend, backend.xp.arange(1, n + 1, dtype=np.int64), n, every=True)
        if self.name == "uniform":
            return draw(backend, n, max(1, round(n / self.parameter)))
        reached = backend.xp.arange(1, n + 1, dtype=np.float64)
        reached **= -self.parameter
        reached = backend.xp.cumsum(reached)
        points = uniform_floats(backend, n, 0)
        points *= reached[-1]
        ranks = backend.xp.searchsorted(reached, points, side="right")
        del reached, points
        return Sample(backend, backend.xp.minimum(ranks, n - 1) + 1, n)


class Sample:
    """Key numbers of a batch; they give every answer without a hash table.

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
        """Count the rows of each number from 0 to `most`, int64; 0 has none."""
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

    def distinct(self) -> int:
        """Count the distinct numbers of the batch."""
        return len(self) if self._every else len(self.present())


def draw(backend: Backend, n: int, most: int, stream: int = 0) -> Sample:
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
    return Sample(backend, numbers, most)
