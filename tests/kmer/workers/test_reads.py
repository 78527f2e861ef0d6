"""Reads that workers read are those that one process reads, in its order, and its errors."""

from __future__ import annotations

import gzip
import random
import threading
from itertools import chain

import numpy as np
import pytest
from kmer.workers.pairs import WORLD
from kmer.workers.texts import bgzf, fasta, fastq
from kmer.worlds import fastq as of_fastq

from dgpuhash.errors import SequenceError
from dgpuhash.kmer import SketchIndex, classify, worker_reads
from dgpuhash.kmer.cluster import Workers
from dgpuhash.kmer.sequences import reads
from dgpuhash.kmer.sequences.batches import read_pairs, read_sequences
from dgpuhash.kmer.sequences.files import files_of
from dgpuhash.kmer.sequences.reads import ReadFiles
from dgpuhash.kmer.worker_reads import ReadsOnWorkers, unseen_file

PACKINGS = {
    "plain": bytes,
    "bgzf": lambda text: bgzf(text, 61),
    "gz": gzip.compress,
}


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(reads, "COUNTED_NBYTES", 300)


def rows_of(sides):
    """Return what reads and mates have, row by row."""
    for side in sides:
        if side is not None:
            for row in range(len(side)):
                span = slice(*side.offsets[row : row + 2])
                quality = None if side.qualities is None else side.qualities[span].tobytes()
                yield side.name(row), side.sequence(row), quality, int(side.numbers[row])


def of_workers(client, files, mates=None, *, interleaved=False, letters=150, kept="letters"):
    consumed = []
    given = ReadFiles(
        tuple(files_of(files)), None if mates is None else tuple(files_of(mates)), interleaved,
        letters, with_qualities=True,
    )  # fmt: skip
    made = ReadsOnWorkers(Workers(client), given, kept, consumed.append)
    workers = made._workers
    batches = []
    try:
        for told, size in made.asked(lambda _, batch: workers.submit(sizes_in, batch)):
            batches.append((told.reads, told.mates))
            sides = [each for each in batches[-1] if each is not None]
            assert size == [int(side.offsets[-1]) for side in sides]
    finally:
        of_workers.nbytes = sum(consumed)
    return batches


def sizes_in(batch):
    arrays, beside = batch
    for quality, letters in zip(beside.values(), arrays[::2], strict=False):
        assert quality is None or len(quality) == len(letters)
    return [len(letters) for letters in arrays[::2]]


def same_rows(found, expected):
    columns = [
        [list(chain.from_iterable(rows_of([sides[at]]) for sides in batches)) for at in range(2)]
        for batches in (found, expected)
    ]
    assert columns[0] == columns[1]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("make", [fasta, fastq])
def test_single_reads(clients, tmp_path, packing, make):
    draw = random.Random(7)
    names = []
    for number in range(3):
        names.append(tmp_path / f"{number}.txt")
        names[-1].write_bytes(PACKINGS[packing](make(draw, "\r\n" if number == 1 else "\n")))
    expected = [(batch, None) for batch in read_sequences(names)]
    found = of_workers(clients[3], names)
    assert len(found) > (6 if packing != "gz" else 2)
    same_rows(found, expected)
    assert of_workers.nbytes == sum(name.stat().st_size for name in names)


@pytest.mark.parametrize(
    ("packing", "make", "blanks"),
    [
        ("plain", fastq, False),
        ("plain", fastq, True),
        ("plain", fasta, False),
        ("bgzf", fasta, True),
        ("bgzf", fastq, False),
        ("gz", fastq, True),
    ],
)
def test_pairs(clients, tmp_path, packing, make, blanks):
    """Mates are read together wherever they are; lines that are not of records change nothing."""
    draw = random.Random(8)
    names = [[tmp_path / f"{file}_{mate}" for file in range(2)] for mate in (1, 2)]
    for mate, files in enumerate(names, 1):
        for name in files:
            text = make(draw, "\n", blanks=blanks, mate=f"/{mate}")
            name.write_bytes(PACKINGS[packing](text))
    expected = list(read_pairs(*names))
    found = of_workers(clients[3], *names)
    same_rows(found, expected)
    assert of_workers.nbytes == sum(name.stat().st_size for files in names for name in files)
    if packing != "gz" and not blanks:
        assert len(found) > 6


@pytest.mark.parametrize("packing", PACKINGS)
def test_interleaved_pairs(clients, tmp_path, packing):
    draw = random.Random(9)
    text = ""
    for number in range(80):
        n = draw.randint(0, 40)
        text += f"@{number // 2}/{number % 2 + 1}\n{'A' * n}\n+\n{'@' * n}\n"
    file = tmp_path / "both.fq"
    file.write_bytes(PACKINGS[packing](text.encode()))
    expected = list(read_pairs(file, interleaved=True))
    found = of_workers(clients[2], file, interleaved=True)
    same_rows(found, expected)
    assert packing == "gz" or len(found) > 5


