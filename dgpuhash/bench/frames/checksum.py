"""Checksums of answers, the same for every library and order of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Values are multiples of 1 / SCALE up to 100: sums of up to 10**9 of them are exact floats.
SCALE = 2**16


@dataclass(frozen=True, slots=True)
class Checksum:
    """Checksum of the rows of an answer; checksums of its parts add up.

    Attributes
    ----------
    rows : int
    v1, v2 : float
        The sums of the values, without nulls.
    pairs : int
        The sum of the products of the two values of each row, times `SCALE` squared and modulo
        2**64: other partners give another one.

    Examples
    --------
    >>> Checksum.of(np.array([1.0, 2.0]), np.array([0.5, np.nan]))
    Checksum(rows=2, v1=3.0, v2=0.5, pairs=2147483648)
    """

    rows: int
    v1: float
    v2: float
    pairs: int

    @classmethod
    def of(cls, v1: Any, v2: Any = None) -> Checksum:
        """Return the checksum of two columns of floats, with NaN for nulls.

        Semi-joins have no `v2`.
        """
        left = np.nan_to_num(v1)
        if v2 is None:
            return cls(len(left), float(left.sum()), 0.0, 0)
        right = np.nan_to_num(v2)
        pairs = int(((left * SCALE).astype(np.uint64) * (right * SCALE).astype(np.uint64)).sum())
        return cls(len(left), float(left.sum()), float(right.sum()), pairs)

    def __add__(self, other: Checksum) -> Checksum:
        pairs = (self.pairs + other.pairs) % 2**64
        return Checksum(self.rows + other.rows, self.v1 + other.v1, self.v2 + other.v2, pairs)


def checksum_of_frame(frame: Any) -> Checksum:
    """Return the checksum of a frame of pandas or polars, of a partition, or of an Arrow table."""
    names = frame.column_names if hasattr(frame, "column_names") else frame.columns
    v2 = frame["v2"].to_numpy() if "v2" in names else None
    return Checksum.of(frame["v1"].to_numpy(), v2)
