"""What a few rows tell of how often the keys of a batch come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["Sample"]

_ROWS = 2**16
# Keys that come so often among the rows are heavy.
_OFTEN = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a batch, one at a random place in each of equal parts.

    So few are taken that keys which come eight times each in a large batch hardly ever meet.
    """

    rows: int
    repeated: int
    """Rows whose key another row before had."""
    heavy: bool
    """Whether a key came often."""

    @classmethod
    def of(cls, backend: Backend, bits: Any) -> Self:
        """A sample of key words.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> Sample.of(backend.get("cpu"), np.arange(3, dtype=np.uint32))
        Sample(rows=3, repeated=0, heavy=False)
        """
        xp, rows = backend.xp, min(len(bits), _ROWS)
        part = len(bits) // max(rows, 1)
        numbers = xp.arange(rows, dtype=np.int64)
        chosen = xp.sort(bits[numbers * part + (numbers * 0x9E3779B1 >> 8) % max(part, 1)])
        repeated = (chosen[1:] == chosen[:-1]).sum()
        heavy = (chosen[_OFTEN:] == chosen[:-_OFTEN]).any()
        told = backend.to_host(xp.stack([repeated, heavy.astype(repeated.dtype)]))
        return cls(rows, int(told[0]), bool(told[1]))

    @property
    def unique(self) -> bool:
        """Whether no key came twice."""
        return self.repeated == 0

    @property
    def keys(self) -> float:
        """An estimate of the batch's keys, were they all as frequent."""
        return self.rows**2 / (2 * self.repeated) if self.repeated else float("inf")
