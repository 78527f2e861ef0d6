"""Which rows of a batch count, where a key comes more than once."""

from __future__ import annotations

from typing import Any

from dgpuhash.backend import Backend
from dgpuhash.tables.columns.distinct import Placed

__all__ = ["winners"]


def winners(backend: Backend, bits: Any, *, last: bool) -> Any | None:
    """The first, or the last, row (int64) of each key; None when no key comes twice.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> import numpy as np
    >>> winners(backend.get("cpu"), np.array([5, 7, 5], np.uint32), last=True).tolist()
    [1, 2]
    """
    placed = Placed(backend, backend.asarray(bits[::-1]) if last else bits)
    if len(placed) == len(bits):
        return None
    rows = placed.first_rows()
    return len(bits) - 1 - rows[::-1] if last else rows
