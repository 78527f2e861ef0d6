"""Ranges of files have all records, and all windows of their letters, once."""

from __future__ import annotations

import random
import zlib

import pytest
from kmer.workers.texts import bgzf, fasta, fastq

from dgpuhash.errors import SequenceError
from dgpuhash.kmer.sequences.batches import read_sequences
from dgpuhash.kmer.sequences.ranges import batches_of_range, ranges_of

K = 5


def windows(batches):
    """Return all windows of K letters, and records and letters as they are counted."""
    found, records, letters = [], 0, 0
    for batch in batches:
        records += len(batch) - batch.continues
        letters += len(batch.letters) - batch.repeated
        for row in range(len(batch)):
            text = batch.sequence(row).decode()
            found += [text[at : at + K] for at in range(len(text) - K + 1)]
    return found, records, letters


@pytest.mark.parametrize("make", [fasta, fastq])
@pytest.mark.parametrize("packed", [False, True])
def test_ranges_have_all_windows(tmp_path, make, packed):
    draw = random.Random(3)
    for case, end in enumerate(["\n", "\r\n", "\n"]):
        text = make(draw, end)
        file = tmp_path / f"{case}.txt"
        file.write_bytes(bgzf(text, 61) if packed else text)
        expected = windows(read_sequences(file, overlap=K - 1))
        for nbytes in (1, 17, 100, 333, 2000, 10**6):
            ranges = ranges_of(str(file), nbytes)
            assert len(ranges) > 3 or nbytes > 100
            for size in (7, 2**20):
                found = [
                    batch
                    for part in ranges
                    for batch in batches_of_range(part, overlap=K - 1, batch_letters=size)
                ]
                assert windows(found) == expected


def test_what_cannot_be_divided_is_one_range(tmp_path):
    texts = {
        "junk": b"junk\n" * 40,
        "old": b">r\rACGT\r" * 40,
        "gz": zlib.compressobj(wbits=31).compress(b">r\nACGT\n" * 40),
        "none": b"",
        # Who reads it as one raises.
        "cut": bgzf(b">r\nACGT\n" * 40, 8)[:-28],
        "cut within": bgzf(b">r\nACGT\n" * 40, 8)[:-3],
        "padded": bgzf(b">r\nACGT\n" * 40, 8) + bytes(9),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        assert len(ranges_of(str(tmp_path / name), 8)) == 1


def test_damaged_blocks_are_told(tmp_path):
    packed = bytearray(bgzf(b">r\n" + b"ACGTTGCA" * 40, 50))
    file = tmp_path / "r.fa.gz"
    file.write_bytes(packed)
    ranges = ranges_of(str(file), 100)
    packed[-35] ^= 1
    file.write_bytes(packed)
    with pytest.raises(SequenceError, match="damaged"):
        list(batches_of_range(ranges[-1], overlap=2))
    file.write_bytes(packed[:-30])
    assert len(ranges_of(str(file), 100)) == 1
    with pytest.raises(SequenceError, match="cut short"):
        list(batches_of_range(ranges[-1], overlap=2))
