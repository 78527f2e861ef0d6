"""Cut chunks into pieces, rounds and slices, and collect the results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend, Multisplit
from dgpuhash.distributed.collective.base import Collective, Destination, DestinationBuffers
from dgpuhash.distributed.shards.table_shard import Answer


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
class KeyPiece:
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
        self.pieces: list[list[KeyPiece]] = [_pieces(each, most_rows, in_order) for each in chunks]
        self.rounds: int = max((len(each) for each in self.pieces), default=0)

    def most_rows(self, number: int) -> int:
        """Return the rows of the largest piece of round `number`."""
        pieces = [self.piece(rank, number) for rank in range(len(self.pieces))]
        return max((piece.rows for piece in pieces if piece is not None), default=0)

    def piece(self, rank: int, number: int) -> KeyPiece | None:
        """Return the piece of `rank` in round `number`; None if it has no more."""
        pieces = self.pieces[rank]
        return pieces[number] if number < len(pieces) else None


def _pieces(chunks: Sequence[Chunk], most_rows: int, in_order: bool) -> list[KeyPiece]:
    total = sum(chunk.rows for chunk in chunks)
    # Pieces of equal size: a last piece of a few rows would cost a whole round.
    most = math.ceil(total / math.ceil(total / most_rows)) if total else 1
    pieces: list[KeyPiece] = []
    slices: list[tuple[int, int, int]] = []
    first = place = held = 0

    def close() -> None:
        nonlocal place, held
        if slices:
            pieces.append(KeyPiece(first, place, tuple(slices)))
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


# Rows of a round, and own rows among answers, begin at multiples of this, as arrays do.
ALIGNED = 64


class RoundLayout(NamedTuple):
    """Memory layout on all ranks for rows that arrive in rounds."""

    firsts: np.ndarray
    """Position of the first row, int64, by round, sender and receiver."""
    begins: np.ndarray
    """First row of each round's memory, by round and receiver."""
    ends: np.ndarray
    """Rows of the memory for all rounds, by receiver."""

    @classmethod
    def of(cls, counts: np.ndarray, *, turned: bool) -> RoundLayout:
        """Return the memory layout for row counts by round, sender and receiver.

        In each round rank 0's rows come first or, where `turned`, those of the rank after the
        receiver.

        Examples
        --------
        >>> counts = np.array([[[1, 2], [3, 4]]])
        >>> RoundLayout.of(counts, turned=False).firsts.tolist()
        [[[0, 0], [1, 2]]]
        >>> RoundLayout.of(counts, turned=True).firsts.tolist()
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


class LandingColumns:
    """Columns of all ranks in landing memory, contiguous.

    Parameters
    ----------
    like : sequence of array
        Columns without rows, the same on all ranks.
    rows : sequence of int
        Rows of each rank's columns.
    begins : sequence of int
        Where the columns of each rank begin, in bytes.
    """

    def __init__(self, like: Sequence[Any], rows: Sequence[int], begins: Sequence[int]) -> None:
        self._like, self._rows = like, rows
        self._widths = [each.dtype.itemsize * math.prod(each.shape[1:]) for each in like]
        self._offsets = []
        self.ends: list[Any] = []
        for number, begin in zip(rows, begins, strict=True):
            offsets = []
            for width in self._widths:
                offsets.append(begin)
                begin += -(-number * width // ALIGNED) * ALIGNED
            self._offsets.append(offsets)
            self.ends.append(begin)

    def places(self, rows: Sequence[int]) -> list[list[int]]:
        """Return the byte offsets of one row of each rank, by column.

        `rows` has the number of the row for each rank.
        """
        return [
            [offset + row * width for offset, width in zip(offsets, self._widths, strict=True)]
            for offsets, row in zip(self._offsets, rows, strict=True)
        ]

    def columns(self, landing: DestinationBuffers, rank: int) -> list[Any]:
        """Return the columns of `rank`."""
        return [
            landing.array(rank, offset, (self._rows[rank], *each.shape[1:]), each.dtype)
            for offset, each in zip(self._offsets[rank], self._like, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class SentPiece:
    """Piece in flight.

    Attributes
    ----------
    piece : KeyPiece or None
        None when this rank has no more rows and only serves the others.
    columns : list of array
        Its rows, ordered by owner.
    deal : Multisplit or None
        Puts rows back into the order of the piece; None where nothing was moved.
    firsts, counts : int64 array
        Where the rows of each owner begin, and how many there are. Owners may share rows.
    """

    piece: KeyPiece | None
    columns: list[Any]
    deal: Multisplit | None
    firsts: np.ndarray
    counts: np.ndarray


class SlicedPiece:
    """Piece that is sent in slices, with the results received so far.

    Where there are several slices, the rank's own rows are in none of them: its shard serves one
    half of them while the first slice travels, and the other while the last answers do, in batches
    of about as many rows as arrive with a slice.

    Parameters
    ----------
    backend : Backend
    sent : Sent
    slices : int
        Number of slices, the same for all ranks.
    rank : int

    Attributes
    ----------
    starts, counts : int64 array
        First row, and number of rows, by slice and owner.
    own : list of slice
        The rank's own rows, which do not travel, in the batches that are served: an even number.
    back : list of list of Answer
        Answers that have come back so far, of each slice or batch of own rows.
    places : list of list of array
        For each answer with one row a key, its columns for the whole piece.
    pads : int64 array
        For each owner, how many rows further on its answers begin than its keys.
    free : list of event or None
        GPU event after which each of `places` may be written.
    nbytes : int
        Bytes of the rows that were sent, and of `places`.
    """

    def __init__(self, backend: Backend, sent: SentPiece, slices: int, rank: int) -> None:
        self._backend, self._rank = backend, rank
        self.sent: SentPiece = sent
        self.slices: int = slices
        first, counts = sent.firsts, sent.counts.copy()
        self.pads: Any = np.cumsum(counts) - counts - first
        self.own: list[slice] = []
        # Padding before all answers: lookups want answers to own rows to begin at a multiple.
        self._shift = 0
        self._lands: _LandingPlaces | None = None
        if slices > 1:
            start = int(first[rank])
            own = slice(start, start + int(counts[rank]))
            self.own = _cut(own, 2 * _half(slices, len(counts)))
            self._shift = -self._at(own).start % ALIGNED
            counts[rank] = 0
        edges = _edges(counts, slices)
        self.starts: np.ndarray = first + edges[:-1]
        self.counts: np.ndarray = np.diff(edges, axis=0)
        self.back: list[list[Answer]] = []
        self.places: list[list[Any]] = []
        self.free: list[Any] = []
        self.nbytes: int = sum(column.nbytes for column in sent.columns)

    @property
    def whole(self) -> bool:
        """Whether all results have been received."""
        return len(self.back) == self.slices + len(self.own)

    def land(self, collective: Collective, answers: list[Any]) -> None:
        """Write slices and results directly to their destination, if possible.

        Parameters
        ----------
        collective : Collective
            All ranks call this method alike.
        answers : list of array
            Columns without rows, like the first answers with one row a key.
        """
        told = np.stack(collective.gather((self.sent.firsts, self.sent.counts)))
        lands = _LandingPlaces(
            told[:, 0], told[:, 1], self.slices, collective.rank, self.sent.columns, answers
        )
        lands.landing = collective.landing(lands.nbytes)
        if lands.landing is not None:
            self._lands, self.pads = lands, lands.pads

    def asked(self, number: int) -> Destination | None:
        """Return the destination of slice `number`, if known."""
        return None if self._lands is None else self._lands.asked(number)

    def answered(self, place: int, answer: Answer, number: int) -> Destination:
        """Return the destination of the results of slice `number`."""
        room, theirs = self.room(place, answer), None
        if put := self._lands is not None and place < self._lands.answers:
            assert self._lands is not None
            theirs = self._lands.answered(number)
        return Destination(room, self.starts[number] + self.pads, self.free[place], theirs, put)

    def written(self, number: int) -> list[list[Any]] | None:
        """Return each rank's columns for the results of its slice `number`.

        They may be in that rank's memory. None where answers travel after they are computed.
        """
        if self._lands is None or not self._lands.answers:
            return None
        return self._lands.written(number)

    def room(self, number: int, answer: Answer) -> list[Any]:
        """Return the columns of result `number` for all rows of the piece."""
        if number == len(self.places):
            rows, shift = self._shift + int(self.sent.counts.sum()), self._shift
            if self._lands is not None and number < self._lands.answers:
                self.places.append(self._lands.room())
            else:
                made = [
                    self._backend.empty((rows, *column.shape[1:]), column.dtype)
                    for column in answer.columns
                ]
                self.places.append([column[shift:] for column in made])
            self.nbytes += sum(column.nbytes for column in self.places[number])
            self.free.append(self._backend.mark())
        return self.places[number]

    def places_of(self, own: slice) -> list[list[Any]]:
        """Return the columns of results for own rows, as far as allocated."""
        at = self._at(own)
        return [[column[at] for column in columns] for columns in self.places]

    def _at(self, own: slice) -> slice:
        pad = int(self.pads[self._rank])
        return slice(own.start + pad, own.stop + pad)

    def keep(self, own: slice, answers: list[Answer], to: list[list[Any]]) -> None:
        """Store the results for own rows.

        Answers that were written to the columns `to` are there already.
        """
        kept = []
        for number, answer in enumerate(answers):
            columns = answer.columns
            if answer.by_row:
                columns = self.room(number, answer)
                written = to[number] if number < len(to) else [None] * len(columns)
                for place, column, there in zip(columns, answer.columns, written, strict=True):
                    if column is not there:
                        place[self._at(own)] = column
            kept.append(Answer(columns, answer.counts, answer.by_row))
        self.back.append(kept)

    def take(self) -> list[Answer]:
        """Return all results as if there had been one slice, and release them here."""
        back, self.back = self.back, []
        places, self.places, self.free = self.places, [], []
        if self.slices == 1:
            return back[0]
        whole = []
        for number, answers in enumerate(zip(*back, strict=True)):
            counts = np.sum([answer.counts for answer in answers], axis=0)
            by_row = answers[0].by_row
            columns = places[number] if by_row else self._join(answers, len(counts))
            pads = self.pads if by_row and self.pads.any() else None
            whole.append(Answer(columns, counts, by_row, pads))
        return whole

    def _join(self, answers: tuple[Answer, ...], ranks: int) -> list[Any]:
        """Return the rows of all `answers`, ordered by rank."""
        return [
            self._backend.xp.concatenate(
                [
                    answer.columns[column][end - count : end]
                    for rank in range(ranks)
                    for answer in answers
                    for count, end in [(answer.counts[rank], answer.ends[rank])]
                ]
            )
            for column in range(len(answers[0].columns))
        ]


class _LandingPlaces:
    """Places of slices, and of answers, in the landing memory of all ranks.

    Parameters
    ----------
    firsts, counts : int64 array
        For each rank's piece, as in `SentPiece`.
    slices, rank : int
    questions, answers : list of array
        Columns without rows, like those that travel.

    Attributes
    ----------
    nbytes : list of int
        Bytes of each rank's landing memory.
    answers : int
        Number of the answers that have places; they are the first ones.
    pads : int64 array
        As in `SlicedPiece`: an owner's answers begin at a multiple, as lookups that write them
        want.
    """

    landing: DestinationBuffers | None = None

    def __init__(
        self,
        firsts: np.ndarray,
        counts: np.ndarray,
        slices: int,
        rank: int,
        questions: list[Any],
        answers: list[Any],
    ) -> None:
        self._rank, self.answers = rank, int(bool(answers))
        room = -(-counts // ALIGNED) * ALIGNED if answers else counts.copy()
        homes = np.cumsum(room, axis=1) - room
        self.pads = (homes - firsts)[rank]
        np.fill_diagonal(counts, 0)
        edges = _edges(counts, slices)
        self._counts = np.diff(edges, axis=0)
        self._rows = RoundLayout.of(self._counts, turned=False)
        self._back = (homes + edges[:-1])[:, :, rank]
        ranks = len(counts)
        self._questions = LandingColumns(questions, self._rows.ends.tolist(), [0] * ranks)
        self._answers = LandingColumns(answers, room.sum(axis=1).tolist(), self._questions.ends)
        self.nbytes = self._answers.ends
        self._room: list[Any] = []
        self._homes: list[list[Any]] = []

    def asked(self, number: int) -> Destination:
        assert self.landing is not None
        if not self._room:
            self._room = self._questions.columns(self.landing, self._rank)
        begin = int(self._rows.begins[number, self._rank])
        end = begin + int(self._counts[number, :, self._rank].sum())
        firsts = self._rows.firsts[number]
        theirs = self._questions.places(firsts[self._rank].tolist())
        columns = [column[begin:end] for column in self._room]
        return Destination(columns, firsts[:, self._rank] - begin, theirs=theirs)

    def room(self) -> list[Any]:
        assert self.landing is not None
        return self._answers.columns(self.landing, self._rank)

    def answered(self, number: int) -> list[list[int]]:
        return self._answers.places(self._back[number].tolist())

    def written(self, number: int) -> list[list[Any]]:
        landing = self.landing
        assert landing is not None
        if not self._homes:
            ranks = range(len(self._back[number]))
            self._homes = [self._answers.columns(landing, rank) for rank in ranks]
        firsts, counts = self._back[number], self._counts[number, :, self._rank]
        return [
            [column[first : first + rows] for column in columns]
            for columns, first, rows in zip(
                self._homes, firsts.tolist(), counts.tolist(), strict=True
            )
        ]


def _edges(counts: np.ndarray, slices: int) -> np.ndarray:
    """Return the bounds of each slice's rows, by owner."""
    edges = counts * np.arange(slices + 1).reshape(-1, *[1] * counts.ndim) // slices
    # Answers to long slices begin at multiples.
    edges[1:-1] -= edges[1:-1] % np.where(counts < slices * ALIGNED, 1, ALIGNED)
    return edges


def _half(slices: int, ranks: int) -> int:
    """Return the number of batches in which half of a rank's own rows are served."""
    return max(1, round(slices / (ranks - 1) / 2))


def _cut(rows: slice, parts: int) -> list[slice]:
    number = rows.stop - rows.start
    edges = [rows.start + number * part // parts // ALIGNED * ALIGNED for part in range(parts)]
    return [slice(*cut) for cut in itertools.pairwise([*edges, rows.stop])]
