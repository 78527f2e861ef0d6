"""What Dask's optimizer makes of merges, and which tasks they become."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy, until
from dask.dataframe.dask_expr._expr import Filter
from dask.dataframe.dask_expr.io.io import FusedIO
from dask.dataframe.dask_expr.io.parquet import ReadParquet
from distributed import futures_of

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.merge.steps import BuildExpr, ProbeExpr
from dgpuhash.frames.merge.partition import PartitionPlan

pytestmark = pytest.mark.cluster


@pytest.fixture
def files(tmp_path) -> tuple[dd.DataFrame, dd.DataFrame]:
    """Return two frames that are read from files: the first has four partitions."""
    left = pd.DataFrame({"k": np.arange(40) % 9, "a": np.arange(40), "b": 1.5, "x": "l"})
    right = pd.DataFrame({"k": np.arange(12), "c": np.arange(12), "d": 2.5, "x": "r"})
    for name, frame, parts in (("left", left, 4), ("right", right, 2)):
        lazy(frame, parts).to_parquet(tmp_path / name)
    return dd.read_parquet(tmp_path / "left"), dd.read_parquet(tmp_path / "right")


def read(merged: dd.DataFrame) -> dict[str, set[str]]:
    """Return the columns that each source is read with, by the folder's name."""
    found = {}
    for each in merged.optimize(fuse=False).expr.walk():
        each = each.operand("_expr") if isinstance(each, FusedIO) else each
        if isinstance(each, ReadParquet):
            found[str(each.operand("path")).rsplit("/", 1)[-1]] = set(each.columns)
    return found


def test_columns_that_nobody_wants_are_not_read(threads, files):
    left, right = files
    merged = dgpuhash.merge(left, right, on="k")
    assert read(merged[["a", "c"]]) == {"left": {"k", "a"}, "right": {"k", "c"}}
    assert read(merged["x_y"]) == {"left": {"k", "x"}, "right": {"k", "x"}}
    assert read(merged.index) == {"left": {"k"}, "right": {"k"}}
    assert read(dgpuhash.merge(left, right, "semi", on="k")) == {
        "left": {"k", "a", "b", "x"},
        "right": {"k"},
    }
    assert read(dgpuhash.merge(left, right, "outer", on="k")[["d"]])["right"] == {"k", "d"}
    found = merged[["x_y", "a"]].compute()
    wanted = left.compute().merge(right.compute(), on="k")[["x_y", "a"]]
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
def test_filters_go_to_the_side_that_they_are_about(threads, files, how):
    left, right = files
    merged = dgpuhash.merge(left, right, how, on="k")
    filters = [lambda frame: frame["a"] > 20, lambda frame: frame["k"] < 5]
    if how in ("inner", "left", "right", "outer"):
        filters += [lambda frame: frame["c"] < 6, lambda frame: frame["x_y"] == "r"]
        filters += [lambda frame: (frame["a"] > 20) & (frame["c"] < 6)]
    ours, theirs = left.compute(), right.compute()
    if how in ("semi", "anti"):
        whole = ours[ours["k"].isin(theirs["k"]) == (how == "semi")]
    else:
        whole = ours.merge(theirs, how, on="k")
    for keep in filters:
        found = merged[keep(merged)].compute()
        wanted = whole[keep(whole)]
        columns = list(wanted)
        pd.testing.assert_frame_equal(
            found.sort_values(columns, ignore_index=True),
            wanted.sort_values(columns, ignore_index=True),
            check_dtype=False,
        )
    first = merged[filters[0](merged)].optimize(fuse=False).expr
    (probe,) = first.find_operations(ProbeExpr)
    pushed = any(isinstance(each, Filter) for each in probe.frame.walk())
    assert pushed == (how in ("inner", "left", "semi", "anti"))


def test_one_partition_takes_few_tasks(threads, files):
    left, right = files
    merged = dgpuhash.merge(left, right, on="k")
    graph = merged[["a"]].partitions[0].optimize().__dask_graph__()
    probes = [key for key in graph if str(key[0]).startswith("dgpuhash_probe")]
    assert len(probes) == 1
    assert len(graph) <= 12
    whole = dgpuhash.merge(left, right, "outer", on="k")
    assert whole.npartitions == 4 + 3
    assert len(whole.partitions[2].compute()) == 10 + sum(np.arange(20, 30) % 9 < 0)


