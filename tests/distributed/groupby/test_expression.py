"""What Dask's optimizer makes of groupbys, and which tasks they become."""

from __future__ import annotations

import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, until
from dask.dataframe.dask_expr.io.io import FusedIO
from dask.dataframe.dask_expr.io.parquet import ReadParquet

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby.owners import GroupOwners
from dgpuhash.distributed.groupby.steps import FoldExpr

pytestmark = pytest.mark.cluster


@pytest.fixture
def file(tmp_path) -> dd.DataFrame:
    """Return a frame that is read from a file of four partitions."""
    rows = pd.DataFrame({"k": np.arange(40) % 9, "a": np.arange(40), "b": 1.5, "x": "l"})
    lazy(rows, 4).to_parquet(tmp_path / "rows")
    return dd.read_parquet(tmp_path / "rows")


def read(result: dd.DataFrame) -> set[str]:
    """Return the columns that the source is read with."""
    for each in result.optimize(fuse=False).expr.walk():
        each = each.operand("_expr") if isinstance(each, FusedIO) else each
        if isinstance(each, ReadParquet):
            return set(each.columns)
    raise AssertionError("no source")


def test_columns_that_nobody_wants_are_not_read(threads, file):
    groups = dgpuhash.groupby(file, "k")
    assert read(groups.size()) == {"k"}
    assert read(groups["a"].sum()) == {"k", "a"}
    assert read(groups.sum()[["b"]]) == {"k", "b"}
    assert read(groups.agg(p=("a", "sum"), q=("b", "max"))["q"]) == {"k", "b"}
    assert read(groups.agg({"a": ["sum", "min"], "b": "max"})[[("a", "min")]]) == {"k", "a"}
    assert read(groups["b"].nunique()) == {"k", "b"}
    assert read(groups["a"].transform("sum")) == {"k", "a"}
    assert read(file.dgpuhash.value_counts("x")) == {"x"}
    rows = file.compute()
    found = groups.agg(p=("a", "sum"), q=("b", "max"))["q"].compute()
    pd.testing.assert_series_equal(
        found.sort_index(), rows.groupby("k").agg(q=("b", "max"))["q"], check_index_type=False
    )
    found = groups.sum()[["b"]].compute().sort_index()
    pd.testing.assert_frame_equal(found, rows.groupby("k")[["b"]].sum(), check_index_type=False)


def test_a_partition_is_read_and_reduced_by_one_task(threads, file):
    rows = file.compute()
    result = dgpuhash.groupby(file[file["a"] > 3], "k", npartitions=2).sum()
    # Four partitions, their seal, and two hash ranges.
    assert len(result.optimize().__dask_graph__()) == 4 + 1 + 2
    wanted = rows[rows["a"] > 3].groupby("k").sum()
    pd.testing.assert_frame_equal(result.compute().sort_index(), wanted, check_index_type=False)
    # They are read once where others need them, too.
    both = dd.concat([result["a"], file["a"]]).optimize().__dask_graph__()
    assert not [key for key in both if "read_parquet" in str(key) and "reduce" in str(key)]


def test_partitions_share_their_states(threads, file):
    result = dgpuhash.groupby(file, "k").sum()
    names = {
        each._name
        for chosen in (result, result.partitions[0], result.partitions[[2, 1]])
        for each in chosen.optimize(fuse=False).expr.find_operations(FoldExpr)
    }
    assert len(names) == 1
    each = [result.partitions[number].compute() for number in range(3)]
    chosen = result.partitions[[2, 0]].compute()
    pd.testing.assert_frame_equal(chosen, pd.concat([each[2], each[0]]))
    assert dgpuhash.groupby(file, "k").sum()._name == result._name


def test_states_go_when_they_are_not_wanted(threads, file):
    def held() -> bool:
        workers = threads.cluster.workers.values()
        return any(plugin_of(each).service(GroupOwners).runs for each in workers)

    kept = dgpuhash.groupby(file, "k").sum().persist()
    assert len(kept.compute()) == 9
    until(lambda: not held())
    slow = file.map_partitions(slowly, meta=file._meta)
    future = threads.compute(dgpuhash.groupby(slow, "k").sum())
    until(held)
    future.cancel()
    del future
    until(lambda: not held())


def slowly(part: pd.DataFrame) -> pd.DataFrame:
    time.sleep(0.5)
    return part


def test_explained(threads, file):
    told = dgpuhash.groupby(file, "k").agg(p=("a", "mean"))[["p"]].dgpuhash.explain()
    lines = told.splitlines()
    assert lines[0] == "agg by 'k': 4 partitions are reduced where they lie"
    assert "columns ['k', 'a']" in lines[3]
    assert lines[-1] == "result: 3 partitions, groups in the order of their keys in each"
    rows = dgpuhash.groupby(file, "k")[["a"]].median().dgpuhash.explain()
    assert "sent: rows to the owners" in rows
    both = dgpuhash.groupby(file, "k")[["a"]].transform("sum").dgpuhash.explain()
    assert both.startswith("inner merge by 'k0'")
    assert "agg by 'k'" in both
    assert "no merge or groupby" in file.dgpuhash.explain()
