"""Where what travels has its place in the landing memory of all ranks, as each works it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Landing

__all__ = ["ALIGNED", "Field", "Rows"]

# Rows of a round, and own rows among answers, begin at multiples of so many, as arrays do.
ALIGNED = 64


class Rows(NamedTuple):
    """Rooms of all ranks for rows that come in rounds, one room after the other."""

    firsts: np.ndarray
    """By round, sender and receiver, the place of the first row, int64."""
    begins: np.ndarray
    """By round and receiver, where the round's room begins."""
    ends: np.ndarray
    """By receiver, of all rounds."""

    @classmethod
    def of(cls, counts: np.ndarray, *, turned: bool) -> Rows:
        """Rooms for so many rows by round, sender and receiver.

        In each round rank 0's come first or, where `turned`, those of the rank after the receiver.

        Examples
        --------
        >>> counts = np.array([[[1, 2], [3, 4]]])
        >>> Rows.of(counts, turned=False).firsts.tolist()
        [[[0, 0], [1, 2]]]
        >>> Rows.of(counts, turned=True).firsts.tolist()
        [[[3, 0], [0, 2]]]
        """
        ranks = counts.shape[1]
        order = np.arange(ranks)[:, None]
        if turned:
            order = (order + np.arange(1, ranks + 1)) % ranks
        order = np.broadcast_to(order, (ranks, ranks))[None]
        ordered = np.take_along_axis(counts, order, axis=1)
        rows = ordered.sum(axis=1)
        room = -(-rows // ALIGNED) * ALIGNED
        begins = np.cumsum(room, axis=0) - room
        places = np.cumsum(ordered, axis=1) - ordered + begins[:, None]
        firsts = np.empty_like(places)
        np.put_along_axis(firsts, np.broadcast_to(order, counts.shape), places, axis=1)
        return cls(firsts, begins, room.sum(axis=0))


class Field:
    """Columns of all ranks in landing memory, one after the other.

    Parameters
    ----------
    like : sequence of array
        Columns of no rows, the same on all ranks.
    rows : sequence of int
        Of each rank's columns.
    begins : sequence of int
        Where the columns of each rank begin, in bytes.
    """

    def __init__(self, like: Sequence[Any], rows: Sequence[int], begins: Sequence[int]) -> None:
        self._like, self._rows = like, rows
        self._widths = [each.dtype.itemsize * math.prod(each.shape[1:]) for each in like]
        self._offsets, self.ends = [], []
        for number, begin in zip(rows, begins, strict=True):
            offsets = []
            for width in self._widths:
                offsets.append(begin)
                begin += -(-number * width // ALIGNED) * ALIGNED
            self._offsets.append(offsets)
            self.ends.append(begin)

    def places(self, rows: Sequence[int]) -> list[list[int]]:
        """For each rank where a row of its columns is, in bytes."""
        return [
            [offset + row * width for offset, width in zip(offsets, self._widths, strict=True)]
            for offsets, row in zip(self._offsets, rows, strict=True)
        ]

    def columns(self, landing: Landing, rank: int) -> list[Any]:
        """Those of a rank."""
        return [
            landing.array(rank, offset, (self._rows[rank], *each.shape[1:]), each.dtype)
            for offset, each in zip(self._offsets[rank], self._like, strict=True)
        ]
