"""A batch dealt out to the owners of its keys, and answers brought back to its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import partition_args as structs
from dgpuhash.backend.partition import digits_of, split
from dgpuhash.backend.partition_pass import move

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["Deal"]


class Deal:
    """The rows of each owner, one owner's after the other's, each in input order.

    Up to 256 owners take one pass, which keeps no row numbers: to bring back what stands in this
    order, rows are ranked once more.

    Parameters
    ----------
    backend : Backend
    keys : array of uint32 or uint64
        On this device; kept for the way back.
    values : array of uint32 or uint64, optional
        Moved along.
    parts : int
        Number of owners, up to 65,536; a row's is that of `Backend.owner_of`.
    seed : int
        Of the hash.
    counted : callable, optional
        Is given `starts` once rows are counted, before they move where one pass is enough.

    Attributes
    ----------
    keys, values : array
        In the owners' order; `values` is None when there were none.
    starts : array of uint64
        Where each owner's rows begin, and the last one's end; on this device.
    """

    def __init__(
        self,
        backend: Backend,
        keys: Any,
        values: Any,
        *,
        parts: int,
        seed: int,
        counted: Callable[[Any], object] | None = None,
    ) -> None:
        self._backend, self._before = backend, keys
        digit, *more = digits_of(backend, parts, seed, spread=parts)
        self._digit = digit
        self._segments = self._numbers = None
        if more:
            moved, self.starts = split(backend, keys, values, parts=parts, seed=seed, numbered=True)
            self._numbers = moved.numbers
            if counted is not None:
                counted(self.starts)
        else:
            moved, self._segments = move(
                backend, keys, values, digit,
                counted=None if counted is None else lambda segments: counted(segments.starts),
            )  # fmt: skip
            self.starts = self._segments.starts
        self.keys, self.values = moved.keys, moved.values

    def put_back(self, columns: list[Any], to: list[Any]) -> None:
        """Bring columns in the owners' order to the rows where their keys were.

        Parameters
        ----------
        columns : list of array
            Words of 4 or 8 bytes, flags of one byte, or rows of bytes.
        to : list of array
            Like `columns`; overwritten.
        """
        pairs = list(zip(columns, to, strict=True))
        if self._numbers is not None:
            for column, target in pairs:
                target[self._numbers] = column
            return
        wide = [pair for pair in pairs if pair[0].ndim == 2]
        if wide:
            places = self.places()
            for column, target in wide:
                target[...] = column[places]
        words = [pair for pair in pairs if pair[0].ndim == 1 and pair[0].dtype.itemsize > 1]
        flags = [pair for pair in pairs if pair[0].ndim == 1 and pair[0].dtype.itemsize == 1]
        nothing = (None, None)
        for word, flag in itertools.zip_longest(words, flags, fillvalue=nothing):
            self._put_back(word, flag)

    def moved(self, column: Any) -> Any:
        """A further column of the batch in the owners' order."""
        if self._numbers is not None:
            return column[self._numbers]
        made = self._backend.empty(column.shape, column.dtype)
        made[self.places()] = column
        return made

    def places(self) -> Any:
        """Where each row of the batch stands in the owners' order, int64."""
        made = self._backend.empty(len(self._before), np.int64)
        self.put_back([self._backend.xp.arange(len(made))], [made])
        return made

    def _put_back(self, word: tuple[Any, Any], flag: tuple[Any, Any]) -> None:
        """A word and a flag of each row go in one launch."""
        segments, digit = self._segments, self._digit
        assert segments is not None
        unsigned = np.dtype(np.uint32 if word[0] is None else f"u{word[0].dtype.itemsize}")
        self._backend.run(
            structs.put_back(self._before.dtype, unsigned), structs.PUT_BACK, segments.number,
            digit=digit.words, keys=self._before,
            words=word[0], flags=flag[0], words_to=word[1], flags_to=flag[1],
            places=segments.places, rows=segments.rows, parts=digit.parts, pieces=segments.pieces,
            step_rows=segments.step_rows, segment_rows=segments.segment_rows,
        )  # fmt: skip
