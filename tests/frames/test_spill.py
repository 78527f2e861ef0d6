"""Rows in a file, beside the frames that were written."""

from __future__ import annotations

import decimal
import errno
import os
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash.errors import IndexLost, OutOfMemoryError
from dgpuhash.frames import FrameIndex, KeyEncoder, frames_of
from dgpuhash.frames.spill import file
from dgpuhash.frames.spill.file import SpillFile


def frame(rows: int, classes: str) -> pd.DataFrame:
    """Return rows of every kind of column."""
    rng = np.random.default_rng(rows)
    texts = [None if n % 3 == 0 else f"text {n}" for n in range(rows)]
    seconds = pd.to_timedelta(rng.integers(0, 99, rows), "s")
    gaps = [n if n % 2 else None for n in range(rows)]
    return pd.DataFrame(
        {
            "float": rng.random(rows),
            "int": rng.integers(0, 9, rows),
            "bool": rng.random(rows) > 0.5,
            "moment": pd.Timestamp("2026") + seconds,
            "zone": pd.Timestamp("2026", tz="UTC") + seconds,
            "text": pd.Series(texts, dtype="str"),
            "object": pd.Series(texts, dtype=object),
            "nans": pd.Series([np.nan if n is None else "n" for n in gaps], dtype=object),
            "mixed": pd.Series([n or "none" for n in gaps], dtype=object),
            "nullable": pd.array(gaps, dtype="Int64"),
            "decimal": pd.array([decimal.Decimal(n) for n in range(rows)],
                                dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
            "class": pd.Categorical(rng.choice(list(classes), rows)),
        }
    )  # fmt: skip


@pytest.fixture
def frames() -> list[pd.DataFrame]:
    several = [frame(10, "ab"), frame(20, "ac"), frame(6, "ab")]
    several[2]["int"] += 0.5
    return several


def test_rows_are_those_of_the_frames_together(tmp_path, frames):
    spilled = SpillFile(frames[0][:0], str(tmp_path))
    assert [spilled.append(each) for each in frames] == [0, 10, 30]
    assert list(tmp_path.iterdir()) == []
    assert spilled.nbytes > 0 and spilled.held_nbytes > 0
    whole = frames_of(frames[0]).concat(frames)
    rng = np.random.default_rng(1)
    # Rows of the first frame alone have the dtypes of all.
    for rows in (rng.permutation(36), rng.integers(0, 36, 90), np.arange(10), np.arange(0)):
        wanted = frames_of(whole).take(whole, rows)
        pd.testing.assert_frame_equal(spilled.take(rows), wanted)
        some = ["text", "int"]
        pd.testing.assert_frame_equal(spilled.take(rows, some), wanted[some])
    spilled.close()
    with pytest.raises(IndexLost, match="freed"):
        spilled.take(np.arange(1))


def test_an_index_of_rows_in_a_file(tmp_path, frames):
    rows = frames[1].assign(k=np.arange(20) % 7)
    spilled = SpillFile(frames[1][:0], str(tmp_path))
    ends = [(spilled.append(part[list(frames[1])]), len(part)) for part in (rows[12:], rows[:12])]
    index = FrameIndex(rows[:0], KeyEncoder.for_frame(rows, "k"), unique=None, device=None)
    index.insert_spilled(rows[["k"]], spilled, ends[::-1])
    known = FrameIndex.build(rows, "k")
    asked = pd.DataFrame({"k": [3, 9, 0, 3]})
    for columns in (None, ["k"], ["text", "k", "float"], ["int"]):
        found, wanted = (each.match(asked, columns=columns) for each in (index, known))
        assert found.query_rows.tolist() == wanted.query_rows.tolist()
        pd.testing.assert_frame_equal(found.frame, wanted.frame)
    for how in ("inner", "outer"):
        found, wanted = (each.merge(asked, how=how) for each in (index, known))
        pd.testing.assert_frame_equal(found, wanted)
    pd.testing.assert_frame_equal(index.lookup(asked), known.lookup(asked))
    pd.testing.assert_frame_equal(index.frame(), known.frame())
    assert index.store.row_nbytes(["float", "k"]) == 16
    index.erase(pd.DataFrame({"k": range(5)}))
    known.erase(pd.DataFrame({"k": range(5)}))
    pd.testing.assert_frame_equal(index.frame(), known.frame())
    assert index.store.numbers == known.store.numbers


def test_a_disk_that_gets_full(tmp_path, frames, monkeypatch):
    spilled = SpillFile(frames[0][:0], str(tmp_path))
    spilled.append(frames[0])
    before, write = spilled.nbytes, os.write

    def full(fd: int, data: Any) -> int:
        if spilled.nbytes > before:
            raise OSError(errno.ENOSPC, "No space left on device")
        # A disk may take less than it is given.
        return write(fd, data[:100])

    with monkeypatch.context() as patch:
        patch.setattr(file.os, "write", full)
        with pytest.raises(OutOfMemoryError, match="disk is full"):
            spilled.append(frames[1])
    assert spilled.nbytes == before and len(spilled) == 10
    assert spilled.append(frames[2]) == 10
    rows = np.arange(16)
    whole = frames_of(frames[0]).concat([frames[0], frames[2]])
    pd.testing.assert_frame_equal(spilled.take(rows), frames_of(whole).take(whole, rows))
