"""Records of divided files are found by their numbers."""

from __future__ import annotations

import random

import pytest
from kmer.workers.texts import bgzf, fasta, fastq

from dgpuhash.kmer.sequences.batches import read_sequences
from dgpuhash.kmer.sequences.borders import Borders, count_borders, text_of_cut
from dgpuhash.kmer.sequences.ranges import ranges_of, text_of_range
from dgpuhash.kmer.sequences.reads import batch_of_text


def records_of(batches):
    return [
        (batch.name(row), batch.sequence(row))
        for batch in batches
        if batch is not None
        for row in range(len(batch))
    ]


def borders_of(file, range_nbytes, piece_nbytes):
    ranges = ranges_of(str(file), range_nbytes, whole=True)
    found = Borders(str(file), ranges[0].kind)
    for part in ranges:
        found.add(count_borders(part, piece_nbytes), is_last=part.last < 0)
    return found


@pytest.mark.parametrize("make", [fasta, fastq])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cuts_have_their_records(tmp_path, make, packed, end):
    draw = random.Random(3)
    text = make(draw, end, blanks=False)
    if end == "\n":
        text = text.rstrip(b"\n")
    file = tmp_path / "reads"
    file.write_bytes(bgzf(text, 61) if packed else text)
    expected = records_of(read_sequences(file))
    for nbytes in (30, 100, 333):
        for piece in (1, 17, 64, 200):
            borders = borders_of(file, nbytes, piece)
            assert borders.records_when_whole == len(expected)
            for first, last in [(0, 1), (0, len(expected)), (3, 7), (7, len(expected))]:
                cut = borders.cut(first, last)
                found = batch_of_text(cut.file, text_of_cut(cut))
                assert records_of([found]) == expected[first:last]
            ends = [borders.records_within(first, 200) for first in range(len(expected))]
            assert ends == sorted(ends)
            assert all(first <= end <= len(expected) for first, end in enumerate(ends))
            assert borders.records_within(0, 10**6) == len(expected)


@pytest.mark.parametrize("make", [fasta, fastq])
@pytest.mark.parametrize("packed", [False, True])
def test_ranges_have_whole_records(tmp_path, make, packed):
    draw = random.Random(4)
    text = make(draw, "\n")
    file = tmp_path / "reads"
    file.write_bytes(bgzf(text, 61) if packed else text)
    expected = records_of(read_sequences(file))
    for nbytes in (1, 40, 300, 10**6):
        ranges = ranges_of(str(file), nbytes, whole=True)
        found = [batch_of_text(str(file), text_of_range(part)) for part in ranges]
        assert records_of(found) == expected
