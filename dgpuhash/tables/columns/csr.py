"""Rows of a grouped batch in CSR form, by count, prefix sum and scatter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.columns.aggregates import group_counts

__all__ = ["RowsByGroup"]

# Bits of a radix digit: a batch is split fast into this many parts (2^10).
_DIGIT_BITS = 10
# Up to this size, sorting takes less than the launches of a radix sort.
_FEW_ROWS = {"cpu": 2**12, "cuda": 0}


class RowsByGroup:
    """Row numbers sorted by group, in row order within each group; some may have none.

    Parameters
    ----------
    backend : Backend
        Where the codes are.
    codes : array of int64
        The group of each row.
    groups : int
        Number of groups.

    Attributes
    ----------
    rows : array of int64
        Row numbers, group by group.
    starts : array of int64
        Offset in `rows` at which each group begins.
    counts : array of int64
        Number of rows of each group.
    """

    def __init__(self, backend: Backend, codes: Any, groups: int) -> None:
        xp = backend.xp
        if len(codes) <= _FEW_ROWS[backend.name]:
            self.counts: Any = xp.bincount(codes, minlength=groups)
            self.rows: Any = backend.stable_order(codes)
        else:
            self.counts = group_counts(backend, codes, groups)
            self.rows = _rows_by_code(backend, codes, groups)
        self.starts: Any = xp.cumsum(self.counts) - self.counts


def _rows_by_code(backend: Backend, codes: Any, groups: int) -> Any:
    """Return the stable order of codes below `groups`, by radix sort."""
    bits = max(1, (groups - 1).bit_length())
    width = math.ceil(bits / math.ceil(bits / _DIGIT_BITS))
    order = None
    for shift in range(0, bits, width):
        placed = codes if order is None else codes[order]
        digits = ((placed >> shift) & (2**width - 1)).astype(np.uint32)
        split, _ = backend.multisplit(digits, 2**width)
        order = split if order is None else order[split]
    return order
