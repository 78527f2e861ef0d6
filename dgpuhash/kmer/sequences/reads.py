"""Read files as tasks do: by range, by record number, or sequentially."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import SequenceError
from dgpuhash.kmer.sequences.batches import (
    SequenceBatch,
    batches_of_text,
    every_other,
    read_pairs,
    read_sequences,
)
from dgpuhash.kmer.sequences.borders import Cut, text_of_cut
from dgpuhash.kmer.sequences.files import byte_opener
from dgpuhash.kmer.sequences.mates import check_mates
from dgpuhash.kmer.sequences.ranges import TextRange, ranges_of, text_of_range

# What of a batch goes to the client beside its calls, from least to most.
KEPT = ("sizes", "names", "letters")
# Text that a task counts records in, and pieces of it.
COUNTED_NBYTES = 2**25
PIECE_NBYTES = 2**20
_ALL_LETTERS = 2**62


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Files of reads, and the options for reading them.

    Attributes
    ----------
    files : tuple of str
        Of single reads, of first mates, or of both.
    mates : tuple of str or None
        As many of second mates.
    interleaved : bool
        Whether `files` have mates one after the other.
    batch_letters : int
        Of each file, at a time.
    with_qualities : bool
        Whether calls need qualities.
    name_check : bool
        Whether names of mates are compared.
    """

    files: tuple[str, ...]
    mates: tuple[str, ...] | None
    interleaved: bool
    batch_letters: int
    with_qualities: bool = False
    name_check: bool = True

    @property
    def is_paired(self) -> bool:
        """Whether reads have mates."""
        return self.interleaved or self.mates is not None

    @property
    def sides(self) -> list[tuple[str, ...]]:
        """The single file, or the two files of mates, to read together."""
        if self.mates is None:
            return [(file,) for file in self.files]
        return list(zip(self.files, self.mates, strict=True))


@dataclass(frozen=True, slots=True)
class ReadReads:
    """Facts about a task's reads that the client requested.

    Attributes
    ----------
    reads, mates : SequenceBatch or None
        None when there are no reads, or they are single.
    consumed : int
        Bytes of the files that were read up to here, of a reader that goes from their beginning.
    """

    reads: SequenceBatch | None
    mates: SequenceBatch | None
    consumed: int = 0

    def __len__(self) -> int:
        return 0 if self.reads is None else len(self.reads)

    def __reduce__(self) -> Any:
        # Sizes travel, and not where each read begins, and which number it has.
        return _unpack, (_pack(self.reads), _pack(self.mates), self.consumed)


class FilePlan(NamedTuple):
    """Division of a file.

    Attributes
    ----------
    ranges : list of TextRange
        One, without a kind, of a file that one worker reads.
    nbytes : int
        Of the file.
    text_nbytes : int
        About how much text has the letters of a batch.
    """

    ranges: list[TextRange]
    nbytes: int
    text_nbytes: int


def sizes_of(files: list[str]) -> list[int | None]:
    """Return the bytes of files and URLs, None for missing ones."""
    return [_size_of(file) for file in files]


def _size_of(file: str) -> int | None:
    try:
        if "://" not in file:
            return Path(file).stat().st_size
        import fsspec

        system, inner = fsspec.core.url_to_fs(file)
        size: int | None = system.size(inner)
        return size
    except (OSError, ImportError, ValueError):
        return None


