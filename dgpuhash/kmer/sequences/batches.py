"""Read sequences, single or paired, in batches of letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any, NoReturn, TypeVar

import numpy as np

from dgpuhash.backend.native import native
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.sequences.ahead import ahead, threads_of_a_generator
from dgpuhash.kmer.sequences.arrow_arrays import spans_of
from dgpuhash.kmer.sequences.files import Paths, files_of, text_of
from dgpuhash.kmer.sequences.mates import check_mates

BATCH_LETTERS = 2**23
# Of FASTQ: a quality is its letter's number less this.
QUALITY_OFFSET = 33

Item = TypeVar("Item")

_FAULTS = {
    "no_header": "there is a line of neither FASTA nor FASTQ, whose records begin with '>' or '@'; "
    "pass a file of sequences",
    "mixed": "a record of the other format, FASTA or FASTQ, follows; give each format files of "
    "its own",
    "control_byte": "there are bytes of no text; copy the file again, or pass its text",
    "protein": "the letters are those of a protein; pass nucleotides",
    "no_sequence": "the line of letters is missing; write an empty one for an empty read",
    "no_plus": "the line that begins with '+' is missing behind the letters; FASTQ has four "
    "lines a record, so join lines that were wrapped",
    "short_quality": "its quality is shorter than its sequence; copy the file again",
    "long_quality": "its quality is longer than its sequence; copy the file again",
    "truncated": "the file ends within it; copy the file again",
}


@dataclass(slots=True)
class SequenceBatch:
    """Consecutive records of one file, or pieces of long ones.

    Attributes
    ----------
    file : str
        Its name.
    letters : array of uint8
        As they are in the file, of all records.
    offsets : array of int64
        ``n + 1`` positions: record i has ``letters[offsets[i]:offsets[i + 1]]``.
    qualities : array of uint8 or None
        The quality of each letter as FASTQ writes it; None of FASTA.
    names : array of uint8
        The header lines without their first letter.
    name_offsets : array of int64
        Where they begin, and the last one's end.
    numbers : array of int64
        Each record's number in its file, from 0; pieces of one record share it.
    starts : array of int64
        Where a piece begins in its record; 0 of whole records.
    is_cut : bool
        Whether the last record goes on in the next batch.
    continues : bool
        Whether the first piece goes on with the last record of the batch before.
    repeated : int
        Letters that both have.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fastq = pathlib.Path(tempfile.mkdtemp(), "one.fq")
    >>> _ = fastq.write_text("@r\\nACGT\\n+\\nII#I\\n")
    >>> (batch,) = read_sequences(fastq)
    >>> len(batch), batch.masked(20).tobytes()
    (1, b'ACNT')
    """

    file: str
    letters: np.ndarray
    offsets: np.ndarray
    qualities: np.ndarray | None
    names: np.ndarray
    name_offsets: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    is_cut: bool = False
    continues: bool = False
    repeated: int = 0

    def __len__(self) -> int:
        return len(self.numbers)

    def masked(self, min_quality: int) -> np.ndarray:
        """Return the letters, with N for qualities below `min_quality`."""
        if self.qualities is None or min_quality <= 0:
            return self.letters
        low = self.qualities < min_quality + QUALITY_OFFSET
        return np.where(low, np.uint8(ord("N")), self.letters)

    def sequence(self, row: int) -> bytes:
        """Return the letters of one record."""
        return self.letters[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def name(self, row: int) -> str:
        """Return the header of one record without its first letter."""
        span = self.names[self.name_offsets[row] : self.name_offsets[row + 1]]
        return span.tobytes().decode(errors="replace")


def read_sequences(
    paths: Paths,
    *,
    overlap: int | None = None,
    stride: int = 1,
    batch_letters: int = BATCH_LETTERS,
    consumed: Callable[[int], object] | None = None,
    summed: Callable[[str], object] | None = None,
) -> Iterator[SequenceBatch]:
    """Yield the records of files in batches of about `batch_letters`, in order.

    FASTA and FASTQ, plain or compressed by gzip (BGZF, several members), bzip2, xz or zstd, as
    the files' content says. Batches of one file have records of that file only. The next batch is
    read and parsed, on a thread without the GIL, while the caller has the one before.

    Parameters
    ----------
    paths : path, glob, folder, URL, "-" or several of them
    overlap : int, optional
        Cut records of FASTA that are longer than a batch, and let pieces begin with so many
        letters of the one before: k - 1 of them, and no k-mer is lost or comes twice. None:
        records are whole.
    stride : int
        Let pieces begin at its multiples, with up to `overlap` letters of the one before: every
        window of ``overlap + 1`` letters that begins at a multiple is in one piece.
    batch_letters : int
        When a batch is complete.
    consumed : callable, optional
        Is told, on that thread, how many bytes of files were read.
    summed : callable, optional
        Is told, on that thread, the SHA-256 sum of each file's bytes, in order.

    Raises
    ------
    SequenceError
        When a file is not sequences, is damaged or is cut short; with file, record and line.
    FileNotFoundError, OSError
        When a file is not there, or cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "two.fa")
    >>> _ = fasta.write_text(">first one\\nACGT\\nAC\\n>second\\nGG\\n")
    >>> (batch,) = read_sequences(fasta)
    >>> batch.name(0), batch.sequence(0), batch.offsets.tolist()
    ('first one', b'ACGTAC', [0, 6, 8])
    """
    files = files_of(paths)
    # Ctrl-C is lost in an import that another thread waits for.
    native()
    yield from ahead(
        batch
        for file in files
        for batch in _batches_of(
            _Input(file, overlap, stride, text=text_of(file, consumed, summed)), batch_letters
        )
    )


def read_pairs(
    paths: Paths,
    mates: Paths | None = None,
    *,
    interleaved: bool = False,
    name_check: bool = True,
    batch_letters: int = BATCH_LETTERS,
    consumed: Callable[[int], object] | None = None,
) -> Iterator[tuple[SequenceBatch, SequenceBatch]]:
    """Yield batches of first mates and batches of second mates, in step.

    Parameters
    ----------
    paths : paths, as those of `read_sequences`
        Files of first mates, or of both.
    mates : paths, optional
        As many files of second mates.
    interleaved : bool
        Whether `paths` has both, mates one after the other.
    name_check : bool
        Whether names of mates are compared. The number of the mate may be in any form of machines
        and archives: ``/1``, ``_1``, ``.1``, ``_R1``, ``1:N:0`` behind a blank. Mates in the wrong
        order, and one file for both, are a UserWarning.
    batch_letters : int
        When a batch is complete.
    consumed : callable, optional
        As for `read_sequences`.

    Raises
    ------
    SequenceError
        When files have unequal numbers of records, or names of mates differ beside the number of
        the mate and what follows a blank; and as `read_sequences`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fastq = pathlib.Path(tempfile.mkdtemp(), "pairs.fq")
    >>> _ = fastq.write_text("@a/1\\nAC\\n+\\nII\\n@a/2\\nGTT\\n+\\nIII\\n")
    >>> ((first, second),) = read_pairs(fastq, interleaved=True)
    >>> first.sequence(0), second.sequence(0)
    (b'AC', b'GTT')
    """
    if interleaved == (mates is not None):
        raise SpecError("pairs are in two files, or interleaved in one; pass one of the two")
    native()
    if interleaved:
        yield from ahead(
            pair
            for file in files_of(paths)
            for pair in _split_pairs(_Input(file, consumed=consumed), batch_letters, name_check)
        )
        return
    assert mates is not None
    firsts, seconds = files_of(paths), files_of(mates)
    if len(firsts) != len(seconds):
        raise SequenceError(
            f"{len(firsts)} files of first and {len(seconds)} of second mates; give each file "
            f"the file of its mates"
        )
    lock = Lock()

    def tell(nbytes: int) -> None:
        if consumed is not None:
            with lock:
                consumed(nbytes)

    yield from ahead(
        pair
        for first, second in zip(firsts, seconds, strict=True)
        for pair in _pairs(
            _Input(first, consumed=tell), _Input(second, consumed=tell), batch_letters, name_check
        )
    )


def warn_of_order(files: Sequence[str], mates: Sequence[str] | None) -> None:
    """Warn if the files of the first pair, or interleaved mates, are in the wrong order."""
    for number, file in enumerate(files):
        with suppress(SequenceError, OSError):
            # Who reads the files tells what else is wrong.
            second = None if mates is None else mates[number]
            next(read_pairs(file, second, interleaved=mates is None, batch_letters=1), None)


class _Input:
    """Incrementally parsed file."""

    def __init__(
        self,
        name: str,
        overlap: int | None = None,
        stride: int = 1,
        consumed: Callable[[int], object] | None = None,
        text: Iterator[bytes] | None = None,
    ) -> None:
        self.name = name
        self._parser = native().SequenceParser(-1 if overlap is None else overlap, stride)
        self._cuts, self._overlap = overlap is not None, overlap or 0
        self._text = text_of(name, consumed) if text is None else text
        self.is_read = False

    @property
    def records(self) -> int:
        """Number of complete parsed records not yet taken."""
        return int(self._parser.records)

    @property
    def _has_some(self) -> bool:
        """Whether records can be taken, or a piece of a long FASTA record."""
        return bool(self._parser.records) or (self._cuts and self._parser.format == ">")

    def read_to(self, letters: int) -> None:
        """Parse until a number of letters can be taken, or the file ends."""
        parser = self._parser
        # Those that a piece shares with the one before are there from the start.
        wanted = max(letters, 1) + self._overlap
        while not self.is_read and (parser.letters < wanted or not self._has_some):
            text = next(self._text, None)
            self.is_read = text is None
            parser.feed(text or b"", self.is_read)
            if parser.error is not None:
                self._fail(*parser.error)
        if self.is_read and not parser.format:
            raise SequenceError(f"{self.name} has no sequences; leave it out, or copy it again")

    def take(self, most: int = -1) -> SequenceBatch:
        """Return the first `most` complete records; all if negative."""
        letters, offsets, qualities, *rest = self._parser.take(most)
        is_fastq = self._parser.format == "@"
        return SequenceBatch(self.name, letters, offsets, qualities if is_fastq else None, *rest)

    def _fail(self, fault: str, record: int, line: int, detail: str) -> NoReturn:
        place = f"record {record:,}, line {line:,}" if record else f"line {line:,}"
        said = f" ({detail})" if detail else ""
        raise SequenceError(f"{self.name}, {place}: {_FAULTS[fault]}{said}")


def batches_of_text(
    name: str, text: Iterator[bytes], overlap: int | None, batch_letters: int, stride: int = 1
) -> Iterator[SequenceBatch]:
    """Yield the records of a file's text; none for empty text.

    Raises
    ------
    SequenceError
        As `read_sequences`.
    """
    first = next((each for each in text if each), None)
    if first is not None:
        file = _Input(name, overlap, stride, text=chain([first], text))
        yield from ahead(_batches_of(file, batch_letters))


def _batches_of(file: _Input, letters: int) -> Iterator[SequenceBatch]:
    number, end = -1, 0
    while not file.is_read:
        file.read_to(letters)
        batch = file.take()
        if not len(batch):
            continue
        if batch.numbers[0] == number:
            batch.continues, batch.repeated = True, end - int(batch.starts[0])
        number = int(batch.numbers[-1])
        end = int(batch.starts[-1] + batch.offsets[-1] - batch.offsets[-2])
        yield batch


def _pairs(
    first: _Input, second: _Input, letters: int, name_check: bool
) -> Iterator[tuple[SequenceBatch, SequenceBatch]]:
    done = 0
    with threads_of_a_generator(1, "dgpuhash-mates") as thread:
        while True:
            # Parsing releases the GIL. Of two errors that of the first mates is told.
            mates = thread.submit(second.read_to, letters)
            first.read_to(letters)
            mates.result()
            n = min(first.records, second.records)
            if n == 0:
                break
            pair = first.take(n), second.take(n)
            if name_check:
                check_mates(*pair, done)
            done += n
            yield pair
    left = first if first.records else second
    if left.records:
        raise SequenceError(
            f"{first.name} and {second.name} have unequal numbers of records: record "
            f"{done + 1:,} of {left.name}, {left.take(1).name(0)!r}, has no mate; give both files "
            "the same reads"
        )


def _split_pairs(
    file: _Input, letters: int, name_check: bool
) -> Iterator[tuple[SequenceBatch, SequenceBatch]]:
    done = 0
    while True:
        file.read_to(letters)
        while not file.is_read and file.records < 2:
            letters *= 2
            file.read_to(letters)
        n = file.records // 2
        if n == 0:
            break
        batch = file.take(2 * n)
        pair = every_other(batch, 0), every_other(batch, 1)
        if name_check:
            check_mates(*pair, done)
        done += n
        yield pair
    if file.records:
        raise SequenceError(
            f"{file.name} has an odd number of records: record {2 * done + 1:,}, "
            f"{file.take(1).name(0)!r}, has no mate; pass mates one after the other"
        )


def every_other(batch: SequenceBatch, first: int) -> SequenceBatch:
    """Return every second record, from `first` on."""
    chosen = slice(first, None, 2)
    letters, offsets = _spans(batch.letters, batch.offsets, chosen)
    names, name_offsets = _spans(batch.names, batch.name_offsets, chosen)
    qualities = batch.qualities
    if qualities is not None:
        qualities, _ = _spans(qualities, batch.offsets, chosen)
    return SequenceBatch(
        batch.file, letters, offsets, qualities, names, name_offsets,
        batch.numbers[chosen], batch.starts[chosen],
    )  # fmt: skip


def _spans(items: np.ndarray, offsets: np.ndarray, chosen: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated selected spans, and their new offsets."""
    sizes = np.diff(offsets)
    is_chosen = np.zeros(len(sizes), bool)
    is_chosen[chosen] = True
    return items[np.repeat(is_chosen, sizes)], np.append(0, np.cumsum(sizes[chosen]))


