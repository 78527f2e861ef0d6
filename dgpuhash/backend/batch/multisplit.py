"""Multisplit: order rows by their keys' owners, and restore the input order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.partition import Digit, digits_of, split
from dgpuhash.backend.constants import BLOCK_TILES, DEAL_PARTS, STEP_ROWS
from dgpuhash.backend.kernel import kernel_named

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

# Segments per block of `partition_blocks`: on a GPU each warp works on its own segment.
_SEGMENTS = {"cpu": 1, "cuda": 64}


@dataclass(frozen=True, slots=True)
class MultisplitLayout:
    """Destination of each row in a multisplit with few parts.

    Rows of one part stay in input order.

    Attributes
    ----------
    parts_of : array of uint8
        Each row's part.
    places : array of uint64
        First destination row by part and segment; then the end of the last.
    starts : array of uint64
        Where each part begins, and where the last part ends.
    parts, segments : int
    segment_rows : int
        Rows of every segment but the last.
    """

    backend: Backend
    parts_of: Any
    places: Any
    starts: Any
    parts: int
    segments: int
    segment_rows: int

    @classmethod
    def counted(cls, backend: Backend, keys: Any, digit: Digit) -> MultisplitLayout:
        """Return the layout for `keys`, with the destinations counted by a digit.

        The digit has at most `DEAL_PARTS` parts.
        """
        rows, parts = len(keys), digit.parts
        least = STEP_ROWS[backend.name]
        wanted = backend.partition_blocks * _SEGMENTS[backend.name]
        segment_rows = least * max(1, math.ceil(rows / wanted / least))
        segments = max(1, math.ceil(rows / segment_rows))
        parts_of = backend.empty(rows, np.uint8)
        words = backend.empty(parts * segments + 1 + parts + 1, np.uint64)
        places, starts = words[: parts * segments + 1], words[parts * segments + 1 :]
        backend.run(
            kernel_named("deal_count", keys.dtype), segments,
            digit=digit.words, keys=keys, parts_of=parts_of, counts=places,
            rows=rows, parts=parts, segment_rows=segment_rows,
        )  # fmt: skip
        # CuPy's cumsum would cost the host 0.1 ms.
        backend.run(
            kernel_named("deal_places"), 1,
            places=places, starts=starts, parts=parts, segments=segments, segment_rows=segments,
        )  # fmt: skip
        return cls(backend, parts_of, places, starts, parts, segments, segment_rows)

    def move(self, words: Any) -> Any:
        """Return a column of uint32 or uint64 in the order of parts."""
        backend, rows = self.backend, len(self.parts_of)
        moved = backend.empty(rows, words.dtype)
        backend.run(
            kernel_named("deal_move", words.dtype),
            math.ceil(self.segments / BLOCK_TILES[backend.name]),
            words=words, words_to=moved, parts_of=self.parts_of, places=self.places,
            rows=rows, parts=self.parts, segments=self.segments, segment_rows=self.segment_rows,
        )  # fmt: skip
        return moved

    def restore_order(
        self, columns: list[Any], to: list[Any], pads: np.ndarray | None = None
    ) -> None:
        """Move columns from the order of parts to input order; see `Multisplit`."""
        pairs = list(zip(columns, to, strict=True))
        words = [pair for pair in pairs if pair[0].dtype.itemsize > 1]
        flags = [pair for pair in pairs if pair[0].dtype.itemsize == 1]
        nothing = (None, None)
        ahead = None if pads is None else self.backend.from_host(pads.astype(np.uint64))
        # One launch moves a column of words and a column of flags.
        for word, flag in itertools.zip_longest(words, flags, fillvalue=nothing):
            unsigned = np.dtype(np.uint32 if word[0] is None else f"u{word[0].dtype.itemsize}")
            self.backend.run(
                kernel_named("deal_back", unsigned), self.segments,
                words=word[0], flags=flag[0], words_to=word[1], flags_to=flag[1],
                parts_of=self.parts_of, places=self.places, pads=ahead,
                rows=len(self.parts_of), parts=self.parts, segment_rows=self.segment_rows,
            )  # fmt: skip


class Multisplit:
    """A batch in the order of its keys' owners (a multisplit).

    Rows of one owner stay in input order.

    To move results back, one byte per row is kept with up to `DEAL_PARTS` owners, and the row
    numbers with more owners.

    Parameters
    ----------
    backend : Backend
    keys : array of uint32 or uint64
        On this device.
    values : array of uint32 or uint64, optional
        Moved along.
    parts : int
        Number of owners, up to 65,536; `Backend.owner_of` tells a row's owner.
    seed : int
        Of the hash.
    counted : callable, optional
        Called with `starts` once rows are counted; before they move, where owners are few.

    Attributes
    ----------
    keys, values : array
        In the owners' order; `values` is None if the batch has none.
    starts : array of uint64
        Where each owner's rows begin, and where the last owner's rows end; on this device.
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
        self._backend, self._rows = backend, len(keys)
        self._dealt = self._numbers = None
        if parts <= DEAL_PARTS[backend.name]:
            (digit,) = digits_of(backend, parts, seed, spread=parts)
            self._dealt = MultisplitLayout.counted(backend, keys, digit)
            self.starts: Any = self._dealt.starts
            if counted is not None:
                counted(self.starts)
            self.keys: Any = self._dealt.move(keys)
            self.values = None if values is None else self._dealt.move(values)
            return
        moved, self.starts = split(backend, keys, values, parts=parts, seed=seed, numbered=True)
        if counted is not None:
            counted(self.starts)
        self.keys, self.values, self._numbers = moved.keys, moved.values, moved.numbers

    def restore_order(
        self, columns: list[Any], to: list[Any], pads: np.ndarray | None = None
    ) -> None:
        """Move columns from the owners' order to the batch's input order.

        Parameters
        ----------
        columns : list of array
            Words of 4 or 8 bytes, flags of one byte, or rows of bytes.
        to : list of array
            Targets of the same kinds and in input order; overwritten.
        pads : int64 array, optional
            For each owner, by how many rows its rows are shifted in `columns`; on the host.
        """
        pairs = list(zip(columns, to, strict=True))
        if self._dealt is None:
            for column, target in pairs:
                target[self._numbers] = (
                    column if pads is None else column[self._padded_positions(pads)]
                )
            return
        wide = [pair for pair in pairs if pair[0].ndim == 2]
        if wide:
            places = self.places()
            if pads is not None:
                places = self._padded_positions(pads)[places]
            for column, target in wide:
                target[...] = column[places]
        narrow = [pair for pair in pairs if pair[0].ndim == 1]
        self._dealt.restore_order([pair[0] for pair in narrow], [pair[1] for pair in narrow], pads)

    def _padded_positions(self, pads: np.ndarray) -> Any:
        """Return the position of each row, in the owners' order, with `pads`."""
        ends = self._backend.to_host(self.starts)[1:].astype(np.int64)
        owners = np.searchsorted(ends, np.arange(self._rows), side="right")
        return self._backend.from_host(np.arange(self._rows) + pads[owners])

    def moved(self, column: Any) -> Any:
        """Return another column of the batch in the owners' order."""
        if self._dealt is None:
            return column[self._numbers]
        if column.ndim == 1 and column.dtype.itemsize in (4, 8):
            words = column.view(f"u{column.dtype.itemsize}")
            return self._dealt.move(words).view(column.dtype)
        made = self._backend.empty(column.shape, column.dtype)
        made[self.places()] = column
        return made

    def places(self) -> Any:
        """Return the position (int64) of each input row in the owners' order."""
        made = self._backend.empty(self._rows, np.int64)
        self.restore_order([self._backend.xp.arange(self._rows)], [made])
        return made
