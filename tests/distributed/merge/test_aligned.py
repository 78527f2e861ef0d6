"""Merges by indexes whose divisions are known, and which side asks, beside pandas."""

from __future__ import annotations

import itertools
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, merged_lazily
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import Filter
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.merge.aligned import BetweenExpr, PairExpr
from dgpuhash.distributed.merge.steps import BuildExpr
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.merge.keys import MergeError

pytestmark = pytest.mark.cluster

HOWS = ["inner", "left", "right", "outer", "semi", "anti", "left_anti", "right_anti"]


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    left = pd.DataFrame({"k": [1, 2, 2, 4, 6, 9, 9], "j": [0, 0, 1, 1, 0, 1, 0]})
    right = pd.DataFrame({"k": [0, 2, 2, 3, 6, 9, 12], "j": [1, 1, 0, 1, 0, 0, 1]})
    left, right = left.assign(x=np.arange(7), flag=True), right.assign(y=np.arange(7))
    return left.set_index("k"), right.set_index("k")


def computed(merged: dd.DataFrame) -> list[pd.DataFrame]:
    """Return the partitions, each within its divisions and with the dtypes of the meta."""
    with no_other_engine():
        parts = list(dask.compute(*merged.to_delayed()))
    for part, (low, high) in zip(parts, itertools.pairwise(merged.divisions), strict=True):
        assert part.dtypes.to_dict() == merged.dtypes.to_dict()
        assert part.index.dtype == merged._meta.index.dtype
        known = part.index.dropna()
        assert not len(known) or (low <= known.min() and known.max() <= high)
    return parts


def same_rows(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    columns = list(wanted)
    found, wanted = (each.reset_index() for each in (found, wanted))
    order = [found.columns[0], *columns]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True),
        wanted.sort_values(order, ignore_index=True),
        check_dtype=False,
    )


def numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_index("k")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("named", ["index", "level", "level first", "level last"])
def test_partitions_with_the_same_labels_are_merged(threads, sides, how, named):
    left, right = sides
    keys: dict[str, Any] = {
        "index": {"left_index": True, "right_index": True},
        "level": {"on": "k"},
        "level first": {"on": ["k", "j"]},
        "level last": {"on": ["j", "k"]},
    }[named]
    ours = dd.repartition(left, [1, 4, 9])
    merged = dgpuhash.merge(ours, dd.repartition(right, [0, 2, 9, 12]), how, **keys)
    assert merged.divisions == (0, 1, 2, 4, 9, 12)
    assert not list(merged.optimize(fuse=False).expr.find_operations(BuildExpr))
    found = pd.concat(computed(merged))
    if how in ("semi", "anti"):
        there = left.assign(row=np.arange(7)).merge(right, **keys)["row"]
        wanted = left[np.isin(np.arange(7), there) == (how == "semi")]
    else:
        wanted = merged_lazily(left, right, how, **keys)
    same_rows(found, wanted)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((0, 9), (3, 5)), ((0, 3), (7, 9)), ((2, 2), (0, 5)), ((4, 4), (4, 4)), ((0, 4, 4), (0, 9)),
     ((0, 1, 2, 3), (3, 4)), ((5, 9), (0, 5))],
)  # fmt: skip
def test_each_row_is_in_one_partition(threads, ours, theirs):
    both = sorted({*ours, *theirs})
    targets = tuple(both) if len(both) > 1 else (both[0], both[0])
    for divisions in (ours, theirs):
        whole = pd.DataFrame({"x": 1.5}, index=np.arange(divisions[0], divisions[-1] + 1.0))
        whole.loc[np.nan] = 0.5
        cuts = np.searchsorted(whole.index[:-1], divisions[1:-1])
        pieces = [whole.iloc[a:b] for a, b in itertools.pairwise([0, *cuts, len(whole)])]
        frame = dd.from_map(itself, pieces, meta=whole[:0], divisions=divisions)
        between = new_collection(BetweenExpr(frame.expr, targets))
        parts = computed(between)
        pd.testing.assert_frame_equal(pd.concat(parts), whole)
        assert parts[-1].index.hasnans


def itself(piece: pd.DataFrame) -> pd.DataFrame:
    return piece


def test_null_labels_are_in_the_last_partition(threads):
    left = pd.DataFrame({"k": [1.0, 3.0, np.nan, 2.0], "x": [1, 2, 3, 4]})
    right = pd.DataFrame({"k": [2.0, 8.0, np.nan], "y": [1, 2, 3]})
    parts = [left.set_index("k")[:1], left.set_index("k")[1:]]
    ours = dd.from_map(itself, parts, meta=parts[0][:0], divisions=[1.0, 2.0, 3.0])
    parts = [right.set_index("k")[:0], right.set_index("k")]
    theirs = dd.from_map(itself, parts, meta=parts[0], divisions=[1.5, 2.0, 8.0])
    merged = dgpuhash.merge(ours, theirs, "outer", left_index=True, right_index=True)
    assert merged.divisions == (1.0, 1.5, 2.0, 3.0, 8.0)
    wanted = left.set_index("k").merge(
        right.set_index("k"), how="outer", left_index=True, right_index=True
    )
    same_rows(pd.concat(computed(merged)), wanted)
    parts = [left.set_index("k")[::2], left.set_index("k")[1::2]]
    untrue = dd.from_map(itself, parts, meta=parts[0][:0], divisions=[1.0, 2.0, 3.0])
    for other in (ours, theirs):
        with pytest.raises(UnsupportedError, match=r"clear_divisions\(\)"):
            dgpuhash.merge(untrue, other, left_index=True, right_index=True).compute()


