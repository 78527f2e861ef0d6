"""Texts of sequences that ranges part at awkward places."""

from __future__ import annotations

import random
import struct
import zlib

__all__ = ["bgzf", "fasta", "fastq"]


def fasta(draw: random.Random, end: str, *, blanks: bool = True, mate: str = "") -> bytes:
    """Return records of FASTA, some empty, and blank lines."""
    lines = []
    for number in range(12):
        lines.append(f">record{number}{mate} > @")
        letters = "".join(draw.choices("ACGTN", k=draw.choice([0, 1, 3, 4, 5, 30, 200])))
        width = draw.choice([1, 2, 7, 60, 500])
        lines += [letters[at : at + width] for at in range(0, len(letters), width)]
        lines += [""] * draw.randint(0, 2 * blanks)
    return end.join([*lines, ""]).encode()


def fastq(draw: random.Random, end: str, *, blanks: bool = True, mate: str = "") -> bytes:
    """Return records of FASTQ whose qualities look like headers, and blank lines."""
    lines = []
    for number in range(30):
        n = draw.choice([0, 1, 4, 9, 50])
        letters = "".join(draw.choices("ACGTN", k=n))
        quality = "".join(draw.choices("@+I", k=n))
        lines += [f"@{number}{mate} +", letters, "+" + draw.choice(["", "@x"]), quality]
        lines += [""] * draw.randint(0, blanks)
    return end.join([*lines, ""]).encode()


def bgzf(text: bytes, size: int) -> bytes:
    """Return text as BGZF, in blocks of so many bytes."""
    found = []
    for at in [*range(0, len(text), size), len(text)]:
        piece = text[at : at + size]
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = packer.compress(piece) + packer.flush()
        found += [
            b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0",
            struct.pack("<H", len(packed) + 25),
            packed,
            struct.pack("<II", zlib.crc32(piece), len(piece)),
        ]
    return b"".join(found)
