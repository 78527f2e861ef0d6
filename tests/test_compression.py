"""Compressed data: whole it is the same text, and what ends early is an error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct

import pytest
from kmer.workers.texts import bgzf

from dgpuhash.compression import DecompressedStream, compression_of, decompress

# GPU machines may lack it.
zstandard = pytest.importorskip("zstandard")

TEXT = bytes(random.Random(7).choices(b"ACGT\n", k=700))
EMPTY_BLOCK = bgzf(b"", 1)


def with_another_field(packed):
    """Return BGZF whose blocks have a field before that of their size."""
    found, at = [], 0
    while at < len(packed):
        size = int.from_bytes(packed[at + 16 : at + 18], "little") + 1
        block = packed[at : at + size]
        found += [block[:10], b"\x0c\0XX\x02\0abBC\x02\0", struct.pack("<H", size + 5), block[18:]]
        at += size
    return b"".join(found)


WHOLE = {
    "gzip": gzip.compress(TEXT),
    "BGZF": bgzf(TEXT, 90),
    "BGZF with another field": with_another_field(bgzf(TEXT, 90)),
    "bz2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
}
by_kind = pytest.mark.parametrize("kind", WHOLE)


def text_of(packed, chunk=2**20):
    return b"".join(decompress(io.BytesIO(packed), compression_of(packed), chunk))


@by_kind
@pytest.mark.parametrize("chunk", [1, 100, 2**20])
def test_frames_and_padding_are_read(kind, chunk):
    packed = WHOLE[kind]
    for padding in (b"", bytes(5), bytes(2**17)):
        assert text_of(packed + padding + packed + padding, chunk) == TEXT + TEXT


@by_kind
def test_every_cut_is_noticed(kind):
    packed = WHOLE[kind]
    for end in range(6, len(packed)):
        for padding in (b"", bytes(300)):
            cut = packed[:end] + padding
            # The last bytes may be zeros.
            if not cut.startswith(packed):
                with pytest.raises((EOFError, OSError)):
                    text_of(cut)
    with pytest.raises(EOFError, match=r"(too early|empty block)"):
        text_of(packed[: len(packed) // 2])


@by_kind
def test_other_bytes_behind_are_noticed(kind):
    for rest in (b"junk", b"\n", b"\x1f", b"\0\0junk", WHOLE[kind][:5]):
        with pytest.raises((EOFError, OSError)):
            text_of(WHOLE[kind] + rest)


@pytest.mark.parametrize(
    "packed",
    [
        bgzf(TEXT, 90)[: -len(EMPTY_BLOCK)],
        bgzf(TEXT, 90)[: -len(EMPTY_BLOCK)] + bytes(99),
        bgzf(TEXT, 90) + bgzf(TEXT, 90)[: -len(EMPTY_BLOCK)],
        bgzf(TEXT, 90)[: -len(EMPTY_BLOCK)] + gzip.compress(TEXT),
        with_another_field(bgzf(TEXT, 90)[: -len(EMPTY_BLOCK)]),
    ],
    ids=["alone", "padded", "behind another", "before a member", "with another field"],
)
def test_bgzf_without_its_empty_block_is_cut_short(packed):
    with pytest.raises(EOFError, match="the empty block that ends BGZF is missing"):
        text_of(packed)


def test_bgzf_and_other_members_follow_each_other():
    assert text_of(gzip.compress(b"A") + bgzf(b"CG", 1) + gzip.compress(b"T")) == b"ACGT"


def test_streams_are_read_as_files_are():
    stream = io.BufferedReader(DecompressedStream(io.BytesIO(WHOLE["BGZF"]), "gzip"), 64)
    assert stream.read(100) == TEXT[:100]
    assert stream.readline() == TEXT[100 : TEXT.index(b"\n", 100) + 1]
    assert stream.read() == TEXT[TEXT.index(b"\n", 100) + 1 :]
    with pytest.raises(EOFError):
        DecompressedStream(io.BytesIO(), "gzip").read(1)
