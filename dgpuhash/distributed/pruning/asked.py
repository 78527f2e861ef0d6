"""Asked: the rows of a question that others are asked about, also for those that are like them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.distributed.pruning.policy import Sparing
from dgpuhash.distributed.pruning.repeats import places
from dgpuhash.frames import EncodedKeys
from dgpuhash.frames.keys.encoding import same_keys
from dgpuhash.tables.bloom import BloomFilter
from dgpuhash.tables.columns.distinct import Groups
from dgpuhash.tables.columns.select import found_rows

__all__ = ["Asked"]


class Asked:
    """Rows without those whose keys are absent, and those whose keys other rows have, too.

    Parameters
    ----------
    encoded : EncodedKeys
        The keys of all rows.
    bloom : BloomFilter or None
        Which says what keys are absent.
    sparing : Sparing
        Whether keys that come again are left out.

    Attributes
    ----------
    rows : int64 array or None
        Those that are asked about, ascending; None: all.
    codes : array
        Of their keys.
    absent, repeated : int
        Rows that were left out, as the filter let them not pass, and as another one has their key.
    """

    def __init__(self, encoded: EncodedKeys, bloom: BloomFilter | None, sparing: Sparing) -> None:
        self._backend = backend.get(None, encoded.codes)
        self.rows: Any = None
        self.codes = encoded.codes
        self.absent = self.repeated = 0
        # Rows with a question, and which of `rows` each is like; None: all rows, and themselves.
        self._passed: Any = None
        self._group: Any = None
        deduplicate = sparing.deduplicates(self._backend, [self.codes])
        if deduplicate or bloom is not None:
            self._leave_out(encoded, bloom)
        if deduplicate:
            self._deduplicate(encoded)

    def _leave_out(self, encoded: EncodedKeys, bloom: BloomFilter | None) -> None:
        passed = None if bloom is None else bloom.test(encoded.codes)
        if encoded.valid is not None:
            # The codes of others mean nothing, and may be those of other keys.
            valid = encoded.valid.view(np.uint8)
            passed = valid if passed is None else passed & valid
        if passed is not None:
            self.rows, self.codes = found_rows(self._backend, passed, encoded.codes)
            self.absent = len(encoded) - len(self.rows)

    def _deduplicate(self, encoded: EncodedKeys) -> None:
        groups = Groups(self._backend, self.codes)
        passed, firsts = self.rows, groups.first_rows
        if passed is not None:
            firsts = passed[firsts]
        if encoded.doubts is not False:
            like = firsts[groups.codes]
            if not bool(same_keys(encoded.columns, passed, encoded.columns, like).all()):
                return
        self.repeated = len(self.codes) - len(firsts)
        self._passed, self._group = passed, groups.codes
        self.rows, self.codes = firsts, self.codes[groups.first_rows]

    def for_all(self, query_rows: Any, count: int) -> tuple[Any, Any]:
        """The matches of all rows, of which there are `count`, given those of `rows`.

        For each its row, and which of the given matches it is, which stand together for a row; None
        where they are these.
        """
        if self._group is None:
            return query_rows, None
        xp = self._backend.xp
        groups = len(self.rows)
        number = xp.empty(count, dtype=np.int64)
        number[self.rows] = xp.arange(groups)
        counts = xp.bincount(number[query_rows], minlength=groups)
        starts = xp.cumsum(counts) - counts
        rows, matches = places(self._backend, counts[self._group], starts[self._group])
        return rows if self._passed is None else self._passed[rows], matches