_BLANK = ord(" ")
_SLASH, _ONE, _TWO = b"/12"


def ids_of(batch: SequenceBatch, *, paired: bool = False) -> Any:
    """Return the id of each record as an Arrow array of bytes.

    Parameters
    ----------
    batch : SequenceBatch
    paired : bool
        Whether ``/1`` and ``/2`` at the end are left out.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dgpuhash.kmer import read_sequences
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "two.fa")
    >>> _ = fasta.write_text(">first/1 of two\\nACGT\\n>second\\nGG\\n")
    >>> (batch,) = read_sequences(fasta)
    >>> ids_of(batch, paired=True).to_pylist()
    [b'first', b'second']
    """
    names, starts, ends = batch.names, batch.name_offsets[:-1], batch.name_offsets[1:]
    is_blank = names <= _BLANK
    if len(names) and is_blank[np.minimum(starts, len(names) - 1)].any():
        # Blanks before an id are no part of it.
        starts = np.minimum(_first(~is_blank, starts), ends)
    ends = np.minimum(_first(is_blank, starts), ends)
    if paired and len(names):
        last = names[np.maximum(ends - 1, 0)]
        is_marked = (ends - starts > 2) & (names[np.maximum(ends - 2, 0)] == _SLASH)
        ends = ends - 2 * (is_marked & ((last == _ONE) | (last == _TWO)))
    return spans_of(names, starts, ends)


def _first(is_one: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the first true position at or after each start; the end if there is none."""
    places = np.append(np.flatnonzero(is_one), len(is_one))
    return places[np.searchsorted(places[:-1], starts)]
