"""Dense numbers for keys: the compacting hash table of Alcantara's thesis (2011), §6.3."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, args
from dgpuhash.tables.slots import Slots

__all__ = ["Groups"]

_MAX_LOAD = 0.8
# Rows that tell how many distinct keys to expect; with fewer, there is room for as many as rows.
_SAMPLE_ROWS = {"cpu": 2**16, "cuda": 2**20}
# A table for fewer keys than rows counts each new key at one address, and may turn out too small:
# it has to be this many times smaller to be worth it.
_SMALLER = {"cpu": 4, "cuda": 64}
_LEADING_ROWS = 2**16


class Groups:
    """The distinct keys of a batch, numbered from 0 in order of first appearance.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    bits : array of uint32 or uint64
        Canonical key words.

    Attributes
    ----------
    codes : array of int64
        The number of each row's key.
    first_rows : array of int64
        The first row of each key, which rises with the number.
    """

    def __init__(self, backend: Backend, bits: Any) -> None:
        self._backend, self._bits = backend, bits
        self.codes = backend.empty(len(bits), np.int64)
        self._slots = self._place()
        self.first_rows = self._number()

    def __len__(self) -> int:
        return len(self.first_rows)

    def bits(self) -> Any:
        """The distinct key words by number."""
        return self._bits[self.first_rows]

    def find(self, bits: Any) -> tuple[Any, Any]:
        """The numbers (int64) of other keys, -1 where a key is not in the batch; and a mask."""
        numbers, found = self._slots.find(bits, 2**64 - 1)
        return numbers.view(np.int64), found.view(bool)

    def _place(self) -> Slots:
        """Place all keys, and leave in `codes` where they stand."""
        rows, device = len(self._bits), self._backend.name
        expected = self._expected()
        refused = self._backend.zeros(1, np.uint64)
        if _SMALLER[device] * expected <= rows:
            # Few keys that come often hide many that the sample did not see.
            slots = self._allocate(max(2 * expected, min(_SAMPLE_ROWS[device], rows)))
            limit = int(slots.slots * _MAX_LOAD)
            self._launch_place(slots, refused, limit, repeats=True)
            if int(refused[0]) == 0:
                return slots
        slots = self._allocate(rows)
        self._launch_place(slots, refused, repeats=2 * expected <= rows)
        return slots

    def _allocate(self, keys: int) -> Slots:
        made = Slots(
            self._backend,
            self._bits.dtype,
            np.dtype(np.uint64),
            slots=math.ceil(max(keys, 1) / _MAX_LOAD) + 1,
            seed=0,
            tile=None,
        )
        made.clear()
        return made

    def _expected(self) -> int:
        """About how many distinct keys there are, judged by rows at equal distances."""
        rows, most = len(self._bits), _SAMPLE_ROWS[self._backend.name]
        if rows <= most:
            return rows
        sample = self._backend.asarray(self._bits[:: rows // most])
        seen = Slots(self._backend, sample.dtype, None, slots=2 * len(sample), seed=0, tile=None)
        seen.clear()
        seen.insert(sample, None)
        return min(rows, _population(seen.state().occupied, len(sample)))

    def _launch_place(
        self, slots: Slots, refused: Any, limit: int = args.UNLIMITED, *, repeats: bool
    ) -> None:
        rows = len(self._bits)
        # Where an old view of the table is asked first, a launch of its own makes it for the rest.
        edges = sorted({0, min(rows, _LEADING_ROWS) if repeats else 0, rows})
        for first, last in itertools.pairwise(edges):
            made = np.zeros((), args.GROUP_PLACE)
            made["table"] = slots.storage
            made["keys"] = self._backend.pointer(self._bits)
            made["slots"] = self._backend.pointer(self.codes)
            made["refused"] = self._backend.pointer(refused)
            made["n"], made["first_row"] = last - first, first
            made["limit"], made["repeats"] = limit, repeats
            self._backend.launch(args.group_place(self._bits.dtype), made, last - first)

    def _number(self) -> Any:
        backend, xp = self._backend, self._backend.xp
        if self._slots.state().occupied == len(self._bits):
            # Each key is its own first row, and the table says so already.
            rows = xp.arange(len(self._bits), dtype=np.int64)
            self.codes[...] = rows
            return rows
        first = backend.zeros(len(self._bits), bool)
        first[self._slots.items()[1].view(np.int64)] = True
        first_rows = xp.flatnonzero(first).astype(np.int64, copy=False)
        made = np.zeros((), args.GROUP_NUMBER)
        made["table"] = self._slots.storage
        made["slots"] = backend.pointer(self.codes)
        made["first_rows"] = backend.pointer(first_rows)
        made["n"] = len(first_rows)
        backend.launch(args.group_number(self._bits.dtype), made, len(first_rows))
        made = np.zeros((), args.GROUP_CODES)
        made["table"] = self._slots.storage
        made["slots"] = backend.pointer(self.codes)
        made["n"] = len(self._bits)
        backend.launch(args.group_codes(self._bits.dtype), made, len(self._bits))
        return first_rows


def _population(distinct: int, drawn: int) -> int:
    """How many equally frequent keys show `distinct` different ones in `drawn` draws.

    Examples
    --------
    >>> _population(100, 100_000), 900 < _population(632, 1000) < 1100
    (100, True)
    """
    if distinct >= drawn:
        return 2**62
    low, high = float(distinct), float(distinct)
    while high * -math.expm1(-drawn / high) < distinct and high < 2**62:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < distinct:
            low = middle
        else:
            high = middle
    return math.ceil(low)
