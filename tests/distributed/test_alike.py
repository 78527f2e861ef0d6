"""Distributed index against a frame's index, for all kinds of keys."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import IndexChanged, KeyTypeError
from dgpuhash.frames import FrameIndex, Lookup, keys_frame

DAY = datetime.date(2026, 3, 1)
STORED = {
    "int8": pd.Series([1, 2, -1], dtype="int8"),
    "int64": pd.Series([1, 2**53 + 1, -1]),
    "uint64": pd.Series([1, 2**63, 2**53 + 1], dtype="uint64"),
    "float64": pd.Series([1.0, 2.5, 2.0**70]),
    "Int64": pd.Series([1, None, 2**53 + 1], dtype="Int64"),
    "bool": pd.Series([True, False, True]),
    "datetime": pd.Series(pd.date_range(DAY, periods=3, unit="s")),
    "date": pd.Series([DAY, DAY, None], dtype="date32[day][pyarrow]"),
    "str": pd.Series(["a", "b", None]),
}
KEYS: list[Any] = [
    [2**70],
    [None],
    [1.0, 2.5],
    [2**53 + 1, 0.5, 1],
    [2**63, -1, 2.5, None],
    2**70,
    [DAY, None, datetime.date(9999, 1, 1)],
    [pd.Timestamp(DAY), pd.Timestamp("2026-03-01T00:00:00.5"), DAY],
    np.datetime64(DAY),
    [DAY, "x"],
    ["a", None],
    [],
    np.array([]),
    np.array([], "U1"),
    np.array([], object),
    np.array([], "M8[s]"),
    pd.Series([], dtype="float64"),
    {"k": np.array([])},
    pa.array([], pa.int8()),
]


def outcome(ask: Callable[[], Any]) -> Any:
    """Return the answer, or the type and message of the error."""
    try:
        return ask()
    except (KeyTypeError, ValueError) as error:
        return type(error), str(error)


def assert_alike(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, Lookup):
        assert_frame_equal(found.frame, wanted.frame)
        assert found.query_rows.tolist() == wanted.query_rows.tolist()
        assert found.found.tolist() == wanted.found.tolist()
    elif isinstance(wanted, pd.DataFrame):
        assert_frame_equal(found, wanted)
    elif isinstance(wanted, pd.Series):
        assert_series_equal(found, wanted)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for label in wanted:
            assert_alike(found[label], wanted[label])
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("mode", "stored"),
    [*(("distributed", each) for each in STORED), ("independent", "Int64"), ("replicated", "int8")],
)
def test_lists_and_no_keys_of_any_dtype(threads, mode, stored):
    rows = pd.DataFrame({"k": STORED[stored], "v": range(3)})
    alone = FrameIndex.build(rows, "k")
    with DistributedIndex.build(rows, "k", mode=mode, client=threads) as index:
        for keys in KEYS:
            for verb in ("contains", "lookup", "find"):
                wanted = outcome(lambda verb=verb, keys=keys: getattr(alone, verb)(keys))
                found = outcome(lambda verb=verb, keys=keys: getattr(index, verb)(keys))
                assert_alike(found, wanted)


@pytest.mark.parametrize("stored", ["int64", "Int64", "date"])
def test_lists_are_erased(threads, stored):
    rows = pd.DataFrame({"k": STORED[stored], "v": range(3)})
    alone = FrameIndex.build(rows, "k")
    with DistributedIndex.build(rows, "k", client=threads) as index:
        for keys in [[2**70], [], np.array([], "M8[s]"), [None], [1.0, 2.5], [DAY, None]]:
            asked = outcome(lambda keys=keys: keys_frame(keys, alone.encoder, alone.meta))
            wanted = outcome(lambda asked=asked: alone.erase(asked))
            if isinstance(asked, tuple):
                wanted = asked
            assert_alike(outcome(lambda keys=keys: index.erase(keys)), wanted)
            assert len(index) == len(alone)


def test_keys_of_several_columns(threads):
    rows = pd.DataFrame({"a": [1, 2], "b": pd.Series([DAY, DAY]).astype("M8[s]"), "v": [7, 8]})
    keys = [(2, DAY), (2**70, DAY), (1, datetime.date(9999, 1, 1)), (1, DAY)]
    with DistributedIndex.build(rows, ["a", "b"], client=threads) as index:
        assert index.contains(keys).tolist() == [True, False, False, True]
        alone = FrameIndex.build(rows, ["a", "b"])
        assert_frame_equal(index.lookup(keys), alone.lookup(keys))
        assert index.erase(keys) == 2


DAYS = pd.to_datetime(["2020-01-01", None])
TYPED = {
    **{dtype: pd.Series([1, None], dtype=dtype) for dtype in ("float64", "Int64")},
    **{dtype: pd.Series([1, 0], dtype=dtype) for dtype in ("int64", "bool")},
    **{dtype: pd.Series(["a", None], dtype=dtype) for dtype in ("str", "category")},
    "zoned": pd.Series(DAYS.tz_localize("UTC")),
    "dates": pd.Series(pa.array([0, None], pa.date32()), dtype="date32[day][pyarrow]"),
}


def check_empty(index: DistributedIndex, typed: pd.Series) -> None:
    """Assert the answers of an index without rows to keys of a dtype.

    They are those of a frame index without rows.
    """
    left = pd.DataFrame({"k": typed, "x": [1, 2]})
    alone, epoch = FrameIndex.build(pd.DataFrame(columns=["k", "y"]), "k"), index.epoch
    lazy = dd.from_pandas(left, npartitions=2)

    # Keys of texts have the dtype that they have beside rows: no worker knows that none has any.
    def told(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.astype({"k": object}) if typed.dtype in ("str", "category") else frame

    for how, persist in {"inner": True, "left": False, "semi": True, "anti": False}.items():
        merged = index.merge(lazy, how=how, persist=persist).compute().reset_index(drop=True)
        wanted = alone.merge(left, how=how).reset_index(drop=True)
        assert_frame_equal(told(merged), told(wanted))
    assert_series_equal(index.contains(typed), alone.contains(typed))
    assert_frame_equal(told(index.lookup(left)), told(alone.lookup(left)))
    assert not index.find(left).found.any()
    assert index.erase(left) == index.erase(lazy) == 0
    if typed.dtype not in ("str", "category"):
        assert index.epoch == epoch


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
def test_an_index_without_rows_has_no_key_of_any_type(threads, mode):
    empty = pd.DataFrame(columns=["k", "y"])
    with DistributedIndex.build(empty, "k", mode=mode, client=threads) as index:
        for typed in TYPED.values() if mode == "distributed" else [TYPED["Int64"]]:
            check_empty(index, typed)
        lazy = index.merge(pd.DataFrame({"k": [1]}))
        index.insert(pd.DataFrame({"k": ["a"], "y": [None]}, dtype=object))
        for ask in (index.contains, index.merge, index.erase, index.insert):
            with pytest.raises(KeyTypeError, match=r"holds int64.* holds string"):
                ask(pd.DataFrame({"k": [1], "y": [None]}))
        with pytest.raises(IndexChanged):
            lazy.compute()
        assert index.contains(["a"]).tolist() == [True]
        assert index.erase(["a"]) == 1
        check_empty(index, TYPED["int64"])
        assert index.insert(pd.DataFrame({"k": ["b"], "y": [None]}, dtype=object)) == 1


def test_a_log_knows_no_erase_of_keys_that_only_an_empty_index_bears(threads, tmp_path):
    empty = pd.DataFrame(columns=["k", "y"])
    with DistributedIndex.build(empty, "k", durable=tmp_path / "log", client=threads) as index:
        assert index.erase([1]) == 0
        index.insert(pd.DataFrame({"k": ["a"], "y": [None]}, dtype=object))
    with DistributedIndex.load(f"{tmp_path}/log", client=threads) as index:
        assert index.contains(["a", "b"]).tolist() == [True, False]


def warned(merge: Callable[[], Any]) -> tuple[int, Any]:
    """Return the number of warnings about floats, and the merge.

    The floats are no integers.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = merge()
    said = [each for each in caught if each.category is UserWarning]
    assert all("int and float columns where the float values" in str(each.message) for each in said)
    return len(said), found