def test_what_the_optimizer_moves_before_them(threads, sides):
    left, right = sides
    ours, theirs = dd.from_pandas(left, 3), dd.from_pandas(right, 2)
    merged = dgpuhash.merge(ours, theirs, on="k", suffixes=("_l", "_r"))
    narrow = merged[["x"]]
    whole = left.merge(right, on="k", suffixes=("_l", "_r"))
    pd.testing.assert_frame_equal(narrow.compute(), whole[["x"]])
    columns = [
        list(each.columns) for each in narrow.optimize(fuse=False).expr.find_operations(BetweenExpr)
    ]
    assert sorted(columns) == [[], ["x"]]
    filtered = merged[merged["x"] > 2]
    pd.testing.assert_frame_equal(filtered.compute(), whole[whole["x"] > 2])
    between = filtered.optimize(fuse=False).expr.find_operations(BetweenExpr)
    assert [isinstance(each.frame, Filter) for each in between].count(True) == 1
    chosen = merged.partitions[[1, 2]]
    pd.testing.assert_frame_equal(
        chosen.compute(), pd.concat(computed(merged)[1:3]), check_dtype=False
    )
    assert len(merged.partitions[0].optimize().__dask_graph__()) < len(merged.__dask_graph__())


def test_keys_that_are_unique_and_rows_in_order(threads, sides):
    left, right = sides
    ours, theirs = dd.from_pandas(left, 3), dd.from_pandas(right, 2)
    with pytest.raises(MergeError, match="not unique in right dataset"):
        dgpuhash.merge(ours, theirs, on="k", validate="m:1").compute()
    unique = dd.from_pandas(right[~right.index.duplicated()], 2)
    assert len(dgpuhash.merge(ours, unique, on="k", validate="m:1").compute()) == 5
    merged = dgpuhash.merge(ours, theirs, "outer", on=["k", "j"], sort=True)
    pd.testing.assert_frame_equal(
        merged.compute().reset_index()[["k", "j"]],
        left.merge(right, how="outer", on=["k", "j"]).reset_index()[["k", "j"]],
    )
    for other in ({"on": ["j", "k"]}, {"on": "k", "npartitions": 2}):
        with pytest.raises(UnsupportedError, match="sort=True is not supported"):
            dgpuhash.merge(lazy(left[::-1], 3), theirs, "left", sort=True, **other)


def test_divisions_of_the_side_that_asks(threads, sides):
    left, right = sides
    ours, theirs = dd.from_pandas(left, 3), dd.from_pandas(right, 1)
    for how, asking in (
        ("inner", (ours, theirs)),
        ("left", (ours, theirs)),
        ("right", (theirs, ours)),
    ):
        merged = dgpuhash.merge(*asking, how, on="k")
        assert merged.divisions == ours.divisions
        found = pd.concat(computed(merged))
        frames = (left, right) if asking[0] is ours else (right, left)
        same_rows(found, frames[0].merge(frames[1], how=how, on="k"))
    hashed = dgpuhash.merge(ours, theirs.clear_divisions(), "outer", on="k")
    assert not hashed.known_divisions


def test_a_left_side_of_one_partition_is_indexed(threads, sides):
    left, right = (side.reset_index() for side in sides)
    for one in (left, lazy(left, 1)):
        merged = dgpuhash.merge(one, lazy(right, 4), on="k")
        assert merged.npartitions == 4
        same_rows(numbered(merged.compute()), numbered(left.merge(right, on="k")))
    graph = dgpuhash.merge(lazy(left, 1), lazy(right, 1), on="k").optimize(fuse=False).expr
    assert list(graph.find_operations(PairExpr))


def test_chosen_columns_are_those_of_the_labels(threads, sides):
    left, right = (side.reset_index() for side in sides)
    wide = right.assign(more=np.arange(7) * 10)[["k", "y", "j", "more"]]
    merged = dgpuhash.merge(lazy(left, 2), lazy(wide, 2), on="k", columns=["more"])
    wanted = left.merge(wide[["k", "more"]], on="k")
    same_rows(numbered(merged.compute()), numbered(wanted))


def test_lazy_keys_are_not_implemented(threads, sides):
    ours, theirs = (lazy(side, 2) for side in sides)
    with pytest.raises(NotImplementedError, match=r"\.assign\(\)"):
        dgpuhash.merge(ours, theirs, left_on="x", right_on=theirs["y"])


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_labels_of_partitions_that_are_empty(threads, sides, how):
    left, right = sides[0].reset_index(), sides[1]
    gaps = lazy(left, 3).map_partitions(lambda part: part[part["k"] > 2])
    for parts in (1, 3):
        merged = dgpuhash.merge(gaps, lazy(right, parts), how, left_on="k", right_index=True)
        found = dask.compute(*merged.to_delayed())
        assert all(part.index.name is None for part in found)
        assert {str(part.index.dtype) for part in found} == {str(merged._meta.index.dtype)}
        wanted = merged_lazily(left[left["k"] > 2], right, how, left_on="k", right_index=True)
        same_rows(pd.concat(found), wanted)