def plan_ranges(file: str, batch_letters: int, paired: bool) -> FilePlan:
    """Return ranges of a file of one batch each, or of pairs with records to count."""
    with byte_opener(file) as stream:
        nbytes = stream.seek(0, os.SEEK_END) if stream.seekable() else 0
    ranges = ranges_of(file, batch_letters, whole=True)
    # FASTQ has a quality for each letter.
    text_nbytes = batch_letters * (2 if ranges[0].kind == "@" else 1)
    wanted = max(COUNTED_NBYTES, text_nbytes) if paired else text_nbytes
    return FilePlan(_join_ranges(ranges, -(-wanted // batch_letters)), nbytes, text_nbytes)


def _join_ranges(ranges: list[TextRange], n: int) -> list[TextRange]:
    """Return ranges that join n neighbouring ones each."""
    firsts = ranges[::n]
    lasts = [each.first for each in firsts[1:]] + [-1]
    return [each._replace(last=last) for each, last in zip(firsts, lasts, strict=True)]


def batch_of_text(name: str, text: Iterator[bytes]) -> SequenceBatch | None:
    """Return the complete records of a file's text, or None for empty text.

    Raises
    ------
    SequenceError
        As `read_sequences`.
    """
    batches = list(batches_of_text(name, text, None, _ALL_LETTERS))
    return batches[0] if batches else None


def read_range(part: TextRange, files: ReadFiles, kept: str) -> list[Any]:
    """Return the batch of the reads that begin in a range, and the client's part of it."""
    return _batch_of(batch_of_text(part.file, text_of_range(part)), None, files, kept)


def read_cut(cuts: list[Cut], before: int, files: ReadFiles, kept: str) -> list[Any]:
    """Return a batch of pairs from one or two files by number, and the client's part of it.

    Raises
    ------
    SequenceError
        When there are other numbers of records, or what they are is wrong.
    """
    first_number = before * (2 if files.interleaved else 1)
    # Parsing releases the GIL.
    with ThreadPoolExecutor(len(cuts), "dgpuhash-read") as threads:
        sides = list(threads.map(partial(_side_of, first_number=first_number), cuts))
    if files.interleaved:
        sides = [every_other(sides[0], at) for at in range(2)]
    first, second = sides
    if files.name_check:
        check_mates(first, second, before)
    return _batch_of(first, second, files, kept)


def _side_of(cut: Cut, first_number: int) -> SequenceBatch:
    batch = batch_of_text(cut.file, text_of_cut(cut))
    if batch is None or len(batch) != cut.records:
        raise SequenceError(
            f"{cut.file} has lines that are not those of records; copy the file again"
        )
    batch.numbers += first_number
    return batch


class OpenReads:
    """Files that one worker reads sequentially; a task's result.

    It is open where the last batch ended, and begins anew where that is another place: after it
    was moved to another worker, or made anew.

    Parameters
    ----------
    names : tuple of str
        One file, or two of mates.
    files : ReadFiles
        How they are read.
    """

    def __init__(self, names: tuple[str, ...], files: ReadFiles) -> None:
        self._names, self._files = names, files
        self._lock = threading.Lock()
        self._at = self._consumed = 0
        self._batches: Iterator[tuple[SequenceBatch, SequenceBatch | None]] | None = None

    def __reduce__(self) -> Any:
        return OpenReads, (self._names, self._files)

    def take(self, start: int) -> tuple[SequenceBatch | None, SequenceBatch | None, int]:
        """Return the reads of a batch from number `start` on, and bytes read; None at the end."""
        with self._lock:
            if self._batches is None or self._at != start:
                self._at = self._consumed = 0
                self._batches = self._opened()
            try:
                for sides in self._batches:
                    first, second = sides
                    before, self._at = self._at, self._at + len(first)
                    if self._at <= start:
                        continue
                    if before < start:
                        first = _from_row(first, start - before)
                        second = None if second is None else _from_row(second, start - before)
                    return first, second, self._consumed
            except BaseException:
                self._batches = None
                raise
            return None, None, self._consumed

    def _opened(self) -> Iterator[tuple[SequenceBatch, SequenceBatch | None]]:
        files, (first, *mates) = self._files, self._names
        settings: Any = {"batch_letters": files.batch_letters, "consumed": self._add}
        pairing: Any = {"interleaved": files.interleaved, "name_check": files.name_check}
        if files.is_paired:
            yield from read_pairs(first, mates or None, **pairing, **settings)
            return
        for batch in read_sequences(first, **settings):
            yield batch, None

    def _add(self, nbytes: int) -> None:
        self._consumed += nbytes


def read_next(reader: OpenReads, start: int, files: ReadFiles, kept: str) -> list[Any]:
    """Return the batch from a read number on, the client's part of it, and its end.

    It has no reads at the end of the files.
    """
    first, second, consumed = reader.take(start)
    batch, told = _batch_of(first, second, files, kept, consumed)
    return [batch, told, start + len(told)]


def _batch_of(
    first: SequenceBatch | None,
    second: SequenceBatch | None,
    files: ReadFiles,
    kept: str,
    consumed: int = 0,
) -> list[Any]:
    """Return arrays for an index's `call`, with qualities, and the client's part."""
    if first is None:
        none = [np.empty(0, np.uint8), np.zeros(1, np.int64)]
        return [(none * (1 + files.is_paired), {}), ReadReads(None, None, consumed)]
    sides = [first] if second is None else [first, second]
    arrays = [array for side in sides for array in (side.letters, side.offsets)]
    beside = {}
    if files.with_qualities:
        names = ("qualities", "mate_qualities")
        beside = {name: side.qualities for name, side in zip(names, sides, strict=False)}
    # Names of mates are not written.
    mates = None if second is None else _client_part(second, kept if kept == "letters" else "sizes")
    return [(arrays, beside), ReadReads(_client_part(first, kept), mates, consumed)]


def _client_part(batch: SequenceBatch, kept: str) -> SequenceBatch:
    """Return the part of a batch for the client."""
    if kept == "letters":
        return batch
    none = np.empty(0, np.uint8)
    made = replace(batch, letters=none, qualities=None)
    if kept == "sizes":
        made = replace(made, names=none, name_offsets=np.zeros(len(batch) + 1, np.int64))
    return made


def _pack(batch: SequenceBatch | None) -> Any:
    """Return the part of a batch to send."""
    if batch is None or len(batch.letters) or batch.qualities is not None or not len(batch):
        return batch
    first, step = int(batch.numbers[0]), int(batch.numbers[1:2].sum() - batch.numbers[:1].sum())
    sizes = (np.diff(each).astype(np.uint32) for each in (batch.offsets, batch.name_offsets))
    return batch.file, *sizes, batch.names, first, step if len(batch) > 1 else 1


def _unpack(reads: Any, mates: Any, consumed: int) -> ReadReads:
    return ReadReads(_batch_unpacked(reads), _batch_unpacked(mates), consumed)


def _batch_unpacked(packed: Any) -> SequenceBatch | None:
    if packed is None or isinstance(packed, SequenceBatch):
        return packed
    file, sizes, name_sizes, names, first, step = packed
    offsets, name_offsets = (
        np.concatenate([np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)])
        for each in (sizes, name_sizes)
    )
    n = len(sizes)
    return SequenceBatch(
        file, np.empty(0, np.uint8), offsets, None, names, name_offsets,
        first + step * np.arange(n, dtype=np.int64), np.zeros(n, np.int64),
    )  # fmt: skip


def _from_row(batch: SequenceBatch, row: int) -> SequenceBatch:
    """Return a batch without its first records."""
    first, first_name = int(batch.offsets[row]), int(batch.name_offsets[row])
    qualities = batch.qualities
    return replace(
        batch,
        letters=batch.letters[first:],
        offsets=batch.offsets[row:] - first,
        qualities=None if qualities is None else qualities[first:],
        names=batch.names[first_name:],
        name_offsets=batch.name_offsets[row:] - first_name,
        numbers=batch.numbers[row:],
        starts=batch.starts[row:],
    )
