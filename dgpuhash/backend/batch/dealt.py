"""Where the rows of a batch went that was put in the order of few parts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.partition_pass import Digit
from dgpuhash.backend.structs import multisplit as structs

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["Dealt"]

# Segments for each that is worth being partitioned at once: on a GPU a warp has one to itself.
_SEGMENTS = {"cpu": 1, "cuda": 64}


@dataclass(frozen=True, slots=True)
class Dealt:
    """Where each row goes; those of one part stay in input order.

    Attributes
    ----------
    parts_of : array of uint8
        Each row's part.
    places : array of uint64
        By part and segment the first row that goes there; and the end of the last.
    starts : array of uint64
        Where each part begins and the last ends.
    parts, segments : int
    segment_rows : int
        Of all segments but the last.
    """

    backend: Backend
    parts_of: Any
    places: Any
    starts: Any
    parts: int
    segments: int
    segment_rows: int

    @classmethod
    def counted(cls, backend: Backend, keys: Any, digit: Digit) -> Dealt:
        """That of keys by a digit of `DEAL_PARTS` parts at most."""
        rows, parts = len(keys), digit.parts
        least = structs.STEP_ROWS[backend.name]
        wanted = backend.partition_blocks * _SEGMENTS[backend.name]
        segment_rows = least * max(1, math.ceil(rows / wanted / least))
        segments = max(1, math.ceil(rows / segment_rows))
        parts_of = backend.empty(rows, np.uint8)
        words = backend.empty(parts * segments + 1 + parts + 1, np.uint64)
        places, starts = words[: parts * segments + 1], words[parts * segments + 1 :]
        backend.run(
            structs.deal_count(keys.dtype), structs.DEAL_COUNT, segments,
            digit=digit.words, keys=keys, parts_of=parts_of, counts=places,
            rows=rows, parts=parts, segment_rows=segment_rows,
        )  # fmt: skip
        # A sum of CuPy's would take the host 0.1 ms.
        backend.run(
            structs.deal_places(), structs.DEAL_PLACES, 1,
            places=places, starts=starts, parts=parts, segments=segments, segment_rows=segments,
        )  # fmt: skip
        return cls(backend, parts_of, places, starts, parts, segments, segment_rows)

    def move(self, words: Any) -> Any:
        """A column of uint32 or uint64 in the order of parts."""
        backend, rows = self.backend, len(self.parts_of)
        moved = backend.empty(rows, words.dtype)
        backend.run(
            structs.deal_move(words.dtype), structs.DEAL_MOVE,
            math.ceil(self.segments / structs.BLOCK_TILES[backend.name]),
            words=words, words_to=moved, parts_of=self.parts_of, places=self.places,
            rows=rows, parts=self.parts, segments=self.segments, segment_rows=self.segment_rows,
        )  # fmt: skip
        return moved

    def put_back(self, columns: list[Any], to: list[Any], pads: np.ndarray | None = None) -> None:
        """Bring words and flags from the order of parts back to their rows; see `Deal.put_back`."""
        pairs = list(zip(columns, to, strict=True))
        words = [pair for pair in pairs if pair[0].dtype.itemsize > 1]
        flags = [pair for pair in pairs if pair[0].dtype.itemsize == 1]
        nothing = (None, None)
        ahead = None if pads is None else self.backend.from_host(pads.astype(np.uint64))
        # A word and a flag of each row go in one launch.
        for word, flag in itertools.zip_longest(words, flags, fillvalue=nothing):
            unsigned = np.dtype(np.uint32 if word[0] is None else f"u{word[0].dtype.itemsize}")
            self.backend.run(
                structs.deal_back(unsigned), structs.DEAL_BACK, self.segments,
                words=word[0], flags=flag[0], words_to=word[1], flags_to=flag[1],
                parts_of=self.parts_of, places=self.places, pads=ahead,
                rows=len(self.parts_of), parts=self.parts, segment_rows=self.segment_rows,
            )  # fmt: skip
