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
    """Rows of a batch in equal steps.

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
        >>> import numpy as np
        >>> Sample.of(backend.get("cpu"), np.arange(3, dtype=np.uint32))
        Sample(rows=3, repeated=0, heavy=False)
        """
        # Odd steps, since keys often repeat after a power of two.
        step = (len(bits) // _ROWS - 1) | 1 if len(bits) > _ROWS else 1
        chosen = backend.fetch(backend.xp.sort(bits[::step][:_ROWS]))()
        repeated = int(np.count_nonzero(chosen[1:] == chosen[:-1]))
        heavy = bool((chosen[_OFTEN:] == chosen[:-_OFTEN]).any())
        return cls(len(chosen), repeated, heavy)

    @property
    def unique(self) -> bool:
        """Whether no key came twice."""
        return self.repeated == 0

    @property
    def keys(self) -> float:
        """An estimate of the batch's keys, were they all as frequent."""
        return self.rows**2 / (2 * self.repeated) if self.repeated else float("inf")