@pytest.mark.parametrize("how", ["inner", "right", "outer"])
def test_chosen_partitions_are_those_of_the_whole(threads, files, how):
    left, right = files
    merged = dgpuhash.merge(left, right, how, on="k")
    columns = [label for label in merged.columns if label not in ("x_x", "x_y", "b")]
    # Of files of which little is read Dask puts several into one partition.
    narrow, parts = merged[columns], merged.npartitions
    each = [narrow.partitions[number].compute() for number in range(parts)]
    for chosen in ([parts - 1], [0, parts - 1], [parts - 1, 0], [1, 0], list(range(parts))):
        found = narrow.partitions[chosen].compute()
        assert_same(found, pd.concat([each[number] for number in chosen]))
    wanted = left.compute().merge(right.compute(), how, on="k")[columns]
    pd.testing.assert_frame_equal(
        pd.concat(each).sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


def test_a_partition_is_read_and_put_by_one_task(threads, files):
    left, right = files
    merged = dgpuhash.merge(left, right[right["c"] > 2], "outer", on="k", npartitions=2)
    graph = merged.optimize().__dask_graph__()
    assert len([key for key in graph if "dgpuhash_put" in str(key)]) == right.npartitions
    # Four partitions are read, probed and confirmed; two are put; a seal, and two tails.
    assert len(graph) == 3 * 4 + 2 + 1 + 2
    wanted = left.compute().merge(right.compute().query("c > 2"), "outer", on="k")
    pd.testing.assert_frame_equal(
        merged.compute().sort_values(["k", "a"], ignore_index=True),
        wanted.sort_values(["k", "a"], ignore_index=True),
        check_dtype=False,
    )


def builds(*merges: dd.DataFrame) -> set[str]:
    return {
        each._name
        for merged in merges
        for each in merged.optimize(fuse=False).expr.find_operations(BuildExpr)
    }


def test_expressions_have_a_graph_before_they_are_lowered(threads, files):
    """Dask 2026.1.1 asks for it in `map_partitions`, to see whether an argument is a collection."""
    left, right = files
    labelled = lazy(left.compute().set_index("a"), 2), lazy(right.compute().set_index("c"), 2)
    merges = [
        dgpuhash.merge(left, right, on="k"),
        dgpuhash.merge(*labelled, left_index=True, right_index=True, suffixes=("", "_r")),
    ]
    for merged in merges:
        last = (merged.expr.lower_completely()._name, merged.npartitions - 1)
        assert last in merged.expr.__dask_graph__()
        counted = merged.map_partitions(len, meta=("rows", int)).compute()
        assert counted.sum() == len(merged)


def test_merges_share_a_build(threads, files):
    left, right = files
    inner, outer = (dgpuhash.merge(left, right, how, on="k") for how in ("inner", "left"))
    assert len(builds(inner, outer, inner.partitions[1], inner.partitions[0])) == 1
    assert len(builds(inner, dgpuhash.merge(left, right, left_on="a", right_on="k"))) == 2
    again = dgpuhash.merge(left, right, on="k")
    assert again._name == inner._name


def test_nothing_is_built_before_it_is_computed(threads):
    class Opened(Exception):
        """Raised by a partition that is read."""

    def refuse(number: int) -> pd.DataFrame:
        raise Opened(str(number))

    meta = pd.DataFrame({"k": [1]})[:0]
    source = dd.from_map(refuse, range(3), meta=meta)
    merged = dgpuhash.merge(source, source, "outer", on="k")
    assert merged.optimize().npartitions == 6
    assert list(merged.columns) == ["k"]
    with pytest.raises(Opened):
        merged.compute()
    assert_nothing_is_left(threads)


def assert_nothing_is_left(client: Any) -> None:
    """Wait until no worker of the cluster holds a shard."""
    workers = client.cluster.workers.values()
    until(lambda: not any(plugin_of(each).shards._shards for each in workers))
    until(lambda: not any(plugin_of(each).shards._staged for each in workers))


def test_shards_go_when_they_are_not_wanted(threads, files):
    left, right = files
    merged = dgpuhash.merge(left, right, "outer", on="k").persist()
    assert len(merged.compute()) == len(left.compute().merge(right.compute(), "outer", on="k"))
    assert_nothing_is_left(threads)
    slow = left.map_partitions(slowly, meta=left._meta)
    future = threads.compute(dgpuhash.merge(slow, right, on="k"))
    until(lambda: any(plugin_of(w).shards._shards for w in threads.cluster.workers.values()))
    future.cancel()
    del future
    assert_nothing_is_left(threads)


def slowly(part: pd.DataFrame) -> pd.DataFrame:
    import time

    time.sleep(0.5)
    return part


def test_a_frame_that_comes_out_otherwise_is_refused(threads):
    right = pd.DataFrame({"k": np.arange(50), "y": 1})
    seen: list[int] = []

    def drawn(number: int) -> pd.DataFrame:
        seen.append(number)
        return pd.DataFrame({"k": np.arange(5) + len(seen), "x": 1})

    drawn.__dask_tokenize__ = lambda: "drawn"  # type: ignore[attr-defined]
    source = dd.from_map(drawn, range(2), meta=pd.DataFrame({"k": [1], "x": [1]})[:0])
    index = dgpuhash.DistributedIndex.build(lazy(right, 2), on="k", client=threads)
    with index:
        merged = index.merge(source, how="outer")
        graph = merged.optimize().__dask_graph__()
        receipts = [key for key in graph if str(key[0]).startswith("dgpuhash-receipt")]
        assert len(receipts) == 2
        assert len(merged.compute()) >= 50


def test_the_meta_is_true_however_the_rows_match(threads):
    left = pd.DataFrame({"k": [1, 2], "i": [1, 2], "flag": [True, False], "n": pd.array([1, 2])})
    right = left.rename(columns={"i": "j", "flag": "sign", "n": "m"})
    for how, promoted in (("left", "j sign"), ("right", "i flag"), ("outer", "i flag j sign")):
        merged = dgpuhash.merge(lazy(left, 2), lazy(right, 1), how, on="k")
        plain = left.dtypes.to_dict() | right.dtypes.to_dict()
        changed = {label for label in merged.columns if merged.dtypes[label] != plain[label]}
        assert changed == set(promoted.split())
        assert merged.compute().dtypes.to_dict() == merged.dtypes.to_dict()
        assert merged.dtypes["k"] == np.dtype("int64")


def test_optimizing_a_chain_of_merges_takes_as_long_as_the_chain(threads, monkeypatch):
    def chain(length: int) -> dd.DataFrame:
        made = lazy(pd.DataFrame({"k": np.arange(12) % 5, "a": 1}), 3)
        for place in range(length):
            other = lazy(pd.DataFrame({"k": np.arange(5), f"b{place}": place}), 2)
            # What Dask fuses lies between the merges.
            made = dgpuhash.merge(made, other, on="k").assign(a=lambda frame: frame["a"] + 1)
            made = made[made["a"] > 0]
        return made

    probes, plans = [], []
    made, planned = ProbeExpr.__dask_tokenize__, PartitionPlan.of.__func__
    monkeypatch.setattr(
        ProbeExpr, "__dask_tokenize__", lambda self: [probes.append(1), made(self)][1]
    )
    counted = classmethod(lambda cls, *given: [plans.append(1), planned(cls, *given)][1])
    monkeypatch.setattr(PartitionPlan, "of", counted)
    counts = {}
    for length in (3, 6):
        probes.clear()
        merged = chain(length)
        merged.optimize()
        counts[length] = len(probes)
    # A step is made anew as often as there are steps, not once for each way through the graph.
    assert counts[6] < 5 * counts[3]
    plans.clear()
    merged = chain(6)
    merged.optimize()
    assert not plans
    assert merged["b5"].sum().compute() == 60


def test_nothing_of_a_query_outlives_it(threads):
    frame = lazy(pd.DataFrame({"k": [1, 2]}), 2).persist()
    kept = weakref.ref(futures_of(frame)[0])
    merged = dgpuhash.merge(frame, frame.assign(b=1), on="k").assign(a=1)
    assert merged.compute()["b"].tolist() == [1, 1]
    del frame, merged
    until(lambda: gc.collect() and kept() is None)
