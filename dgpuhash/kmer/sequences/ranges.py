"""Divide plain and BGZF files into independently readable ranges of text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from dgpuhash.compression import compression_of, zlib
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.sequences.batches import SequenceBatch, batches_of_text
from dgpuhash.kmer.sequences.files import CHUNK_NBYTES, byte_opener, text_of

_HEAD_NBYTES = 2**16
_BLOCK_HEAD = 18
# A block's header up to its size: gzip with an extra field of 6 bytes, BC, of 2 bytes.
_BLOCK = re.compile(rb"\x1f\x8b\x08\x04.{6}\x06\0BC\x02\0", re.DOTALL)
# What a range may begin with: a line, a record of FASTA or one of FASTQ. A quality may begin with
# @, but its second line after it is letters, which never begin with +.
_STARTS = {
    "line": re.compile(rb"\n"),
    ">": re.compile(rb"\n(?=>)"),
    "@": re.compile(rb"\n(?=@[^\n]*\n[^\n]*\n\+)"),
}
# Of text without a start: bytes at its end that one may begin with.
_KEPT = {"line": 0, ">": 1}


class TextRange(NamedTuple):
    """Range of a file: some records, or some lines of FASTA.

    Attributes
    ----------
    file : str
    first, last : int
        Lines, or records of FASTQ, that begin between these bytes of text; `last` of the file's
        last range is -1.
    block : int or None
        Where the block of BGZF begins whose text begins at `first`; None of other files.
    kind : str
        ``"line"`` or ``">"`` of FASTA, whose records are cut or whole; ``"@"`` of FASTQ; ``""`` of
        a file that is not divided.
    """

    file: str
    first: int = 0
    last: int = -1
    block: int | None = None
    kind: str = ""


def ranges_of(file: str, nbytes: int, *, whole: bool = False) -> list[TextRange]:
    """Return ranges of about a given size; one range if the file cannot be divided.

    Parameters
    ----------
    file : str
        Plain text and BGZF are divided; other compressed files, and those with old line ends, not.
    nbytes : int
        Of text.
    whole : bool
        Whether records of FASTA are whole, too; those of FASTQ are.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "two.fa")
    >>> _ = fasta.write_text(">one\\nACGT\\nAC\\n>two\\nGG\\n")
    >>> ranges = ranges_of(str(fasta), 8)
    >>> [batch.letters.tobytes() for each in ranges for batch in batches_of_range(each, overlap=1)]
    [b'ACGTA', b'ACG', b'GG']
    """
    with byte_opener(file) as stream:
        if not stream.seekable():
            return [TextRange(file)]
        head = stream.read(_HEAD_NBYTES)
        kind = _kind_of(_text_of_head(head))
        if not kind:
            return [TextRange(file)]
        if whole and kind == "line":
            kind = ">"
        if _BLOCK.match(head):
            places = _blocks_of(stream)
        elif compression_of(head) is not None:
            places = []
        else:
            size = stream.seek(0, io.SEEK_END)
            places = [(first, None) for first in range(0, size, nbytes)]
    edges, begun = [], -nbytes
    for first, block in places:
        if first - begun >= nbytes:
            begun = first
            edges.append((first, block))
    if len(edges) < 2:
        return [TextRange(file)]
    lasts = [first for first, _ in edges[1:]] + [-1]
    return [
        TextRange(file, first, last, block, kind)
        for (first, block), last in zip(edges, lasts, strict=True)
    ]


def batches_of_range(
    part: TextRange, *, overlap: int, batch_letters: int = 2**23
) -> Iterator[SequenceBatch]:
    """Yield the records of a range in batches.

    A record of FASTA that began before the range `continues`, with 0 letters `repeated`; one that
    ends behind it has its first `overlap` letters of there, too, which the last batch tells as
    `repeated` ones. So every window of ``overlap + 1`` letters is in one range.

    Raises
    ------
    SequenceError
        When the text is wrong; records and lines are counted from the range's first.
    OSError
        When the file cannot be read.
    """
    if not part.kind:
        yield from batches_of_text(part.file, text_of(part.file), overlap, batch_letters)
        return
    text = _RangeText(part, overlap)
    is_first = text.continues
    held: SequenceBatch | None = None
    for batch in batches_of_text(part.file, text.chunks(), overlap, batch_letters):
        if is_first:
            batch.continues, is_first = True, False
        if held is not None:
            yield held
        held = batch
    if held is not None:
        held.repeated += text.borrowed
        yield held


def text_of_range(part: TextRange) -> Iterator[bytes]:
    """Yield the text of a range of complete records; all text of an undivided file."""
    if not part.kind:
        return text_of(part.file)
    return _RangeText(part, 0).chunks()


def _kind_of(text: bytes) -> str:
    """Return the record marker for a text with this beginning, or nothing."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    end = min(at for at in (text.find(b"\n"), text.find(b"\r"), len(text)) if at >= 0)
    if text[end : end + 1] == b"\r":
        end += 1
    if text[end : end + 1] != b"\n":
        return ""
    return {b">": "line", b"@": "@"}.get(text.lstrip(b"\n\r \t")[:1], "")


def _text_of_head(head: bytes) -> bytes:
    """Return the first text of a file with this head."""
    if not _BLOCK.match(head):
        return head
    return zlib.decompressobj(31).decompress(head)


