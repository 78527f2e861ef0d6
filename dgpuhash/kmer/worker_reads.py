"""Read files of reads on Dask workers, in batches and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from distributed import Future

from dgpuhash.errors import IndexLost, SequenceError
from dgpuhash.kmer.cluster import Workers, seen_by_workers
from dgpuhash.kmer.sequences.borders import Borders, count_borders
from dgpuhash.kmer.sequences.reads import (
    COUNTED_NBYTES,
    PIECE_NBYTES,
    FilePlan,
    OpenReads,
    ReadFiles,
    ReadReads,
    plan_ranges,
    read_cut,
    read_next,
    read_range,
    sizes_of,
)

_ATTEMPTS = 4
# Of what a task reads: arrays for calls, and what the client has of them.
_BATCH = 2
_MOST_LETTERS_OF_BYTE = 3

Begin = Callable[[int, Future], Future]


def unseen_file(workers: Workers, files: list[str]) -> str:
    """Return a file that some worker sees differently; nothing if there is none."""
    named = list(map(seen_by_workers, files))
    here = sizes_of(named)
    tasks = [workers.submit(sizes_of, named, near=address) for address in workers.addresses]
    for there in workers.results(tasks):
        for file, size, other in zip(files, here, there, strict=True):
            if size != other:
                return file
    return ""


def borders_of(workers: Workers, files: list[str]) -> list[Borders | None]:
    """Return the record borders of FASTA files; None for undivided ones."""
    named = list(map(seen_by_workers, files))
    plans: list[FilePlan] = workers.results(
        [workers.submit(plan_ranges, file, COUNTED_NBYTES, True) for file in named]
    )
    tasks = [
        [workers.submit(count_borders, part, PIECE_NBYTES) for part in plan.ranges]
        if plan.ranges[0].kind == ">"
        else []
        for plan in plans
    ]
    found: list[Borders | None] = []
    for file, ranges in zip(named, tasks, strict=True):
        borders = Borders(file, ">") if ranges else None
        for number, text in enumerate(workers.results(ranges), 1):
            assert borders is not None
            borders.add(text, is_last=number == len(ranges))
        found.append(borders)
    return found


@dataclass(slots=True)
class _Batch:
    """Batch of reads for a task to read.

    Attributes
    ----------
    file : int
        The number of its file, or of the two of mates.
    read : callable, optional
        Given a worker's address it returns tasks: arrays for calls, and the client's part.
    ends_at : int or None
        Bytes of the files up to its end; None: the task tells.
    is_numbered : bool
        Whether reads have their numbers in the file, and not in the batch.
    error : Exception, optional
        What became of it instead.
    """

    file: int
    read: Callable[[str | None], list[Future]] | None = None
    ends_at: int | None = None
    is_numbered: bool = True
    error: Exception | None = None


class ReadsOnWorkers:
    """Reads of files in batches that workers read, in the order of the files.

    Plain files and those of BGZF are read in ranges, by all workers: single reads as many as begin
    in a range of bytes, pairs as many as begin in one of both files, after their records were
    counted. Other files are read by one worker each, batch by batch. So is the rest of a file
    where something is wrong: then records and lines of an error are those of the file.

    Parameters
    ----------
    workers : Workers
    files : ReadFiles
        Names are those that this process has.
    kept : {"sizes", "names", "letters"}
        What of reads comes here.
    consumed : callable, optional
        Is told how many bytes of files were read.
    """

    def __init__(
        self,
        workers: Workers,
        files: ReadFiles,
        kept: str,
        consumed: Callable[[int], object] | None = None,
    ) -> None:
        self._workers, self._kept, self._consumed = workers, kept, consumed
        mates = None if files.mates is None else tuple(map(seen_by_workers, files.mates))
        self._files = replace(files, files=tuple(map(seen_by_workers, files.files)), mates=mates)
        self._sides = self._files.sides
        # Files that one worker reads, since a range was wrong.
        self._in_turn: set[int] = set()
        self._told = (0, 0)
        # Numbers of the ranges that are counted, of all files: each worker has as many.
        self._counting = count()

    def asked(self, begin: Begin) -> Iterator[tuple[ReadReads, Any]]:
        """Yield the client's part of each batch, and the result of its task from `begin`.

        Parameters
        ----------
        begin : callable
            Is given the number of a batch, and its arrays as a future.
        """
        place: tuple[int, int] | None = (0, 0)
        while place is not None:
            place = yield from self._asked_from(place, begin)

    def _asked_from(
        self, place: tuple[int, int], begin: Begin
    ) -> Generator[tuple[ReadReads, Any], None, tuple[int, int] | None]:
        """Yield batches from a file and read number on; return where to continue."""
        file, done = place

        def begun(number: int, item: _Batch) -> list[Future]:
            if item.read is None:
                return []
            batch, told = item.read(self._workers.near(number))
            return [told, begin(number, batch)]

        for item, take in self._workers.in_order(self._batches(file, done), begun):
            if item.file != file:
                file, done = item.file, 0
            try:
                if item.error is not None:
                    raise item.error
                told, found = take()
            except SequenceError:
                if file in self._in_turn:
                    raise
                self._in_turn.add(file)
                return file, done
            self._tell(file, told.consumed if item.ends_at is None else item.ends_at)
            if told.reads is None:
                continue
            if not item.is_numbered:
                numbers = told.reads.numbers + done
                told = replace(told, reads=replace(told.reads, numbers=numbers))
            done += len(told)
            yield told, found
        return None

    def _tell(self, file: int, nbytes: int) -> None:
        if self._consumed is not None:
            before = self._told[1] if self._told[0] == file else 0
            self._consumed(max(nbytes - before, 0))
            self._told = file, max(nbytes, before)

    def _batches(self, file: int, done: int) -> Iterator[_Batch]:
        """Yield the batches of files, starting at a file and a read.

        The next files, as many as there are workers, are begun meanwhile, and as many are planned:
        workers are busy for long, and look at them between two tasks.
        """
        n = len(self._workers.addresses)
        numbers = iter(range(file, len(self._sides)))
        planned_files: deque[tuple[int, list[Future]]] = deque()
        begun: deque[Iterator[_Batch]] = deque()

        def plan() -> None:
            for number in islice(numbers, n - len(planned_files)):
                planned_files.append((number, self._plans_of(number)))

        plan()
        while planned_files or begun:
            while planned_files and len(begun) < n:
                number, plans = planned_files.popleft()
                begun.append(self._begun(number, plans, done if number == file else 0))
            plan()
            yield from begun.popleft()

    def _begun(self, number: int, plans: list[Future], start: int) -> Iterator[_Batch]:
        """Prepare a file for reading; return its batches."""
        try:
            found: list[FilePlan] = self._workers.results(plans)
        except (SequenceError, OSError) as error:
            return iter([_Batch(number, error=error)])
        if number in self._in_turn or not all(each.ranges[0].kind for each in found):
            return _Following(self, number, start, found).batches()
        if self._files.is_paired:
            sides = [_Counting(self._workers, each, self._counting) for each in found]
            return self._pairs_of(number, sides)
        return self._ranges_of(number, found[0])

    def _plans_of(self, number: int) -> list[Future]:
        letters, paired = self._files.batch_letters, self._files.is_paired
        return [
            self._workers.submit(plan_ranges, name, letters, paired, first=True)
            for name in self._sides[number]
        ]

    def _ranges_of(self, number: int, plan: FilePlan) -> Iterator[_Batch]:
        workers = self._workers
        ends = [part.first if part.block is None else part.block for part in plan.ranges[1:]]
        for part, end in zip(plan.ranges, [*ends, plan.nbytes], strict=True):

            def read(near: str | None, part: Any = part) -> list[Future]:
                task = workers.submit(read_range, part, self._files, self._kept, near=near)
                return workers.split(task, _BATCH, near=near)

            yield _Batch(number, read, end, is_numbered=False)

    def _pairs_of(self, number: int, sides: list[_Counting]) -> Iterator[_Batch]:
        """Yield batches with equally many records of each file; raise if one has more."""
        workers = self._workers
        each = 2 if self._files.interleaved else 1
        start = 0
        while True:
            try:
                ends = [side.records_from(start * each, each) for side in sides]
            except (SequenceError, OSError) as error:
                yield _Batch(number, error=error)
                return
            if max(ends) == start * each:
                return
            end = min(ends) // each
            if end == start:
                yield _Batch(number, error=SequenceError("a read has no mate"))
                return
            cuts = [side.borders.cut(start * each, end * each) for side in sides]

            def read(near: str | None, cuts: Any = cuts, start: int = start) -> list[Future]:
                task = workers.submit(read_cut, cuts, start, self._files, self._kept, near=near)
                return workers.split(task, _BATCH, near=near)

            yield _Batch(number, read, sum(side.bytes_to(end * each) for side in sides))
            start = end


class _Counting:
    """File whose records are counted a few ranges ahead."""

    def __init__(self, workers: Workers, plan: FilePlan, numbers: Iterator[int]) -> None:
        self._workers, self._plan, self._numbers = workers, plan, numbers
        self.borders = Borders(plan.ranges[0].file, plan.ranges[0].kind)
        self._left = deque(plan.ranges)
        self._running: deque[Future] = deque()
        self._begin()

    def records_from(self, record: int, least: int) -> int:
        """Return the number of records in a batch's amount of text after one, or to the end."""
        nbytes = self._plan.text_nbytes
        while True:
            found = self.borders.records_within(record, nbytes)
            if found is None:
                self._count()
            elif found >= record + least or found == self.borders.records_when_whole:
                return found
            else:
                nbytes *= 2

    def _begin(self) -> None:
        """Start counting some ranges, one more than there are workers."""
        workers = self._workers
        piece = min(PIECE_NBYTES, self._plan.text_nbytes)
        while self._left and len(self._running) <= len(workers.addresses):
            part = self._left.popleft()
            near = workers.near(next(self._numbers))
            self._running.append(workers.submit(count_borders, part, piece, near=near, first=True))

    def _count(self) -> None:
        self._begin()
        text = self._workers.result(self._running.popleft())
        self.borders.add(text, is_last=not (self._running or self._left))

    def bytes_to(self, record: int) -> int:
        """Return the bytes of the file up to about a record."""
        if record == self.borders.records_when_whole:
            return self._plan.nbytes
        return self.borders.place(record)


