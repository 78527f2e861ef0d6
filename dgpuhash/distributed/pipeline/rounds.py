"""Pipelined all-to-all: send rows to their keys' owners, and results back."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend, Multisplit
from dgpuhash.distributed.collective.base import Collective, Received, Transfer
from dgpuhash.distributed.collective.streams import SideStream
from dgpuhash.distributed.pipeline.slices import KeyPiece, RoundPlan, SentPiece, SlicedPiece
from dgpuhash.distributed.shards.table_shard import Answer

# Slices whose rows are under way while one is served, and slices whose answers are under way.
AHEAD, LAG = 2, 2
# Pieces, or answers, that are sent before the first is waited for, where all are served at once.
TOGETHER = 4


@dataclass(frozen=True, slots=True)
class PartitionedPiece:
    """Piece that is being partitioned by owner.

    Attributes
    ----------
    piece : KeyPiece or None
    columns : list of array
        Its rows, ordered by owner.
    deal : Multisplit or None
        Puts rows back into the order of the piece; None where nothing was moved, or others do.
    starts : callable
        Waits until it is known where the rows of each owner begin, and the last one's end.
    """

    piece: KeyPiece | None
    columns: list[Any]
    deal: Multisplit | None
    starts: Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class _AnsweredSlice:
    """Slice whose results are being returned, and its served rows.

    The rows are kept since their memory may be the side stream's, which follows when answers are
    back.
    """

    of: SlicedPiece
    came: Received
    answers: list[Answer]
    transfers: list[Transfer]
    nbytes: int
    """Bytes of received rows and of answers, unless they are the piece's own memory."""


