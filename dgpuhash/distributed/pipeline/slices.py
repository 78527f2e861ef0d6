"""A piece that travels in slices, and what has come back for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend, Deal
from dgpuhash.distributed.collective.base import Collective, Landing, Places
from dgpuhash.distributed.pipeline.plan import Piece
from dgpuhash.distributed.shards.table_shard import Answer

__all__ = ["ALIGNED", "Field", "Rows", "Sent", "Sliced"]

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


@dataclass(frozen=True, slots=True)
class Sent:
    """A piece that is on its way.

    Attributes
    ----------
    piece : Piece or None
        None when this rank has no more, and takes part for the others.
    columns : list of array
        Its rows in the order of their owners.
    deal : Deal or None
        The way back to the order of the piece; None where nothing was moved.
    starts : int64 array
        Where the rows of each owner begin, and the last one's end.
    """

    piece: Piece | None
    columns: list[Any]
    deal: Deal | None
    starts: np.ndarray


class Sliced:
    """A piece of which some slices are on their way, or all, and what has come back for it.

    Where there are several, the rank's own rows are in none of them: its table is asked for one
    half while the first slice travels, and for the other while the last answers do, about as many
    rows at once as come in a slice.

    Parameters
    ----------
    backend : Backend
    sent : Sent
    slices : int
        As many for all ranks.
    rank : int

    Attributes
    ----------
    starts, counts : int64 array
        For each slice and owner the first row, and how many there are.
    own : list of slice
        The rank's own rows that do not travel, as they are asked for: an even number.
    back : list of list of Answer
        What has come back so far, of each slice, or own rows.
    places : list of list of array
        For each answer that is by row the columns that it comes to, of the whole piece.
    pads : int64 array
        Of each owner how many rows its answers begin further on there than its questions.
    free : list of event or None
        Of a GPU, after which each of these may be written.
    nbytes : int
        Of the rows that were sent, and of `places`.
    """

    def __init__(self, backend: Backend, sent: Sent, slices: int, rank: int) -> None:
        self._backend, self._rank = backend, rank
        self.sent, self.slices = sent, slices
        first, counts = sent.starts[:-1], np.diff(sent.starts)
        self.own: list[slice] = []
        # Before all answers, so that those to own rows begin at a multiple, as lookups want it.
        self._shift = 0
        self._lands: _Lands | None = None
        if slices > 1:
            own = slice(*sent.starts[rank : rank + 2].tolist())
            self.own = _cut(own, 2 * _half(slices, len(counts)))
            self._shift = -own.start % ALIGNED
            counts[rank] = 0
        edges = _edges(counts, slices)
        self.starts, self.counts = first + edges[:-1], np.diff(edges, axis=0)
        self.pads = np.zeros_like(first)
        self.back: list[list[Answer]] = []
        self.places: list[list[Any]] = []
        self.free: list[Any] = []
        self.nbytes = sum(column.nbytes for column in sent.columns)

    @property
    def whole(self) -> bool:
        """Whether all has come back."""
        return len(self.back) == self.slices + len(self.own)

    def land(self, collective: Collective, answers: list[Any]) -> None:
        """Let the slices, and what comes back for them, go straight to their places, if they can.

        Parameters
        ----------
        collective : Collective
            All ranks call it alike.
        answers : list of array
            Columns of no rows, as the first answers by row have them.
        """
        starts = np.stack(collective.gather(self.sent.starts))
        lands = _Lands(starts, self.slices, collective.rank, self.sent.columns, answers)
        lands.landing = collective.landing(lands.nbytes)
        if lands.landing is not None:
            self._lands, self.pads = lands, lands.pads

    def asked(self, number: int) -> Places | None:
        """Where the slice of this number goes, if that is known."""
        return None if self._lands is None else self._lands.asked(number)

    def answered(self, place: int, answer: Answer, number: int) -> Places:
        """Where what comes back for the slice of this number goes."""
        room, theirs = self.room(place, answer), None
        if put := self._lands is not None and place < self._lands.answers:
            assert self._lands is not None
            theirs = self._lands.answered(number)
        return Places(room, self.starts[number] + self.pads, self.free[place], theirs, put)

    def written(self, number: int) -> list[list[Any]] | None:
        """Of each rank the columns that answers to its slice of this number are written to.

        They may be in its memory. None where answers travel when they are there.
        """
        if self._lands is None or not self._lands.answers:
            return None
        return self._lands.written(number)

    def room(self, number: int, answer: Answer) -> list[Any]:
        """Columns for all rows of the piece, of the kind of its answer of this number."""
        if number == len(self.places):
            rows, shift = self._shift + int(self.sent.starts[-1]), self._shift
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
        """Where the answers to own rows belong, as far as there is room for answers."""
        at = self._at(own)
        return [[column[at] for column in columns] for columns in self.places]

    def _at(self, own: slice) -> slice:
        pad = int(self.pads[self._rank])
        return slice(own.start + pad, own.stop + pad)

    def keep(self, own: slice, answers: list[Answer], to: list[list[Any]]) -> None:
        """Put the answers to own rows where they belong, unless they were written there, `to`."""
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
        """What has come back, as if there had been one slice; nothing is kept of it."""
        back, self.back = self.back, []
        places, self.places, self.free = self.places, [], []
        if self.slices == 1:
            return back[0]
        whole = []
        for number, answers in enumerate(zip(*back, strict=True)):
            counts = np.sum([answer.counts for answer in answers], axis=0)
            by_row = answers[0].by_row
            columns = places[number] if by_row else self._joined(answers, len(counts))
            pads = self.pads if by_row and self.pads.any() else None
            whole.append(Answer(columns, counts, by_row, pads))
        return whole

    def _joined(self, answers: tuple[Answer, ...], ranks: int) -> list[Any]:
        """The rows from each rank, of one answer after the other."""
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


class _Lands:
    """Where slices, and their answers, have their places in the landing memory of all ranks.

    Parameters
    ----------
    starts : int64 array
        Of each rank's piece, as `Sent` has them.
    slices, rank : int
    questions, answers : list of array
        Columns like those that travel.

    Attributes
    ----------
    nbytes : list of int
        Of each rank.
    answers : int
        How many of the answers have places, the first ones.
    pads : int64 array
        As of `Sliced`: answers of each owner begin at a multiple, as lookups that write them want.
    """

    landing: Landing | None = None

    def __init__(
        self, starts: np.ndarray, slices: int, rank: int, questions: list[Any], answers: list[Any]
    ) -> None:
        self._rank, self.answers = rank, int(bool(answers))
        counts = np.diff(starts)
        room = -(-counts // ALIGNED) * ALIGNED if answers else counts
        homes = np.cumsum(room, axis=1) - room
        self.pads = (homes - starts[:, :-1])[rank]
        np.fill_diagonal(counts, 0)
        edges = _edges(counts, slices)
        self._counts = np.diff(edges, axis=0)
        self._rows = Rows.of(self._counts, turned=False)
        self._back = (homes + edges[:-1])[:, :, rank]
        ranks = len(starts)
        self._questions = Field(questions, self._rows.ends.tolist(), [0] * ranks)
        self._answers = Field(answers, room.sum(axis=1).tolist(), self._questions.ends)
        self.nbytes = self._answers.ends
        self._room: list[Any] = []
        self._homes: list[list[Any]] = []

    def asked(self, number: int) -> Places:
        assert self.landing is not None
        if not self._room:
            self._room = self._questions.columns(self.landing, self._rank)
        begin = int(self._rows.begins[number, self._rank])
        end = begin + int(self._counts[number, :, self._rank].sum())
        firsts = self._rows.firsts[number]
        theirs = self._questions.places(firsts[self._rank].tolist())
        columns = [column[begin:end] for column in self._room]
        return Places(columns, firsts[:, self._rank] - begin, theirs=theirs)

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
    """Where the rows of each slice begin among those of an owner, and the last one's end."""
    edges = counts * np.arange(slices + 1).reshape(-1, *[1] * counts.ndim) // slices
    # Answers to long ones begin at multiples.
    edges[1:-1] -= edges[1:-1] % np.where(counts < slices * ALIGNED, 1, ALIGNED)
    return edges


def _half(slices: int, ranks: int) -> int:
    """How many times a rank is asked for half of its own rows, of each owner as many."""
    return max(1, round(slices / (ranks - 1) / 2))


def _cut(rows: slice, parts: int) -> list[slice]:
    number = rows.stop - rows.start
    edges = [rows.start + number * part // parts // ALIGNED * ALIGNED for part in range(parts)]
    return [slice(*cut) for cut in itertools.pairwise([*edges, rows.stop])]
