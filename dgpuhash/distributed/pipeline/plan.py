"""Round plan: which rows each rank sends in which round.

All ranks make the same plan of the same chunks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """Chunk of an argument on the worker that sends it.

    Attributes
    ----------
    number : int
        Among all chunks.
    labels : tuple of label
        Dask keys under which the worker has the chunk's keys, and values.
    first, rows : int
        The first row among those of all chunks, and how many there are.
    """

    number: int
    labels: tuple[Hashable, ...]
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one rank that are partitioned and sent in one round.

    Attributes
    ----------
    first : int
        Its first row among those of all chunks. In a plan that is in order, no other piece has rows
        between the piece's first row and its last.
    place : int
        Its first row among those of the rank.
    slices : tuple of (chunk, start, stop)
        Rows of chunks; a chunk is given by its position in the rank's list.
    """

    first: int
    place: int
    slices: tuple[tuple[int, int, int], ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(stop - start for _, start, stop in self.slices)


class RoundPlan:
    """Pieces of all ranks, each sent in the round of its number.

    Parameters
    ----------
    chunks : sequence of sequence of Chunk
        Chunks of each rank, ascending by number.
    most_rows : int
        Upper limit of a piece's rows.
    in_order : bool
        Whether a piece may only hold consecutive chunks.

    Examples
    --------
    >>> one, two = Chunk(0, ("a",), 0, 5), Chunk(1, ("b",), 5, 2)
    >>> plan = RoundPlan([[one], [two]], most_rows=3, in_order=True)
    >>> plan.rounds, [piece.rows for piece in plan.pieces[0]]
    (2, [3, 2])
    """

    def __init__(
        self, chunks: Sequence[Sequence[Chunk]], *, most_rows: int, in_order: bool
    ) -> None:
        self.pieces: list[list[Piece]] = [_pieces(each, most_rows, in_order) for each in chunks]
        self.rounds: int = max((len(each) for each in self.pieces), default=0)

    def most_rows(self, number: int) -> int:
        """Return the rows of the largest piece of round `number`."""
        pieces = [self.piece(rank, number) for rank in range(len(self.pieces))]
        return max((piece.rows for piece in pieces if piece is not None), default=0)

    def piece(self, rank: int, number: int) -> Piece | None:
        """Return the piece of `rank` in round `number`; None if it has no more."""
        pieces = self.pieces[rank]
        return pieces[number] if number < len(pieces) else None


def _pieces(chunks: Sequence[Chunk], most_rows: int, in_order: bool) -> list[Piece]:
    total = sum(chunk.rows for chunk in chunks)
    # Pieces of equal size: a last piece of a few rows would cost a whole round.
    most = math.ceil(total / math.ceil(total / most_rows)) if total else 1
    pieces: list[Piece] = []
    slices: list[tuple[int, int, int]] = []
    first = place = held = 0

    def close() -> None:
        nonlocal place, held
        if slices:
            pieces.append(Piece(first, place, tuple(slices)))
            slices.clear()
            place, held = place + held, 0

    before = None
    for index, chunk in enumerate(chunks):
        if in_order and before is not None and chunk.number != before + 1:
            close()
        before = chunk.number
        start = 0
        while start < chunk.rows:
            if not slices:
                first = chunk.first + start
            stop = min(chunk.rows, start + most - held)
            slices.append((index, start, stop))
            held += stop - start
            start = stop
            if held == most:
                close()
    close()
    return pieces