class _Following:
    """Batches of a file, or of two of mates, read in order by one worker."""

    def __init__(
        self, reads: ReadsOnWorkers, file: int, start: int, plans: Sequence[FilePlan]
    ) -> None:
        self._workers, self._reads = reads._workers, reads
        self._file, self._start = file, start
        self._reader: Future | None = None
        self._tries = 0
        # Reads that are under way: arrays of a batch, the client's part of it, and where it ends.
        self._running: deque[list[Future]] = deque()
        # The worker goes on while it waits for what it has read to be told. Of small files it need
        # not: text is compressed to a fifth of it, and letters are half of that.
        letters = max(plan.nbytes for plan in plans) * _MOST_LETTERS_OF_BYTE
        self._most = min(1 + letters // reads._files.batch_letters, len(reads._workers.addresses))
        self._fill(start)

    def _fill(self, start: int) -> None:
        """Start reads; the first one at a read's number."""
        while len(self._running) <= self._most:
            begin = self._running[-1][_BATCH] if self._running else start
            self._running.append(self._read(begin))

    def _read(self, start: int | Future) -> list[Future]:
        reads, workers = self._reads, self._workers
        near = workers.near(self._file + self._tries)
        if self._reader is None:
            names = reads._sides[self._file]
            self._reader = workers.submit(OpenReads, names, reads._files, near=near)
        task = workers.submit(
            read_next, self._reader, start, reads._files, reads._kept, near=near, first=True
        )
        return workers.split(task, _BATCH + 1, near=near)

    def _read_anew(self, start: int) -> list[Future]:
        self._reader = None
        self._tries += 1
        return self._read(start)

    def batches(self) -> Iterator[_Batch]:
        """Yield batches up to the end or an error."""
        start = self._start
        while True:
            try:
                end = self._end_of_first(start)
            except (SequenceError, OSError) as error:
                yield _Batch(self._file, error=error)
                return
            if end == start:
                return
            tasks = self._running.popleft()
            self._fill(end)
            yield _Batch(self._file, self._reading(tasks[:_BATCH], start))
            start = end

    def _end_of_first(self, start: int) -> int:
        for attempt in range(_ATTEMPTS):
            try:
                return int(self._workers.result(self._running[0][_BATCH]))
            except IndexLost:
                if attempt + 1 == _ATTEMPTS or not self._workers.addresses:
                    raise
                self._running.clear()
                self._running.append(self._read_anew(start))
        raise AssertionError

    def _reading(self, tasks: list[Future], start: int) -> Callable[[str | None], list[Future]]:
        made: list[list[Future]] = [tasks]

        def read(near: str | None) -> list[Future]:
            return made.pop() if made else self._read_anew(start)[:_BATCH]

        return read