def _blocks_of(stream: BinaryIO) -> list[tuple[int, int | None]]:
    """Return the text and byte offsets of each block of BGZF.

    None when one is wrong, or the last one is not empty: then the file is cut short.
    """
    at = text = nbytes = 0
    found: list[tuple[int, int | None]] = []
    while True:
        stream.seek(at)
        head = stream.read(_BLOCK_HEAD)
        if not head:
            return found if nbytes == 0 else []
        if not _BLOCK.match(head) or len(head) < _BLOCK_HEAD:
            return []
        found.append((text, at))
        at += int.from_bytes(head[16:18], "little") + 1
        stream.seek(at - 4)
        # Behind the end of the file is no number.
        nbytes = int.from_bytes(stream.read(4).ljust(4, b"\xff"), "little")
        text += nbytes


class _RangeText:
    """Text of a range as a stream for a parser.

    Attributes
    ----------
    continues : bool
        Whether its first record began before.
    borrowed : int
        Letters of behind its end.
    """

    def __init__(self, part: TextRange, overlap: int) -> None:
        self._part, self._overlap = part, overlap
        self._chunks = chunks_from(part)
        self._at = part.first
        self._found = _STARTS[part.kind]
        self.borrowed = 0
        self._begin = b"" if part.first == 0 else self._begun()
        is_line = part.kind == "line" and part.first > 0
        self.continues = bool(is_line and self._begin and not self._begin.startswith(b">"))

    def _begun(self) -> bytes:
        """Return text from the first record start behind the first byte on."""
        rest = self._next_start(b"", skips=True)
        last = self._part.last
        # A start behind the last byte is the next range's.
        return b"" if last >= 0 and self._at > last else rest or b""

    def _next_start(self, text: bytes, *, skips: bool) -> bytes | None:
        """Return the text from the next record start (`_at`) on, None at the end."""
        while True:
            match = self._found.search(text)
            if match:
                self._at += match.end()
                rest = text[match.end() :]
                # The beginning of a record tells whether it is one.
                while not rest and (chunk := next(self._chunks, None)) is not None:
                    rest = chunk
                return rest
            chunk = next(self._chunks, None)
            if chunk is None:
                return None
            left = len(text) - _KEPT.get(self._part.kind, len(text))
            self._at += max(left, 0)
            text = text[max(left, 0) :] + chunk

    def chunks(self) -> Iterator[bytes]:
        part, text = self._part, self._begin
        if part.first > 0:
            if not text:
                return
            # Line ends are those of the whole file.
            yield b">\n" if self.continues else b"\n"
        while part.last < 0 or self._at + len(text) <= part.last:
            yield text
            self._at += len(text)
            chunk = next(self._chunks, None)
            if chunk is None:
                return
            text = chunk
        inside = part.last - self._at
        yield text[:inside]
        self._at, text = part.last, text[inside:]
        yield from self._to_the_end(text)

    def _to_the_end(self, text: bytes) -> Iterator[bytes]:
        """Yield text up to the next record start, and the rest of that record."""
        while (match := self._found.search(text)) is None:
            chunk = next(self._chunks, None)
            if chunk is None:
                yield text
                return
            left = max(len(text) - _KEPT.get(self._part.kind, len(text)), 0)
            yield text[:left]
            text = text[left:] + chunk
        yield text[: match.end()]
        if self._part.kind == "line":
            letters = self._letters_behind(text[match.end() :])
            self.borrowed = len(letters)
            yield letters

    def _letters_behind(self, text: bytes) -> bytes:
        """Return the first letters of the next lines, up to a header."""
        letters = b""
        while len(letters) < self._overlap:
            end = text.find(b"\n")
            if end < 0 and len(text) <= self._overlap:
                chunk = next(self._chunks, None)
                if chunk is not None:
                    text += chunk
                    continue
            line = text if end < 0 else text[:end]
            if line.startswith((b">", b"@")):
                break
            letters += line.rstrip(b" \t\r")
            if end < 0:
                break
            text = text[end + 1 :]
        return letters[: self._overlap]


def chunks_from(part: TextRange) -> Iterator[bytes]:
    """Yield the file's text from the range's first byte on."""
    with byte_opener(part.file) as stream:
        if part.block is None:
            stream.seek(part.first)
            while chunk := stream.read(CHUNK_NBYTES):
                yield chunk
            return
        stream.seek(part.block)
        yield from _text_of_blocks(part.file, stream)


def _text_of_blocks(file: str, stream: BinaryIO) -> Iterator[bytes]:
    for blocks in blocks_from(file, stream):
        yield b"".join(text for _, text in blocks)


def blocks_from(file: str, stream: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Yield blocks of BGZF from a stream's position on, with their offsets and text."""
    packed, place = b"", stream.tell()
    while more := stream.read(CHUNK_NBYTES):
        packed += more
        edges = [0]
        while len(packed) >= edges[-1] + _BLOCK_HEAD:
            end = edges[-1] + int.from_bytes(packed[edges[-1] + 16 : edges[-1] + 18], "little") + 1
            if end > len(packed):
                break
            edges.append(end)
        yield [(place + one, _unpack(file, packed[one:end])) for one, end in pairwise(edges)]
        packed, place = packed[edges[-1] :], place + edges[-1]
    if packed:
        raise SequenceError(f"{file} is cut short; copy or download it again")


def _unpack(file: str, block: bytes) -> bytes:
    reader = zlib.decompressobj(31)
    try:
        text: bytes = reader.decompress(block)
    except zlib.error as error:
        raise SequenceError(f"{file} is damaged: {error}; copy or download it again") from error
    if not reader.eof:
        raise SequenceError(f"{file} is damaged; copy or download it again")
    return text
