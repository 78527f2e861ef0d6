"""FrameIndex out of memory, at each allocation of its tables in turn."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import FrameIndex, KeyEncoder
from dgpuhash.frames.dataframes.pandas import PandasFrames

ROWS = pd.DataFrame({"k": np.arange(300), "name": [f"n{key % 7}" for key in range(300)]})
MORE = pd.DataFrame({"k": np.arange(400, 700), "name": "m"})
DOUBLES = pd.DataFrame({"k": np.arange(250, 350), "name": "d"})


def short_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let one allocation fail; return a list that grows with each."""
    seen: list[int] = []
    real = CpuBackend.empty

    def empty(self: CpuBackend, shape: Any, dtype: Any) -> Any:
        seen.append(number)
        if len(seen) == number:
            raise MemoryError("Unable to allocate 9 PiB")
        return real(self, shape, dtype)

    monkeypatch.setattr(CpuBackend, "empty", empty)
    return seen


def check(index: FrameIndex, on: list[str], rows: pd.DataFrame) -> None:
    assert len(index) == len(rows)
    assert_frame_equal(index.frame(), rows)
    asked = pd.concat([ROWS, MORE, DOUBLES])[on].drop_duplicates()
    assert_frame_equal(index.merge(asked, on=on), asked.merge(rows, on=on))


def insert(batch: pd.DataFrame) -> Callable[[FrameIndex, pd.DataFrame], pd.DataFrame]:
    def change(index: FrameIndex, rows: pd.DataFrame) -> pd.DataFrame:
        index.insert(batch)
        return pd.concat([rows, batch], ignore_index=True)

    return change


def erase(keys: range) -> Callable[[FrameIndex, pd.DataFrame], pd.DataFrame]:
    def change(index: FrameIndex, rows: pd.DataFrame) -> pd.DataFrame:
        gone = rows["k"].isin(keys)
        on = ROWS[ROWS["k"].isin(keys)]
        assert index.erase(on) == int(gone.sum())
        return rows[~gone].reset_index(drop=True)

    return change


CHANGES = {
    "new keys": [insert(MORE)],
    "the first doubles": [insert(DOUBLES)],
    "more doubles": [insert(DOUBLES), insert(DOUBLES)],
    "few rows erased": [erase(range(20))],
    "most rows erased": [erase(range(280))],
    "all rows erased": [erase(range(300)), insert(DOUBLES)],
}


@pytest.mark.parametrize(
    ("on", "hash_bits"), [(["k"], 64), (["k", "name"], 64), (["name", "k"], 4)]
)
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_change_without_memory_leaves_the_index_as_it_was(monkeypatch, on, hash_bits, changes):
    *before, change = changes
    encoder = KeyEncoder.for_frame(ROWS, on, hash_bits=hash_bits)
    for number in itertools.count(1, len(on)):
        index, rows = FrameIndex.build(ROWS, on, encoder=encoder), ROWS
        for each in before:
            rows = each(index, rows)
        with monkeypatch.context() as scarce:
            seen = short_at(scarce, number)
            # What only saves memory may not be done without it.
            with contextlib.suppress(OutOfMemoryError):
                rows = change(index, rows)
        check(index, on, rows)
        if len(seen) < number:
            break
        check(index, on, insert(MORE)(index, rows))
    assert number > 1


@pytest.mark.parametrize("on", [["k"], ["k", "name"]])
def test_a_build_and_questions_without_memory_say_so(monkeypatch, on):
    index = FrameIndex.build(pd.concat([ROWS, DOUBLES]), on)
    verbs: list[Callable[[], Any]] = [
        lambda: FrameIndex.build(pd.concat([ROWS, DOUBLES]), on),
        lambda: index.merge(MORE),
        lambda: index.match(ROWS, how="semi"),
        lambda: index.contains(ROWS),
        lambda: index.lookup(ROWS[on]),
        lambda: index.page(ROWS, nbytes=1000),
        lambda: index.codes(),
    ]
    for verb in verbs:
        with monkeypatch.context() as scarce:
            short_at(scarce, 1)
            with pytest.raises(OutOfMemoryError, match=r"9 PiB.*; (free|use)"):
                verb()
    monkeypatch.setattr(PandasFrames, "from_arrays", _greedy)
    monkeypatch.setattr(PandasFrames, "take", _greedy)
    monkeypatch.setattr(PandasFrames, "concat", _greedy)
    index.insert(MORE)
    for verb in (lambda: index.merge(ROWS), lambda: index.lookup(ROWS[on]), index.frame):
        with pytest.raises(OutOfMemoryError, match="8 EiB"):
            verb()


def _greedy(*_: object) -> None:
    raise MemoryError("Unable to allocate 8 EiB")