WHOLE, FRACTIONS = [1.0, 2.0, 3.0, np.nan], [1.0, 2.0, 2.5, np.nan]


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
def test_tasks_warn_where_integers_meet_floats_that_are_none(threads, mode):
    left = pd.DataFrame({"k": [1.0, 2.5, 3.0, 4.0], "x": range(4)})
    stored = pd.DataFrame({"k": [1, 2, 3, 9], "y": range(4)})
    parts, alone = dd.from_pandas(left, npartitions=2, sort=False), FrameIndex.build(stored, "k")
    with DistributedIndex.build(stored, "k", mode=mode, client=threads) as index:
        for how in ("inner", "left", "semi", "anti"):
            # Of two partitions one has such a value.
            count, found = warned(lambda how=how: index.merge(parts, how=how).compute())
            assert count == 1
            _, wanted = warned(lambda how=how: alone.merge(left, how=how, promote="nullable"))
            assert_frame_equal(found.reset_index(drop=True), wanted.reset_index(drop=True))
        persisted = parts.persist()
        assert warned(lambda: index.merge(persisted, persist=True).compute())[0] == 1
        assert warned(lambda: index.merge(left[:1]).compute())[0] == 0
        assert warned(lambda: index.lookup(left))[0] == 0
        integers = left[["x"]].rename(columns={"x": "k"})
        assert warned(lambda: index.merge(integers).compute())[0] == 0
        index.erase(stored)
        assert warned(lambda: index.merge(parts).compute())[0] == 0


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
@pytest.mark.parametrize("values", [WHOLE, FRACTIONS])
def test_tasks_warn_of_floats_of_the_index(threads, mode, values):
    stored = pd.DataFrame({"k": values, "y": range(4)})
    left = pd.DataFrame({"k": [1, 2, 3, 4], "x": range(4)})
    parts = dd.from_pandas(left, npartitions=2)
    # For each partition, whichever shard has such a value.
    each = 2 if values is FRACTIONS else 0
    assert warned(lambda: left.merge(stored, on="k"))[0] == each / 2
    with DistributedIndex.build(stored, "k", mode=mode, client=threads) as index:
        for _ in range(2):
            merged = index.merge(parts)
            count, found = warned(lambda merged=merged: merged.compute())
            assert count == each
            assert found["y"].tolist() == ([0, 1, 2] if values is WHOLE else [0, 1])
        # No epoch, and no index like it, is told what another one was.
        index.erase([2.5])
        assert warned(lambda: index.merge(parts).compute())[0] == 0
        index.insert(pd.DataFrame({"k": [0.5], "y": [7]}))
        assert warned(lambda: index.merge(parts).compute())[0] == 2