def test_what_stays_with_the_workers(clients, tmp_path):
    file = tmp_path / "reads.fq"
    file.write_bytes(fastq(random.Random(1), "\n"))
    (expected,) = read_sequences(file)
    for kept, has_names in (("names", True), ("sizes", False)):
        found = of_workers(clients[2], file, kept=kept)
        sides = [side for side, _ in found]
        assert not any(len(side.letters) for side in sides)
        assert sum(len(side.names) for side in sides) == len(expected.names) * has_names
        sizes = np.concatenate([np.diff(side.offsets) for side in sides])
        assert sizes.tolist() == np.diff(expected.offsets).tolist()


WRONG = {
    "short quality": (b"@r\nACGT\n+\nIIII\n" * 30 + b"@q\nACGT\n+\nIII\n", None),
    "mixed": (b">r\nACGT\n" * 60 + b"@q\nACGT\n+\nIIII\n", None),
    "empty": (b"", None),
    "unequal": (b"@r\nACGT\n+\nIIII\n" * 50, b"@r\nACGT\n+\nIIII\n" * 47),
    "no mates": (b"@r\nACGT\n+\nIIII\n" * 50, b""),
    "names": (
        b"".join(b"@r%d\nACGT\n+\nIIII\n" % at for at in range(40)),
        b"".join(b"@r%d\nACGT\n+\nIIII\n" % (at + (at > 33)) for at in range(40)),
    ),
}


@pytest.mark.parametrize(
    ("case", "packing"),
    [*((case, "plain") for case in WRONG), ("names", "bgzf"), ("unequal", "bgzf"), ("names", "gz")],
)
def test_errors_are_those_of_one_process(clients, tmp_path, case, packing):
    """And the reads before them come."""
    paths = [tmp_path / "first", tmp_path / "second"]
    first, second = WRONG[case]
    paths[0].write_bytes(PACKINGS[packing](first))
    if second is not None:
        paths[1].write_bytes(PACKINGS[packing](second))
    sides = [paths[0], None if second is None else paths[1]]
    with pytest.raises(SequenceError) as expected:
        list(read_sequences(paths[0]) if second is None else read_pairs(*sides))
    with pytest.raises(SequenceError) as found:
        of_workers(clients[2], *sides, letters=40)
    assert str(found.value) == str(expected.value)


def test_truncated_files_are_told(clients, tmp_path):
    text = b"".join(b">r%d\n%s\n" % (at, b"ACGT" * (at % 7)) for at in range(400))
    for name, packed in {"gz": gzip.compress(text), "bgzf": bgzf(text, 61)}.items():
        file = tmp_path / name
        file.write_bytes(packed[: len(packed) // 2])
        with pytest.raises(SequenceError) as expected:
            list(read_sequences(file))
        with pytest.raises(SequenceError) as found:
            of_workers(clients[2], file)
        assert str(found.value) == str(expected.value)


def test_files_that_workers_do_not_see(clients, tmp_path, monkeypatch):
    file = tmp_path / "reads.fq"
    file.write_bytes(b"@r\nACGT\n+\nIIII\n")
    workers = Workers(clients[2])
    assert unseen_file(workers, [str(file)]) == ""
    monkeypatch.setattr(worker_reads, "sizes_of", sizes_there)
    assert unseen_file(workers, [str(file)]) == str(file)


def sizes_there(files):
    """Return the sizes of files, which only this process sees."""
    is_here = threading.current_thread() is threading.main_thread()
    return [99 if is_here else None for _ in files]


@pytest.mark.parametrize("place", ["workers", "here"])
def test_classify_reads_on_workers_or_here(clients, tmp_path, folder, monkeypatch, place):
    """Whoever reads, the outputs are those of one device; and it is told when it is not workers."""
    first, second = (tmp_path / f"{mate}.fq" for mate in (1, 2))
    names = [f"r{number} x" for number in range(len(WORLD.pairs))]
    for file, letters in zip((first, second), zip(*WORLD.pairs, strict=True), strict=True):
        file.write_text(of_fastq(names, list(letters)))
    settings = {"taxonomy": folder / "taxonomy", "k": 11, "sketch": 8, "window": 40}
    options = {"cov_percentile": 30, "batch_letters": 1500}
    SketchIndex.build(folder, **settings).classify(first, second, **options).write(tmp_path / "one")
    made = SketchIndex.build(folder, client=clients[2], **settings)
    found = made.classify(first, second, **options)
    if place == "here":
        monkeypatch.setattr(worker_reads, "sizes_of", sizes_there)
        with pytest.warns(UserWarning, match="do not see .*1.fq"):
            found.write(tmp_path / "some")
    else:
        monkeypatch.setattr(classify, "read_pairs", None)
        found.write(tmp_path / "some")
    assert (tmp_path / "some").read_bytes() == (tmp_path / "one").read_bytes()
    assert found.summary()["pairs"] == len(WORLD.pairs)
