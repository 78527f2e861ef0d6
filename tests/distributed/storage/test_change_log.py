"""Records of write-ahead logs: what an interrupted write leaves, and everything else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.storage.arrow_files import RowsFile
from dgpuhash.distributed.storage.change_log import Record
from dgpuhash.errors import FormatError

FILES = (
    RowsFile("log-000000000002-0123456789ab-00000.arrow", 1234, "0f" * 16, (100, 20)),
    None,
    RowsFile("log-000000000002-0123456789ab-00002.arrow", 987, "1e" * 16, ()),
)
RECORDS = [
    Record(2, "insert", "a" * 32, "b" * 32, FILES),
    Record(123_456, "erase", "c" * 32, "d" * 32, (None,), owned=False),
    Record(3, "save", "e" * 32, "f" * 32, ()),
]


def parsed(data: bytes) -> Record | None:
    return Record.from_bytes(data, "log-000000000002.record")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.verb)
def test_every_beginning_is_an_interrupted_write(record):
    """Also with zeros behind, as a file system leaves that had the size on the disk and no data."""
    whole = record.to_bytes()
    for size in range(len(whole) + 1):
        for zeros in (0, 1, len(whole) - size, 4096):
            found = parsed(whole[:size] + bytes(zeros))
            assert found == (record if size >= len(whole) - len(b"\nend\n") else None)


def foreign() -> dict[str, bytes]:
    whole, rng = RECORDS[0].to_bytes(), random.Random(5)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("k", pa.int64())])):
        pass
    half, head = whole[: len(whole) // 2], whole[: whole.index(b"{")]
    return {
        "an Arrow file": sink.getvalue().to_pybytes(),
        "JSON": b"{}",
        "a text": b"hello\n",
        "a blank": b" ",
        "a later format": whole.replace(b"log 1", b"log 2", 1),
        "one byte": b"\x01",
        "zeros and then a byte": bytes(100) + b"x",
        "random bytes": rng.randbytes(len(whole)),
        "a head and random bytes": head + rng.randbytes(50),
        "a head and JSON": head + b"{}",
        "a head and other JSON": head + b'{"revision": 2}',
        "a head and a beginning of other JSON": head + b'{"name": "x',
        "half and random bytes": half + rng.randbytes(50),
        "half and text": half + b"hello hello",
        "half, zeros and a byte": half + bytes(50) + b"x",
        "half and the end": half + b"\nend\n",
        "half twice": half + half,
        "a record and a text": whole + b"more",
        "a record twice": whole + whole,
        "a record without the first byte": whole[1:],
        "a record without a byte": whole[:200] + whole[201:],
        "zeros within": whole[:200] + bytes(8) + whole[208:],
    }


@pytest.mark.parametrize("data", foreign().values(), ids=foreign().keys())
def test_anything_else_is_an_error(data):
    with pytest.raises(FormatError, match=r"record is damaged: .* restore the folder"):
        parsed(data)


def test_a_flipped_bit_is_an_error_or_changes_nothing():
    whole = RECORDS[0].to_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            with pytest.raises(FormatError):
                parsed(bytes(data))


@pytest.fixture
def log(threads, tmp_path) -> Path:
    """Return a log of 30 rows: a build and two inserts."""
    rows = pd.DataFrame({"k": np.arange(30), "v": np.arange(30) * 10})
    with DistributedIndex.build(rows[:10], on="k", client=threads, durable=tmp_path) as index:
        for first in (10, 20):
            index.insert(rows[first : first + 10])
    return tmp_path


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["an Arrow file", "random bytes", "JSON", "half and text"])
def test_a_foreign_last_record_is_told(threads, log, kind):
    """An acknowledged change went with it, so neither a load nor a writer goes on."""
    path = sorted(log.glob("*.record"))[-1]
    with DistributedIndex.load(log, threads, durable=log) as index:
        path = log / "log-000000000005.record"
        assert sorted(log.glob("*.record"))[-1] == log / "log-000000000004.record"
        path.write_bytes(foreign()[kind])
        for call in (
            lambda: index.insert({"k": [1], "v": [2]}),
            lambda: index.save(log),
            lambda: index.rebuild(whole=True),
            lambda: index.refresh(),
            lambda: DistributedIndex.load(log, threads),
            lambda: DistributedIndex.load(log, threads, durable=log),
        ):
            with pytest.raises(FormatError, match="restore the folder from a backup"):
                call()
        assert path.read_bytes() == foreign()[kind]
        path.unlink()
        assert index.insert({"k": [30], "v": [300]}) == 1


@pytest.mark.cluster
def test_every_beginning_of_the_last_record_opens(threads, log):
    path = sorted(log.glob("*.record"))[-1]
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 6, len(whole) - 5, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with DistributedIndex.load(log, threads) as loaded:
            assert len(loaded) == (30 if size >= len(whole) - 5 else 20)
