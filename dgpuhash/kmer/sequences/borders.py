"""Divide files by record number, for reading mates in two files together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from dgpuhash.kmer.sequences.files import byte_opener
from dgpuhash.kmer.sequences.ranges import TextRange, blocks_from, chunks_from

_LINE_END, _HEADER = ord("\n"), ord(">")
# Borders are counted in ends of lines, or in those before a header: so many are a record.
_OF_A_RECORD = {"@": 4, ">": 1}


class Cut(NamedTuple):
    """Consecutive records of a file.

    Attributes
    ----------
    file : str
    kind : str
        As that of `TextRange`.
    first : int
        A byte of text at or before the first record.
    block : int or None
        As that of `TextRange`.
    skipped : int
        Borders from there to the first record.
    borders : int
        Those from the first record to behind the last one; below 0 the file ends there.
    records : int
    """

    file: str
    kind: str
    first: int
    block: int | None
    skipped: int
    borders: int
    records: int


class CountedText(NamedTuple):
    """Pieces of a range, with the number of record borders in each.

    Attributes
    ----------
    firsts : list of int
        The byte of text at which each begins.
    blocks : list of int or None
        Where the block of BGZF begins that it begins with.
    borders : list of int
    begins_with_header, ends_a_line : bool
        Whether a border lies between this range and one before, or behind.
    """

    firsts: list[int]
    blocks: list[int | None]
    borders: list[int]
    begins_with_header: bool
    ends_a_line: bool


def count_borders(part: TextRange, nbytes: int) -> CountedText:
    """Return the number of record borders in pieces of about a given size of a range."""
    found = CountedText([], [], [], False, True)
    begins, ends = False, False
    for first, block, text in _pieces_of(part, nbytes):
        if not found.firsts:
            begins = text.startswith(b">")
        elif part.kind == ">" and ends and text.startswith(b">"):
            found.borders[-1] += 1
        found.firsts.append(first)
        found.blocks.append(block)
        found.borders.append(_n_borders(text, part.kind))
        ends = text.endswith(b"\n")
    return found._replace(begins_with_header=begins, ends_a_line=ends)


def _pieces_of(part: TextRange, nbytes: int) -> Iterator[tuple[int, int | None, bytes]]:
    with byte_opener(part.file) as stream:
        if part.block is None:
            at = part.first
            stream.seek(at)
            while text := stream.read(nbytes if part.last < 0 else min(nbytes, part.last - at)):
                yield at, None, text
                at += len(text)
            return
        stream.seek(part.block)
        at = begun = part.first
        held: list[bytes] = []
        block = part.block
        for place, text in chain.from_iterable(blocks_from(part.file, stream)):
            if at - begun >= nbytes or at == part.last:
                yield begun, block, b"".join(held)
                held, begun, block = [], at, place
            if at == part.last:
                return
            held.append(text)
            at += len(text)
        yield begun, block, b"".join(held)


def _n_borders(text: bytes, kind: str) -> int:
    return int(np.count_nonzero(_are_borders(text, kind)))


def _behind(text: bytes, kind: str, n: int) -> int:
    """Return the offset in text behind its n-th border."""
    return int(np.flatnonzero(_are_borders(text, kind))[n - 1]) + 1


def _are_borders(text: bytes, kind: str) -> np.ndarray:
    letters = np.frombuffer(text, np.uint8)
    is_border = letters == _LINE_END
    return is_border[:-1] & (letters[1:] == _HEADER) if kind == ">" else is_border


class Borders:
    """Record borders of a file, as far as counted.

    Parameters
    ----------
    file, kind : str
        As those of its ranges.
    """

    def __init__(self, file: str, kind: str) -> None:
        self._file, self._kind = file, kind
        self._of_one = _OF_A_RECORD[kind]
        self._firsts: list[int] = []
        self._blocks: list[int | None] = []
        # Borders before each piece, and before what follows.
        self._before = [0]
        self._ends_a_line = False
        self.is_whole: bool = False

    def add(self, text: CountedText, *, is_last: bool) -> None:
        """Add the borders of the next range."""
        if self._kind == ">" and self._ends_a_line and text.begins_with_header:
            self._before[-1] += 1
        self._firsts += text.firsts
        self._blocks += text.blocks
        for borders in text.borders:
            self._before.append(self._before[-1] + borders)
        self._ends_a_line = text.ends_a_line
        if is_last:
            # A record of FASTA more than borders, or a last line without an end.
            self._before[-1] += self._kind == ">" or not self._ends_a_line
            self.is_whole = True

    @property
    def records(self) -> int:
        """Number of records in the counted part."""
        return self._before[-1] // self._of_one

    @property
    def records_when_whole(self) -> int | None:
        """Number of records of the file; None until all are counted."""
        return self.records if self.is_whole else None

    def place(self, record: int) -> int:
        """Return the file offset of the piece in which a record begins."""
        at = self._piece(record)
        block = self._blocks[at]
        return self._firsts[at] if block is None else block

    def records_within(self, record: int, nbytes: int) -> int | None:
        """Return the number of records in an amount of text after one; None: count more."""
        if not self._firsts:
            return None
        wanted = self._firsts[self._piece(record)] + nbytes
        at = bisect_left(self._firsts, wanted)
        if at == len(self._firsts):
            return self.records if self.is_whole else None
        return self._before[at] // self._of_one

    def cut(self, record: int, end: int) -> Cut:
        """Return the records in a half-open range of numbers."""
        at = self._piece(record)
        is_last = self.is_whole and end >= self.records
        return Cut(
            self._file, self._kind, self._firsts[at], self._blocks[at],
            record * self._of_one - self._before[at],
            -1 if is_last else (end - record) * self._of_one,
            end - record,
        )  # fmt: skip

    def _piece(self, record: int) -> int:
        """Return the last piece that starts before a record's border."""
        return max(bisect_left(self._before, record * self._of_one, hi=len(self._firsts)) - 1, 0)


def text_of_cut(cut: Cut) -> Iterator[bytes]:
    """Yield the text of some records."""
    skipped, left = cut.skipped, cut.borders
    held = b""
    start = TextRange(cut.file, cut.first, -1, cut.block, cut.kind)
    for chunk in chain(chunks_from(start), [None]):
        text, held = held + (chunk or b""), b""
        if chunk is not None and cut.kind == ">" and text.endswith(b"\n"):
            # What follows tells whether it is a border.
            text, held = text[:-1], b"\n"
        borders = _n_borders(text, cut.kind) if skipped or left >= 0 else 0
        if borders < skipped:
            skipped -= borders
            continue
        if skipped:
            text = text[_behind(text, cut.kind, skipped) :]
            borders, skipped = borders - skipped, 0
        if 0 <= left <= borders:
            yield text[: _behind(text, cut.kind, left)]
            return
        left -= borders if left > 0 else 0
        yield text
