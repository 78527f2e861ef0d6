"""Array of values wider than eight bytes, referenced by row number from the table."""

from __future__ import annotations

import copy
import functools
import operator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.tables.arguments.encoding import carrier_dtype


class ValueRows:
    """Copy-on-append array of value rows of one dtype.

    `appended` returns another payload, mostly in the same memory; the rows of the first payload
    never change by it, whatever happens to the second one.
    """

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
        """Bytes of memory."""
        return int(self._rows.nbytes)

    def with_room(self, more: int) -> ValueRows:
        """Return a payload of the same rows, with memory for `more`."""
        rows, end = self._rows, self.used + more
        if end > len(rows):
            grown = max(end, len(rows) * 3 // 2)
            rows = self._backend.empty((grown, self._columns), self._word)
            rows[: self.used] = self._rows[: self.used]
        return self._with(rows, self.used)

    def appended(self, values: Any) -> tuple[ValueRows, Any]:
        """Return a payload extended by `values`, and their row numbers (uint64)."""
        first, end = self.used, self.used + len(values)
        rows = self.with_room(len(values))._rows
        # Behind the rows in use, where no other payload reads.
        rows[first:end] = self._as_rows(values)
        return self._with(rows, end), self._backend.xp.arange(first, end, dtype=np.uint64)

    def putting(self, numbers: Any, values: Any) -> Step:
        """Return the step that overwrites the rows `numbers` with `values`."""
        return functools.partial(operator.setitem, self._rows, numbers, self._as_rows(values))

    def take(self, numbers: Any, found: Any = None, default: np.ndarray | None = None) -> Any:
        """Return the values in the rows `numbers`, `default` for those not found."""
        rows = (
            self._rows[numbers]
            if self.used
            else self._backend.zeros((len(numbers), self._columns), self._word)
        )
        if default is not None:
            words = default.view(self._word)
            # A scalar avoids a copy to the device, which would wait for earlier work.
            fill = self._backend.from_host(words) if words.any() else words.dtype.type(0)
            rows = self._backend.xp.where(found[:, np.newaxis], rows, fill)
        carried = carrier_dtype(self._backend, self._dtype)
        if carried.itemsize == self._dtype.itemsize:
            return rows.view(carried).reshape(len(rows))
        return rows.view(carried)

    def kept(self, numbers: Any) -> ValueRows:
        """Return a payload of the rows `numbers`, in that order, in new memory."""
        return self._with(self._rows[numbers], len(numbers))

    def copy(self) -> ValueRows:
        """Return an independent payload with the same rows."""
        return self._with(self._rows[: self.used].copy(), self.used)

    def emptied(self) -> ValueRows:
        """Return an empty payload."""
        return ValueRows(self._backend, self._dtype)

    def _with(self, rows: Any, used: int) -> ValueRows:
        made = copy.copy(self)
        made._rows, made.used = rows, used
        return made

    def _as_rows(self, values: Any) -> Any:
        return values.view(self._word).reshape(len(values), self._columns)
