"""Rows of a grouped batch in CSR form, by a stable sort of their groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.batch.partition import sort_by_word
from dgpuhash.tables.columns.aggregates import group_counts
from dgpuhash.tables.select import row_numbers

# Up to this size one call sorts the rows by the fewest bytes that hold a group. On a CPU passes by
# digits take less time for more rows; a GPU waits longer for their launches.
_FEW_ROWS = {"cpu": 2**12, "cuda": 2**63}


class RowsByGroup:
    """Row numbers sorted by group, in row order within each group; some may have none.

    Parameters
    ----------
    backend : Backend
        Where the codes are.
    codes : array of int64
        The group of each row; -1 for none.
    groups : int
        Number of groups.
    partial : bool
        Whether some rows may have no group.

    Attributes
    ----------
    rows : array of int64
        Row numbers, group by group; rows without one follow, or are left out.
    starts, ends : array of int64
        Offsets in `rows` at which each group begins and ends.
    """

    def __init__(self, backend: Backend, codes: Any, groups: int, *, partial: bool = False) -> None:
        if len(codes) <= _FEW_ROWS[backend.name] or groups > 2**32:
            # -1 becomes the greatest number, which no group has.
            self.rows: Any = backend.stable_order(codes.astype(np.min_scalar_type(groups)))
            self.starts: Any = backend.zeros(groups, np.int64)
            self.ends: Any = backend.zeros(groups, np.int64)
            backend.run(
                kernel_named("join_bounds"), len(codes),
                codes=codes, order=self.rows, starts=self.starts, ends=self.ends,
            )  # fmt: skip
            return
        rows = backend.xp.flatnonzero(codes >= 0) if partial else row_numbers(backend, len(codes))
        codes = codes[rows] if partial else codes
        bits, counts = max(1, (groups - 1).bit_length()), group_counts(backend, codes, groups)
        words = codes.astype(np.uint32), rows.view(np.uint64)
        self.rows = sort_by_word(backend, *words, bits=bits)[1].view(np.int64)
        self.ends = backend.xp.cumsum(counts)
        self.starts = self.ends - counts
