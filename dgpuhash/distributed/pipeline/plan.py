"""Which rows each rank sends in which round: all ranks make the same plan of the same chunks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Chunk", "Piece", "Plan"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of an argument on the worker that asks.

    Attributes
    ----------
    number : int
        Among all chunks.
    labels : tuple of label
        Under which the worker has its keys, and values.
    first, rows : int
        The first row among those of all chunks, and how many there are.
    """

    number: int
    labels: tuple[Hashable, ...]
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one rank that travel together.

    Attributes
    ----------
    first : int
        Its first row among those of all chunks; no other piece has rows between this and its last
        where the plan is one in order.
    place : int
        Its first row among those of the rank.
    slices : tuple of (chunk, start, stop)
        Chunks by their place in the rank's list.
    """

    first: int
    place: int
    slices: tuple[tuple[int, int, int], ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(stop - start for _, start, stop in self.slices)


class Plan:
    """The pieces of all ranks, a round for each of a rank's.

    Parameters
    ----------
    chunks : sequence of sequence of Chunk
        Those of each rank, ascending by number.
    most_rows : int
        Of a piece.
    in_order : bool
        Whether a piece may only hold chunks that follow each other.

    Examples
    --------
    >>> one, two = Chunk(0, ("a",), 0, 5), Chunk(1, ("b",), 5, 2)
    >>> plan = Plan([[one], [two]], most_rows=3, in_order=True)
    >>> plan.rounds, [piece.rows for piece in plan.pieces[0]]
    (2, [3, 2])
    """

    def __init__(
        self, chunks: Sequence[Sequence[Chunk]], *, most_rows: int, in_order: bool
    ) -> None:
        self.pieces = [_pieces(each, most_rows, in_order) for each in chunks]
        self.rounds = max((len(each) for each in self.pieces), default=0)

    def most_rows(self, number: int) -> int:
        """Of a rank's piece in round `number`."""
        pieces = [self.piece(rank, number) for rank in range(len(self.pieces))]
        return max((piece.rows for piece in pieces if piece is not None), default=0)

    def piece(self, rank: int, number: int) -> Piece | None:
        """What `rank` sends in round `number`; None when it has no more."""
        pieces = self.pieces[rank]
        return pieces[number] if number < len(pieces) else None


def _pieces(chunks: Sequence[Chunk], most_rows: int, in_order: bool) -> list[Piece]:
    total = sum(chunk.rows for chunk in chunks)
    # Of the same size, as a last piece of a few rows costs a round as well.
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
