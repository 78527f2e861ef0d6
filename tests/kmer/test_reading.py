"""Files of sequences, beside dnaio and plain Python, and what is wrong with some."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmer import models as model

from dgpuhash import compression
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer import read_pairs, read_samples, read_sequences
from dgpuhash.kmer.sequences import files

# Machines with GPUs have them not.
dnaio, zstandard = pytest.importorskip("dnaio"), pytest.importorskip("zstandard")

HERE = Path(__file__).parent / "data"
FASTA = ">one first\nACGT\nAC\n>two\n\n>three\nGGN\n"
FASTQ = "@one first\nACGT\n+\nII!I\n@two\n\n+\n\n@three\nGGN\n+three\n@@+\n"


def records_in(batches):
    """Return name, letters and qualities of whole records."""
    return [
        (
            batch.name(row),
            batch.sequence(row).decode(),
            ""
            if batch.qualities is None
            else batch.qualities[batch.offsets[row] : batch.offsets[row + 1]].tobytes().decode(),
        )
        for batch in batches
        for row in range(len(batch))
    ]


def written(tmp_path, content, name="file"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ["edge.fq", "edge.fa", "edge_crlf.fa", "edge_nonl.fa"])
def test_records_are_those_of_dnaio(name):
    with dnaio.open(HERE / name) as expected:
        wanted = [(each.name, each.sequence, each.qualities or "") for each in expected]
    assert records_in(read_sequences(HERE / name)) == wanted


def bgzf(text):
    """Compress as bgzip does: members with their size in an extra field, and an empty one last."""
    made = b""
    for piece in [*(text[at : at + 20] for at in range(0, len(text), 20)), b""]:
        packer = zlib.compressobj(wbits=-15)
        body = packer.compress(piece) + packer.flush()
        size = len(body) + 25
        made += b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff\x06\x00BC\x02\x00"
        made += struct.pack("<H", size) + body
        made += struct.pack("<II", zlib.crc32(piece), len(piece))
    return made


PACKED = {
    "plain": bytes,
    "gzip": gzip.compress,
    "members": lambda text: gzip.compress(text[:30]) + gzip.compress(text[30:]),
    "bgzf": bgzf,
    "bzip2": bz2.compress,
    "bzip2 streams": lambda text: bz2.compress(text[:30]) + bz2.compress(text[30:]),
    "xz": lzma.compress,
    "zstd": zstandard.compress,
    "zstd frames": lambda text: zstandard.compress(text[:30]) + zstandard.compress(text[30:]),
}


@pytest.mark.parametrize("chunk", [1, 5, 2**20])
@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("text", [FASTA, FASTQ], ids=["fasta", "fastq"])
def test_content_and_not_the_name_tells_how_it_is_compressed(
    tmp_path, monkeypatch, text, how, chunk
):
    monkeypatch.setattr(files, "CHUNK_NBYTES", chunk)
    path = written(tmp_path, PACKED[how](text.encode()), "reads.gz")
    assert records_in(read_sequences(path)) == model.records_of(text)


def test_gzip_is_read_without_isal(tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "zlib", zlib)
    path = written(tmp_path, gzip.compress(FASTQ.encode()))
    assert records_in(read_sequences(path)) == model.records_of(FASTQ)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (FASTA.replace("\n", "\r\n"), FASTA),
        (FASTA.replace("\n", "\r"), FASTA),
        (FASTQ.replace("\n", "\r\n"), FASTQ),
        (FASTQ.replace("\n", "\r"), FASTQ),
        ("\ufeff" + FASTA, FASTA),
        ("\n\n\n" + FASTA, FASTA),
        (FASTA.rstrip("\n"), FASTA),
        (FASTQ.rstrip("\n"), FASTQ),
        (FASTA.replace("\n>", "\n\n\n>"), FASTA),
        (FASTQ.replace("\n@t", "\n\n\n@t") + "\n\n", FASTQ),
        (FASTA.replace("AC\n", "AC \t\n"), FASTA),
    ],
)
def test_line_ends_blank_lines_and_marks_change_nothing(tmp_path, text, same):
    assert records_in(read_sequences(written(tmp_path, text))) == model.records_of(same)


@given(
    letters=st.lists(st.text("ACGTN", max_size=60), min_size=1, max_size=6),
    width=st.integers(1, 70),
    overlap=st.integers(0, 12),
    stride=st.integers(1, 13),
    chunk=st.integers(1, 40),
    batch=st.integers(1, 50),
)
def test_pieces_of_a_record_overlap_and_are_all_of_it(
    tmp_path_factory, letters, width, overlap, stride, chunk, batch
):
    text = "".join(
        f">{number} name\n"
        + "".join(f"{each[at : at + width]}\n" for at in range(0, len(each), width))
        for number, each in enumerate(letters)
    )
    path = written(tmp_path_factory.mktemp("pieces"), text)
    found = [""] * len(letters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_NBYTES", chunk)
        batches = list(read_sequences(path, overlap=overlap, stride=stride, batch_letters=batch))
        whole = records_in(read_sequences(path, batch_letters=batch))
    new_records = new_letters = 0
    for each in batches:
        assert each.qualities is None
        new_records += len(each) - each.continues
        new_letters += len(each.letters) - each.repeated
        for row, (number, start) in enumerate(zip(each.numbers, each.starts, strict=True)):
            assert each.name(row) == f"{number} name"
            piece, known = each.sequence(row).decode(), found[number]
            repeated = len(known) - int(start)
            # The first multiple whose window is not whole in the piece before.
            first = -(-max(len(known) - overlap, 0) // stride) * stride
            assert int(start) == min(first, len(known))
            assert known[int(start) :] == piece[:repeated]
            found[number] += piece[repeated:]
    assert found == letters
    assert [each.is_cut for each in batches] == [*(each.continues for each in batches[1:]), False]
    assert (new_records, new_letters) == (len(letters), sum(map(len, letters)))
    assert whole == model.records_of(text)


def test_stdin_is_read(monkeypatch):
    packed = io.BytesIO(gzip.compress(FASTQ.encode()))
    monkeypatch.setattr(packed, "seekable", lambda: False, raising=False)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=packed))
    assert records_in(read_sequences("-")) == model.records_of(FASTQ)


def test_a_pipe_is_read():
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(FASTA.encode())
    with os.fdopen(reading, "rb") as pipe:
        head, stream = files._head_of(pipe)
        assert head + stream.read()[len(head) :] == FASTA.encode()


def test_globs_folders_and_urls_name_files_in_the_order_of_bytes(tmp_path):
    inside = tmp_path / "genomes" / "more"
    inside.mkdir(parents=True)
    names = ["Z.fa", "a.fna.gz", "b.fastq.zst", "more/c.FASTA", "more/d.fq.bz2"]
    for name in [*names, "readme.txt", ".hidden.fa"]:
        written(tmp_path / "genomes", FASTA, name)
    folder = str(tmp_path / "genomes")
    wanted = [f"{folder}/{name}" for name in names]
    assert files.files_of(folder) == wanted
    assert files.files_of(f"{folder}/*.f*") == wanted[:3]
    assert files.files_of(f"{folder}/**/*.f?.bz2") == wanted[4:]
    assert files.files_of([f"{folder}/b.fastq.zst", tmp_path / "genomes" / "Z.fa"]) == [
        wanted[2],
        wanted[0],
    ]
    for missing in (f"{folder}/none.fa", f"{folder}/*.none", "memory://none/*", "memory://none.fa"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            files.files_of(missing)
    with pytest.raises(FileNotFoundError, match="ends as FASTA"):
        (tmp_path / "empty").mkdir()
        files.files_of(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no file was given"):
        files.files_of([])
    memory = fsspec.filesystem("memory")
    for name in ("y.fa", "x.fa.gz"):
        memory.pipe(f"/reads/{name}", FASTA.encode())
    wanted = ["memory:///reads/x.fa.gz", "memory:///reads/y.fa"]
    assert files.files_of("memory://reads") == files.files_of("memory://reads/*.fa*") == wanted
    assert records_in(read_sequences("memory://reads")) == 2 * model.records_of(FASTA)


FAULTS = [
    ("once upon a time\n", r"line 1: .*neither FASTA nor FASTQ"),
    ("ACGT\nACGT\n", r"line 1: .*neither FASTA nor FASTQ"),
    ("\n\nACGT\n", r"line 3: .*neither FASTA nor FASTQ"),
    ("\x00\x01\x02\x03", r"line 1: .*neither FASTA nor FASTQ"),
    (">a\nACGT\n@b\nACGT\n+\nIIII\n", r"record 1, line 3: .*other format"),
    ("@b\nACGT\n+\nIIII\n>a\nACGT\n", r"record 1, line 5: .*other format"),
    (">a\nAC\n>b\nA\x00CGT\n", r"record 2, line 4: there are bytes of no text"),
    (">a\x07\nAC\n", r"record 1, line 1: there are bytes of no text"),
    ("@a\nAC\n+\nI\x01\n", r"record 1, line 4: there are bytes of no text"),
    (">p\nMKVLAAGIVGLLLAQWERTYPLSFE\n", r"record 1, line \d: the letters are those of a protein"),
    ("@a\n+\nII\n@b\nAC\n+\nII\n", r"record 1, line 2: the line of letters is missing"),
    ("@a\nAC\n+\nII\n@b\nACGT\nIIII\n", r"record 2, line 7: the line that begins with '\+'"),
    ("@a\nACGT\nACGT\n+\nIIIIIIII\n", r"record 1, line 3: .*join lines that were wrapped"),
    ("@a\nACGT\n+\nIII\n", r"line 4: its quality is shorter .* \(3 qualities of 4 letters\)"),
    ("@a\nACGT\n+\nIIIII\n", r"line 4: its quality is longer .* \(5 qualities of 4 letters\)"),
    ("@a\nACGT\n+\nIIII\nrest\n", r"record 1, line 5: .*neither FASTA nor FASTQ"),
    ("@a\nACGT\n+\nIIII\n@b\nAC\n", r"record 2, line 7: the file ends within it"),
    ("@a\nACGT\n+\n", r"record 1, line 4: the file ends within it"),
    ("@a", r"record 1, line 2: the file ends within it"),
    ("", r"file has no sequences"),
    ("\n\n", r"file has no sequences"),
]


@pytest.mark.parametrize("chunk", [1, 2**20])
@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_faults_are_told_with_file_record_line_and_remedy(tmp_path, monkeypatch, text, said, chunk):
    monkeypatch.setattr(files, "CHUNK_NBYTES", chunk)
    with pytest.raises(SequenceError, match=said) as raised:
        list(read_sequences(written(tmp_path, text)))
    assert str(tmp_path / "file") in str(raised.value)
    assert ";" in str(raised.value)


@pytest.mark.parametrize("how", [how for how in PACKED if how != "plain"])
@pytest.mark.parametrize("fault", ["cut short", "damaged"])
def test_broken_compression_gives_no_partial_result(tmp_path, how, fault):
    text = (
        FASTA.encode()
        + np.random.default_rng(1).choice(list(b"ACGT"), 5_000).astype(np.uint8).tobytes()
    )
    packed = bytearray(PACKED[how](text))
    if fault == "cut short":
        del packed[len(packed) * 2 // 3 :]
    else:
        packed[len(packed) // 2] ^= 0x55
        packed[len(packed) // 2 + 1] ^= 0x55
    with pytest.raises(SequenceError, match=r"(cut short|damaged|bytes of no text)"):
        list(read_sequences(written(tmp_path, bytes(packed))))


@pytest.mark.parametrize("how", ["gzip", "bzip2", "xz", "zstd"])
def test_what_follows_compressed_data_is_padding_or_wrong(tmp_path, how):
    packed = PACKED[how](FASTA.encode())
    padded = written(tmp_path, packed + bytes(64), "padded")
    assert records_in(read_sequences(padded)) == model.records_of(FASTA)
    for rest, said in (
        (b"something else", "damaged"),
        (b"\x1f\x8b\x08", "(damaged|cut short)"),
        (packed[:-3], "cut short"),
    ):
        with pytest.raises(SequenceError, match=said):
            list(read_sequences(written(tmp_path, packed + rest)))


def test_a_file_that_cannot_be_read_is_no_fault_of_its_content(tmp_path):
    with pytest.raises(OSError, match="directory") as raised:
        list(files.text_of(str(tmp_path)))
    assert not isinstance(raised.value, SequenceError)


def pair(name, letters, mate):
    return f"@{name}{mate}\n{letters}\n+\n{'I' * len(letters)}\n"


@pytest.mark.parametrize("ends", [("", ""), ("/1", "/2"), (" 1:N:0:A", " 2:N:0:A")])
@pytest.mark.parametrize("batch", [1, 7, 2**20])
def test_mates_of_two_files_and_interleaved_ones_come_in_pairs(tmp_path, monkeypatch, ends, batch):
    monkeypatch.setattr(files, "CHUNK_NBYTES", 40)
    reads = [(f"r{n}", "ACGT" * (n % 3), "G" * (50 * (n % 4))) for n in range(30)]
    first = [pair(name, letters, ends[0]) for name, letters, _ in reads]
    second = [pair(name, letters, ends[1]) for name, _, letters in reads]
    one, two = written(tmp_path, "".join(first), "1"), written(tmp_path, "".join(second), "2")
    mixed = "".join(a + b for a, b in zip(first, second, strict=True))
    both = written(tmp_path, mixed, "12")
    for pairs in (
        list(read_pairs(one, two, batch_letters=batch)),
        list(read_pairs(both, interleaved=True, batch_letters=batch)),
    ):
        assert all(len(a) == len(b) for a, b in pairs)
        assert batch > 7 or len(pairs) > 3
        assert records_in(a for a, _ in pairs) == model.records_of("".join(first))
        assert records_in(b for _, b in pairs) == model.records_of("".join(second))


def test_what_are_no_pairs_is_told(tmp_path):
    reads = [pair(f"r{n}", "ACGT", "") for n in range(6)]
    whole = written(tmp_path, "".join(reads), "whole")
    less = written(tmp_path, "".join(reads[:4]), "less")
    shifted = written(tmp_path, "".join(reads[1:]) + reads[0], "shifted")
    dotted = written(tmp_path, pair("s.1", "A", "") + pair("s.2", "A", ""), "dotted")
    for batch in (1, 1000):
        with pytest.raises(SequenceError, match=r"record 5 of .*whole, 'r4', has no mate"):
            list(read_pairs(whole, less, batch_letters=batch))
        with pytest.raises(SequenceError, match=r"record 5 of .*whole, 'r4', has no mate"):
            list(read_pairs(less, whole, batch_letters=batch))
        with pytest.raises(SequenceError, match=r"whole, record 1: 'r0' and its mate .* 'r1'"):
            list(read_pairs(whole, shifted, batch_letters=batch))
        with pytest.raises(SequenceError, match=r"record 1: 's.1' and its mate .* 's.2'"):
            list(read_pairs(dotted, interleaved=True, batch_letters=batch))
        with pytest.raises(SequenceError, match=r"odd number of records: record 3, 'r0'"):
            odd = written(tmp_path, 2 * pair("r", "A", "") + reads[0], "odd")
            list(read_pairs(odd, interleaved=True, batch_letters=batch))
    with pytest.raises(SequenceError, match="2 files of first and 1 of second mates"):
        list(read_pairs([whole, whole], less))
    with pytest.raises(SpecError, match="two files, or interleaved"):
        list(read_pairs(whole))


def test_tables_of_samples(tmp_path):
    table = "sample\tr1\tr2\n# old ones\n\ngut\tg_1.fq\tg_2.fq\r\nsoil\ts.fq\n"
    samples = read_samples(written(tmp_path, table))
    assert samples == [("gut", "g_1.fq", "g_2.fq"), ("soil", "s.fq", None)]
    for wrong, said in (
        ("gut\n", "line 1: 1 columns"),
        ("gut\ta\tb\tc\n", "line 1: 4 columns"),
        ("gut\t\tb\n", "line 1: 3 columns"),
        ("gut\ta\n\ngut\tb\n", "line 3: sample 'gut' is there already"),
    ):
        with pytest.raises(SequenceError, match=said):
            read_samples(written(tmp_path, wrong))