class PipelinedRounds:
    """All rounds of one verb on one rank.

    Parameters
    ----------
    backend : Backend
    collective : Collective
    plan : Plan
    side : SideStream
        Stream on which rows are partitioned.
    deal : callable
        Begins to partition a piece by owner, on the current stream, which is `side`'s where there
        are several ranks; for None, it returns columns without rows.
    serve : callable
        Returns this rank's answers to received columns, given the rows from each rank. Columns in
        the third argument may be used for the first answers.
    deliver : callable
        Called with each piece that was sent, and all answers to it.
    like : callable
        Returns columns without rows, like answers with one row a key; none if there are others.
    slice_rows : int
        Approximate number of a piece's rows that travel together.
    to_all : bool
        Whether all rows go to every rank, and all answers come back, rank by rank.

    Attributes
    ----------
    peak_nbytes : int
        Peak bytes of rows under way and of answers on this rank.
    """

    def __init__(
        self,
        backend: Backend,
        collective: Collective,
        plan: RoundPlan,
        side: SideStream,
        *,
        deal: Callable[[KeyPiece | None], PartitionedPiece],
        serve: Callable[[list[Any], np.ndarray, list[list[Any]]], list[Answer]],
        deliver: Callable[[SentPiece, list[Answer]], None],
        like: Callable[[], list[Any]],
        slice_rows: int,
        to_all: bool = False,
    ) -> None:
        self._backend, self._collective, self._plan = backend, collective, plan
        self._partition, self._serve, self._deliver = deal, serve, deliver
        self._like, self._slice_rows, self._to_all = like, slice_rows, to_all
        self._side = side
        side.follow()
        self.peak_nbytes: int = 0

    def run(self) -> None:
        """Serve all rounds, slice by slice, overlapped.

        While one slice is served, the rows of the next ones are under way, and so are the answers
        of the ones before; the next piece is partitioned meanwhile.
        """
        going: deque[tuple[SlicedPiece, int, Transfer]] = deque()
        coming: deque[_AnsweredSlice] = deque()
        for asked, number in self._slices():
            with self._side.use():
                transfer = self._start(
                    asked.sent.columns, asked.counts[number], starts=asked.starts[number],
                    to=asked.asked(number),
                )  # fmt: skip
            going.append((asked, number, transfer))
            if number == 0:
                self._serve_own(asked, asked.own[: len(asked.own) // 2])
            if len(going) > AHEAD:
                self._answer(going, coming)
            if len(coming) > LAG:
                self._take_back(coming.popleft())
        while going:
            self._answer(going, coming)
        while coming:
            self._take_back(coming.popleft())

    def _slices(self) -> Iterator[tuple[SlicedPiece, int]]:
        """Yield the slices of all pieces.

        While the slices of one piece are taken, the next piece is partitioned.
        """
        dealing = self._deal(0) if self._plan.rounds else None
        for number in range(self._plan.rounds):
            assert dealing is not None
            asked = self._slice(dealing, self._slices_of(number))
            # A next piece's rows would land in the same memory.
            alone = self._plan.rounds == 1 and asked.slices > 1
            if alone and self._collective.lands(self._backend.name):
                asked.land(self._collective, self._like())
            dealing = self._deal(number + 1) if number + 1 < self._plan.rounds else None
            for each in range(asked.slices):
                yield asked, each

    def _slices_of(self, number: int) -> int:
        """Return the number of slices of a piece, the same for all ranks."""
        ranks = self._collective.size
        share = 1 if self._to_all else ranks
        travelling = self._plan.most_rows(number) * (ranks - 1) / share
        return max(1, round(travelling / self._slice_rows))

    def _answer(
        self, going: deque[tuple[SlicedPiece, int, Transfer]], coming: deque[_AnsweredSlice]
    ) -> None:
        """Serve the oldest slice, and send its results."""
        asked, number, transfer = going.popleft()
        came = transfer.wait()
        written = asked.written(number)
        if written is None:
            answers = self._serve(came.columns, came.counts, [])
        else:
            answers = [self._write(came, written)]
        transfers = []
        for place, answer in enumerate(answers):
            to = None
            if asked.own and answer.by_row:
                to = asked.answered(place, answer, number)
            transfers.append(self._start(answer.columns, answer.counts, to=to))
        coming.append(self._answered(asked, came, answers, transfers))
        if number + 1 == asked.slices:
            self._serve_own(asked, asked.own[len(asked.own) // 2 :])
        pieces = {each for each, *_ in going} | {each.of for each in coming}
        self._note(*pieces, *coming, more=sum(each.nbytes for *_, each in going))

    def _write(self, came: Received, to: list[list[Any]]) -> Answer:
        """Serve received rows, and write each rank's results into its memory."""
        ends = np.cumsum(came.counts).tolist()
        for rank, (rows, end) in enumerate(zip(came.counts.tolist(), ends, strict=True)):
            if not rows:
                continue
            counts = np.zeros_like(came.counts)
            counts[rank] = rows
            asked = [column[end - rows : end] for column in came.columns]
            (answer,) = self._serve(asked, counts, [to[rank]])
            for column, there in zip(answer.columns, to[rank], strict=True):
                if column is not there:
                    there[...] = column
        return Answer([column[:0] for column in to[0]], came.counts)

    def _serve_own(self, asked: SlicedPiece, some: list[slice]) -> None:
        """Serve this rank's own rows without an exchange."""
        for own in some:
            counts = np.zeros(self._collective.size, np.int64)
            counts[self._collective.rank] = own.stop - own.start
            columns = [column[own] for column in asked.sent.columns]
            to = asked.places_of(own)
            asked.keep(own, self._serve(columns, counts, to), to)

    def run_together(self) -> None:
        """Serve all rounds at once, in the order of the rows of all ranks."""
        if self._plan.rounds == 0:
            return
        going: list[tuple[SlicedPiece, Transfer]] = []
        arrived: list[Received] = []
        for number in range(self._plan.rounds):
            asked = self._slice(self._deal(number), 1)
            with self._side.use():
                transfer = self._start(asked.sent.columns, asked.sent.counts)
            going.append((asked, transfer))
            if number >= TOGETHER:
                arrived.append(going[number - TOGETHER][1].wait())
        arrived += [transfer.wait() for _, transfer in going[len(arrived) :]]
        segments = self._segments(arrived)
        in_order = sorted(segments, key=lambda segment: segment.first)
        if len(arrived) == 1 and in_order == segments:
            joined = arrived[0].columns
        else:
            joined = [
                self._backend.xp.concatenate(
                    [arrived[0].columns[column][:0]]
                    + [arrived[each.round].columns[column][each.slice] for each in in_order]
                )
                for column in range(len(arrived[0].columns))
            ]
        counts = np.sum([received.counts for received in arrived], axis=0)
        answers = self._serve(joined, counts, [])
        pieces = [asked for asked, _ in going]
        copied = 0 if joined is arrived[0].columns else _nbytes(joined)
        self._note(*pieces, more=copied + sum(_nbytes(each.columns) for each in arrived))
        if not answers:
            self._side.follow()
            return
        (answer,) = answers
        places, place = {}, 0
        for each in in_order:
            places[each.round, each.source] = place
            place += each.stop - each.start
        back = []
        for number, received in enumerate(arrived):
            parts = [
                slice(places[number, source], places[number, source] + count)
                for source, count in enumerate(received.counts.tolist())
                if count
            ]
            columns = [_cut(self._backend, column, parts) for column in answer.columns]
            back.append([Answer(columns, received.counts)])
        coming: deque[_AnsweredSlice] = deque()
        for (asked, _), came, given in zip(going, arrived, back, strict=True):
            transfers = [self._start(each.columns, each.counts) for each in given]
            coming.append(self._answered(asked, came, given, transfers))
            if len(coming) > TOGETHER:
                self._take_back(coming.popleft())
        while coming:
            self._take_back(coming.popleft())

    def _deal(self, number: int) -> PartitionedPiece:
        """Start to partition the rows of a piece by owner."""
        piece = self._plan.piece(self._collective.rank, number)
        if self._collective.size == 1:
            return self._partition(piece)
        with self._side.use():
            return self._partition(piece)

    def _slice(self, dealing: PartitionedPiece, slices: int) -> SlicedPiece:
        """Return a partitioned piece, cut into slices."""
        starts = dealing.starts().astype(np.int64)
        # Rows are counted, but may still be moving.
        self._side.rejoin()
        firsts, counts = starts[:-1], np.diff(starts)
        if self._to_all:
            firsts, counts = (np.repeat(each, self._collective.size) for each in (firsts, counts))
        sent = SentPiece(dealing.piece, dealing.columns, dealing.deal, firsts, counts)
        return SlicedPiece(self._backend, sent, slices, self._collective.rank)

    def _start(self, columns: list[Any], counts: np.ndarray, **places: Any) -> Transfer:
        if self._collective.size == 1:
            return _Stayed(columns, counts)
        return self._collective.start(columns, counts, **places)

    def _take_back(self, answered: _AnsweredSlice) -> None:
        came = [transfer.wait() for transfer in answered.transfers]
        asked = answered.of
        if not asked.own and self._collective.size > 1:
            back = sum(_nbytes(each.columns) for each in came)
            self._note(asked, answered, more=back)
        asked.back.append(
            [
                Answer(each.columns, each.counts, answer.by_row)
                for each, answer in zip(came, answered.answers, strict=True)
            ]
        )
        if asked.whole:
            self._deliver(asked.sent, asked.take())
        self._side.follow()

    def _segments(self, arrived: Sequence[Received]) -> list[_Segment]:
        """Return the received rows, cut by round and sender."""
        segments = []
        for number, received in enumerate(arrived):
            ends = np.cumsum(received.counts).tolist()
            for source, (count, end) in enumerate(zip(received.counts.tolist(), ends, strict=True)):
                piece = self._plan.piece(source, number)
                if piece is not None and count:
                    segments.append(_Segment(number, source, piece.first, end - count, end))
        return segments

    def _answered(
        self, asked: SlicedPiece, came: Received, answers: list[Answer], transfers: list[Transfer]
    ) -> _AnsweredSlice:
        nbytes = sum(_nbytes(each.columns) for each in answers)
        if self._collective.size > 1:
            nbytes += _nbytes(came.columns)
        return _AnsweredSlice(asked, came, answers, transfers, nbytes)

    def _note(self, *held: SlicedPiece | _AnsweredSlice, more: int = 0) -> None:
        """Record the bytes in use besides arguments, table and results."""
        self.peak_nbytes = max(self.peak_nbytes, more + sum(each.nbytes for each in held))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows of one round from one rank.

    `first` is where their piece begins among all rows.
    """

    round: int
    source: int
    first: int
    start: int
    stop: int

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


class _Stayed(Transfer):
    """Transfer in a group of one rank: the rows stay in place."""

    def __init__(self, columns: list[Any], counts: np.ndarray) -> None:
        self._received = Received(columns, counts)

    def wait(self) -> Received:
        return self._received


def partition_piece(
    side: SideStream, piece: KeyPiece | None, columns: list[Any], parts: int, owner_seed: int | None
) -> PartitionedPiece:
    """Start to partition a piece by the hash of its first column, on the current stream.

    Parameters
    ----------
    side : SideStream
        The current stream.
    piece : KeyPiece or None
    columns : list of array
        Its rows, key words first.
    parts : int
        Number of owners.
    owner_seed : int or None
        Seed of the hash that chooses keys' owners; None: the rows stay as they are.
    """
    keys, *values = columns
    if parts == 1 or owner_seed is None:
        return PartitionedPiece(piece, columns, None, lambda: np.array([0, len(keys)]))
    narrow = len(values) == 1 and values[0].ndim == 1 and values[0].dtype.itemsize > 1
    fetched: list[Callable[[], np.ndarray]] = []
    deal = backends.get(None, keys).deal(
        keys, values[0] if narrow else None, parts=parts, seed=owner_seed,
        counted=lambda starts: fetched.append(side.fetch(starts)),
    )  # fmt: skip
    beside = [deal.values] if narrow else [deal.moved(column) for column in values]
    return PartitionedPiece(piece, [deal.keys, *beside], deal, fetched[0])


def _nbytes(columns: Iterable[Any]) -> int:
    return sum(column.nbytes for column in columns)


def _cut(backend: Backend, column: Any, parts: Sequence[slice]) -> Any:
    """Return the rows of all `parts`, one after the other."""
    if not parts:
        return column[:0]
    if all(before.stop == after.start for before, after in itertools.pairwise(parts)):
        return column[parts[0].start : parts[-1].stop]
    return backend.xp.concatenate([column[part] for part in parts])
