"""Values wider than eight bytes: rows of an array beside the table, which stores their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.bits import carrier

__all__ = ["Payload"]


class Payload:
    """Rows of one dtype that only ever grow, until `kept` leaves the unused ones behind."""

    def __init__(self, backend: Backend, dtype: np.dtype[Any]) -> None:
        self._backend = backend
        self._dtype = dtype
        size = next(size for size in (8, 4, 2, 1) if dtype.itemsize % size == 0)
        self._word = np.dtype(f"u{size}")
        self._columns = dtype.itemsize // size
        self._rows = backend.empty((0, self._columns), self._word)
        self.used = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._rows.nbytes)

    def reserve(self, more: int) -> None:
        """Make room for `more` further rows."""
        needed = self.used + more
        if needed > len(self._rows):
            grown = max(needed, len(self._rows) * 3 // 2)
            rows = self._backend.empty((grown, self._columns), self._word)
            rows[: self.used] = self._rows[: self.used]
            self._rows = rows

    def append(self, values: Any) -> None:
        """Add `values` behind the used rows, for which there is room."""
        self._rows[self.used : self.used + len(values)] = self._as_rows(values)
        self.used += len(values)

    def put(self, numbers: Any, values: Any) -> None:
        """Overwrite the rows `numbers` with `values`."""
        self._rows[numbers] = self._as_rows(values)

    def take(self, numbers: Any, found: Any = None, default: np.ndarray | None = None) -> Any:
        """The values in the rows `numbers`, and `default` where they were not `found`."""
        rows = (
            self._rows[numbers]
            if self.used
            else self._backend.zeros((len(numbers), self._columns), self._word)
        )
        if default is not None:
            words = default.view(self._word)
            # A number needs no copy to the device, which would wait for the work before it.
            fill = self._backend.from_host(words) if words.any() else words.dtype.type(0)
            rows = self._backend.xp.where(found[:, np.newaxis], rows, fill)
        carried = carrier(self._backend, self._dtype)
        if carried.itemsize == self._dtype.itemsize:
            return rows.view(carried).reshape(len(rows))
        return rows.view(carried)

    def kept(self, numbers: Any) -> Payload:
        """A payload of the rows `numbers` only, in that order."""
        made = Payload(self._backend, self._dtype)
        made._rows = self._rows[numbers]
        made.used = len(numbers)
        return made

    def copy(self) -> Payload:
        """An independent payload with the same rows."""
        made = Payload(self._backend, self._dtype)
        made._rows = self._rows[: self.used].copy()
        made.used = self.used
        return made

    def clear(self) -> None:
        """Forget every row."""
        self._rows = self._backend.empty((0, self._columns), self._word)
        self.used = 0

    def _as_rows(self, values: Any) -> Any:
        return values.view(self._word).reshape(len(values), self._columns)
