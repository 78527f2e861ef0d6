"""The rows of each group together: count, sum, scatter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.columns.aggregates import group_counts
from dgpuhash.tables.columns.distinct import Groups

__all__ = ["Runs"]

# Parts into which a batch is split fast.
_DIGIT_BITS = 10


class Runs:
    """The rows of a grouped batch by group, those of one group in row order.

    Attributes
    ----------
    rows : array of int64
        Row numbers, group by group.
    starts : array of int64
        Where in `rows` each group begins.
    counts : array of int64
        Rows of each group.
    """

    def __init__(self, backend: Backend, groups: Groups) -> None:
        xp, number = backend.xp, len(groups)
        if number == len(groups.codes):
            self.rows = self.starts = xp.arange(number, dtype=np.int64)
            self.counts = backend.full(number, 1, np.int64)
            return
        self.counts = group_counts(backend, groups.codes, number)
        self.starts = xp.cumsum(self.counts) - self.counts
        self.rows = _rows_by_code(backend, groups.codes, number)


def _rows_by_code(backend: Backend, codes: Any, groups: int) -> Any:
    """The stable order that sorts codes below `groups`, from the lowest digit to the highest."""
    bits = max(1, (groups - 1).bit_length())
    width = math.ceil(bits / math.ceil(bits / _DIGIT_BITS))
    order = None
    for shift in range(0, bits, width):
        placed = codes if order is None else codes[order]
        digits = ((placed >> shift) & (2**width - 1)).astype(np.uint32)
        split, _ = backend.multisplit(digits, 2**width)
        order = split if order is None else order[split]
    return order
