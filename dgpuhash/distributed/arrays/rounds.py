"""Rows on their way to the owners of their keys, and the answers on their way back."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.distributed.arrays.plan import Piece, Plan
from dgpuhash.distributed.arrays.side_stream import SideStream
from dgpuhash.distributed.exchange.collective import Collective, Received, Transfer
from dgpuhash.frames.keys import OWNER_SEED

__all__ = ["Answer", "Rounds", "Sent"]

# Rounds whose answers are on their way back while the next are served.
LAG = 2
# Rounds that are sent before the first is waited for, where all are served at once.
AHEAD = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns of one length, and how many of their rows go to, or came from, each rank."""

    columns: list[Any]
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Sent:
    """A piece that is on its way.

    Attributes
    ----------
    piece : Piece or None
        None when this rank has no more, and takes part for the others.
    columns : list of array
        Its rows in the order of their owners.
    numbers : int64 array or None
        The rows' places in the piece; None where they are in order, and where nothing comes back.
    counts : numpy.ndarray of int64
        Rows of each owner.
    """

    piece: Piece | None
    columns: list[Any]
    numbers: Any
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class _Parted:
    """A piece that is being put in order; `starts` waits until it is known where parts begin."""

    piece: Piece | None
    columns: list[Any]
    numbers: Any
    starts: Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class _Answered:
    """A piece whose answers are on their way back, beside what was asked of this rank.

    That is kept, since its memory may be the side stream's, which follows when answers are back.
    """

    sent: Sent
    asked: Received
    answers: list[Answer]
    transfers: list[Transfer]


