"""Batches that mix operations, no two of them about one key, so that each answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.bench.figure import require
from dgpuhash.bench.keys import keys_of
from dgpuhash.bench.papers.case import Case
from dgpuhash.tables import HashMap
from dgpuhash.tables.stores.mixed import Op

Part = tuple[Op, bool, float]
"""An operation, whether its keys are stored before, and its share of the batch."""


class Mix:
    """One shuffled batch over a table of the keys of 1 to `stored`.

    Parameters
    ----------
    case : Case
    stored : int
        Keys that the table has.
    parts : sequence of Part
        Shares of what the batch does; the first part takes what is left by rounding.
    n : int, optional
        Rows of the batch; as many as are stored by default.
    """

    def __init__(
        self, case: Case, stored: int, parts: Sequence[Part], n: int | None = None
    ) -> None:
        xp, n = case.backend.xp, n or stored
        counts = [int(n * share) for _, _, share in parts]
        counts[0] += n - sum(counts)
        firsts = {True: 1, False: stored + 1}
        numbers, ops, expected = [], [], []
        self._grown = 0
        for (op, there, _), count in zip(parts, counts, strict=True):
            numbers.append(xp.arange(firsts[there], firsts[there] + count))
            firsts[there] += count
            ops.append(xp.full(count, int(op), np.uint8))
            writes = op in (Op.INSERT, Op.UPSERT)
            expected.append(xp.full(count, there != writes, bool))
            self._grown += count * (int(writes and not there) - int(op is Op.ERASE and there))
        order = case.backend.from_host(np.random.default_rng(1).permutation(n))
        self.keys: Any = keys_of(xp.concatenate(numbers)[order], np.dtype("u4"))
        self.ops: Any = xp.concatenate(ops)[order]
        self.expected: Any = xp.concatenate(expected)[order]
        self.values: Any = case.values(self.keys)

    def check(self, table: HashMap, got: Any, flags: Any, before: int) -> None:
        """Raise unless every answer, and the size of a table that had `before` keys, is right."""
        require((flags == self.expected).all(), "an operation's answer was wrong")
        found = (self.ops == int(Op.FIND)) & flags
        require(((got == self.values) | ~found).all(), "a value was wrong")
        require(len(table) == before + self._grown, "the table's size was wrong")
