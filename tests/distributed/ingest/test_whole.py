"""Persisted Dask frames that lost partitions, fused reads included."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr.io.io import FromGraph
from distributed import Future, futures_of

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import UnsupportedError

pytestmark = pytest.mark.cluster

ROWS = pd.DataFrame({"k": np.arange(80), "v": np.arange(80) / 2})


def fused() -> dd.DataFrame:
    """Return a frame as Dask 2026.8 persists a reader of few columns.

    It has three results for eight partitions.
    """
    graph = {future.key: future for future in held()}
    return new_collection(FromGraph(graph, ROWS[:0], (None,) * 9, list(graph), "read"))


def cut() -> dd.DataFrame:
    """Return a frame that names eight results, three of which exist."""
    graph = {("read", part): future for part, future in enumerate(held())}
    named = [("read", part) for part in range(8)]
    return new_collection(FromGraph(graph, ROWS[:0], (None,) * 9, named, "read"))


def held() -> list[Future]:
    return futures_of(dd.from_pandas(ROWS, npartitions=3).persist())


def read_by_row_groups(path) -> dd.DataFrame:
    """Return a frame whose eight partitions Dask reads several at a time.

    It has few of the file's columns.
    """
    wide = ROWS.assign(**{f"c{number}": 1.0 for number in range(6)})
    wide.to_parquet(path / "rows.parquet", row_group_size=10)
    return dd.read_parquet(path, columns=["k", "v"], split_row_groups=1)


@pytest.mark.parametrize("make", [fused, cut, lambda: fused()[["k", "v"]].assign(v=1.0)])
def test_a_frame_that_lost_partitions_is_named_with_what_helps(threads, make):
    lost = make()
    match = r"'read' .* with 8 partitions, and has 3 results: .* \S+\.repartition\("
    with pytest.raises(UnsupportedError, match=match):
        DistributedIndex.build(lost, on="k")
    with DistributedIndex.build(ROWS, on="k") as index:
        for ask in (
            index.merge,
            lambda left: index.merge(left, persist=True),
            lambda left: left.dgpuhash.merge(index),
            index.insert,
            index.erase,
            index.lookup,
            index.contains,
            lambda left: index.find(left["k"]),
        ):
            with pytest.raises(UnsupportedError, match=match):
                ask(lost)
        assert len(index) == len(ROWS)


@pytest.mark.parametrize("given", ["repartition", "lazy"])
def test_the_remedies_help(threads, tmp_path, given):
    frame = read_by_row_groups(tmp_path)
    assert frame.npartitions == 8
    if given == "repartition":
        frame = frame.repartition(npartitions=frame.npartitions).persist()
    with DistributedIndex.build(frame, on="k") as index:
        assert len(index) == len(ROWS)
        assert_same(index.merge(frame).compute(), ROWS.merge(ROWS, on="k"))
        assert_same(index.merge(frame, persist=True).compute(), ROWS.merge(ROWS, on="k"))
        assert index.erase(frame) == len(ROWS)
        assert index.insert(frame) == len(ROWS)


def test_what_dask_persists_of_a_reader_is_whole_or_said_to_be_none(threads, tmp_path):
    """Whatever the version of Dask does."""
    frame = read_by_row_groups(tmp_path).persist()
    if len(futures_of(frame)) == frame.npartitions:
        assert len(DistributedIndex.build(frame, on="k")) == len(ROWS)
    else:
        with pytest.raises(UnsupportedError, match=r"partitions, and has \d+ results"):
            DistributedIndex.build(frame, on="k")