class Rounds:
    """All rounds of one verb on one rank.

    Parameters
    ----------
    backend : Backend
    collective : Collective
    plan : Plan
    side : SideStream
        On which rows are put in order.
    take : callable
        The columns of a piece, key words first; those of no rows for None.
    serve : callable
        This rank's answers to columns that came, by the rows that each rank has sent.
    deliver : callable
        Is given each piece that was sent, and what came back for it, in the order of rounds.
    numbered : bool
        Whether answers come back.

    Attributes
    ----------
    peak_nbytes : int
        The most that rows on their way and answers have taken at once on this rank.
    """

    def __init__(
        self,
        backend: Backend,
        collective: Collective,
        plan: Plan,
        side: SideStream,
        *,
        take: Callable[[Piece | None], list[Any]],
        serve: Callable[[list[Any], np.ndarray], list[Answer]],
        deliver: Callable[[Sent, list[Answer]], None],
        numbered: bool,
    ) -> None:
        self._backend, self._collective, self._plan = backend, collective, plan
        self._take, self._serve, self._deliver = take, serve, deliver
        self._numbered = numbered
        self._side = side
        side.follow()
        self.peak_nbytes = 0

    def run(self) -> None:
        """Serve each round by itself.

        While it is served, the rows of the next are on their way, those of the one after that are
        put in order, and the answers of the `LAG` before are on their way back.
        """
        rounds = self._plan.rounds
        parted = deque([self._part(0)] if rounds else [])
        going: deque[tuple[Sent, Transfer]] = deque()
        coming: deque[_Answered] = deque()
        for number in range(rounds + 1):
            if number < rounds:
                going.append(self._send(parted.popleft()))
            if number + 1 < rounds:
                parted.append(self._part(number + 1))
            if number >= 1:
                sent, transfer = going.popleft()
                received = transfer.wait()
                answers = self._serve(received.columns, received.counts)
                coming.append(_Answered(sent, received, answers, self._start_all(answers)))
                self._note([sent for sent, _ in going], coming, [])
                del received, answers
            if len(coming) > LAG:
                self._take_back(coming.popleft())
        for answered in coming:
            self._take_back(answered)

    def run_together(self) -> None:
        """Serve all rounds at once, their rows in the order that those of all ranks have."""
        if self._plan.rounds == 0:
            return
        going: list[tuple[Sent, Transfer]] = []
        arrived: list[Received] = []
        for number in range(self._plan.rounds):
            going.append(self._send(self._part(number)))
            if number >= AHEAD:
                arrived.append(going[number - AHEAD][1].wait())
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
        answers = self._serve(joined, counts)
        self._note([sent for sent, _ in going], [], [*arrived, Received(joined, arrived[0].counts)])
        if not answers:
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
        starting = [self._start_all(each) for each in back]
        for (sent, _), asked, given, transfers in zip(going, arrived, back, starting, strict=True):
            self._take_back(_Answered(sent, asked, given, transfers))

    def _part(self, number: int) -> _Parted:
        """Begin to put the rows of a piece into the order of their owners."""
        piece = self._plan.piece(self._collective.rank, number)
        parts = self._collective.size
        if parts == 1:
            columns = self._take(piece)
            return _Parted(piece, columns, None, lambda: np.array([0, len(columns[0])]))
        with self._side.use():
            columns = self._take(piece)
            if len(columns[0]) == 0:
                return _Parted(piece, columns, None, lambda: np.zeros(parts + 1))
            keys, *values = columns
            narrow = len(values) == 1 and values[0].ndim == 1
            numbered = self._numbered or (bool(values) and not narrow)
            moved, starts = self._backend.split(
                keys, values[0] if narrow else None,
                parts=parts, seed=OWNER_SEED, numbered=numbered,
            )  # fmt: skip
            beside = [moved.values] if narrow else [column[moved.numbers] for column in values]
            fetched = self._side.fetch(starts)
        return _Parted(piece, [moved.keys, *beside], moved.numbers, fetched)

    def _send(self, parted: _Parted) -> tuple[Sent, Transfer]:
        counts = np.diff(parted.starts().astype(np.int64))
        sent = Sent(parted.piece, parted.columns, parted.numbers, counts)
        with self._side.use():
            return sent, self._start(sent.columns, counts)

    def _start_all(self, answers: Sequence[Answer]) -> list[Transfer]:
        return [self._start(answer.columns, answer.counts) for answer in answers]

    def _start(self, columns: list[Any], counts: np.ndarray) -> Transfer:
        if self._collective.size == 1:
            return _Stayed(columns, counts)
        return self._collective.start(columns, counts)

    def _take_back(self, answered: _Answered) -> None:
        came = [transfer.wait() for transfer in answered.transfers]
        self._note([], [answered], came)
        self._deliver(answered.sent, [Answer(each.columns, each.counts) for each in came])
        self._side.follow()

    def _segments(self, arrived: Sequence[Received]) -> list[_Segment]:
        """The rows that came, cut by round and rank."""
        segments = []
        for number, received in enumerate(arrived):
            ends = np.cumsum(received.counts).tolist()
            for source, (count, end) in enumerate(zip(received.counts.tolist(), ends, strict=True)):
                piece = self._plan.piece(source, number)
                if piece is not None and count:
                    segments.append(_Segment(number, source, piece.first, end - count, end))
        return segments

    def _note(
        self, sent: Sequence[Sent], coming: Iterable[_Answered], came: Sequence[Received]
    ) -> None:
        """What is held besides the arguments, the table, and the answers of the whole verb."""
        coming = list(coming)
        pieces = [*sent, *(answered.sent for answered in coming)]
        arrays = [array for each in pieces for array in [*each.columns, each.numbers]]
        arrays += [
            array for answered in coming for answer in answered.answers for array in answer.columns
        ]
        came = [*came, *(answered.asked for answered in coming)]
        arrays += [array for received in came for array in received.columns]
        held = {id(array): array.nbytes for array in arrays if array is not None}
        self.peak_nbytes = max(self.peak_nbytes, sum(held.values()))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows of one round from one rank; `first` is where their piece begins among all rows."""

    round: int
    source: int
    first: int
    start: int
    stop: int

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


class _Stayed(Transfer):
    """Rows of a group of one rank, which are where they belong."""

    def __init__(self, columns: list[Any], counts: np.ndarray) -> None:
        self._received = Received(columns, counts)

    def wait(self) -> Received:
        return self._received


def _cut(backend: Backend, column: Any, parts: Sequence[slice]) -> Any:
    """The rows of all parts, one after the other."""
    if not parts:
        return column[:0]
    if all(before.stop == after.start for before, after in itertools.pairwise(parts)):
        return column[parts[0].start : parts[-1].stop]
    return backend.xp.concatenate([column[part] for part in parts])
