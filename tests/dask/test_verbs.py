"""Dask's merges, joins and distinct rows, answered by ours, beside pandas."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, lazy
from distributed import Client
from suites.raising import no_other_engine

import dgpuhash

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def strict(cluster: Client) -> Any:
    """Let no verb be answered by Dask."""
    with dgpuhash.dask.enabled(fallback=False), no_other_engine():
        yield


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(5)
    left = pd.DataFrame({"k": rng.integers(0, 30, 80), "x": np.arange(80), "t": "t"})
    right = pd.DataFrame({"k": rng.integers(10, 40, 30), "y": np.arange(30) / 2})
    return left, right


def answered(verb: str) -> int:
    found = dgpuhash.dask.report()
    assert [each for each in found.answers if each.by == "Dask"] == []
    return found.times(verb, "dgpuhash")


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "leftsemi"])
def test_merges(sides, how):
    left, right = sides
    frames = lazy(left, 2), lazy(right, 3)
    merged = frames[0].merge(frames[1], how, "k")
    again = dd.merge(*frames, how, left_on="k", right_on="k", shuffle_method="tasks")
    wanted = left.merge(right, how, "k") if how != "leftsemi" else left[left.k.isin(right.k)]
    assert list(merged) == list(again) == list(wanted)
    assert_same_rows(merged.compute(), wanted)
    assert answered("merge") == 2


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("inner", {"broadcast": True}),
        ("left", {"broadcast": True, "npartitions": 5}),
        ("outer", {"broadcast": True, "npartitions": 4}),
        ("outer", {"indicator": True, "suffixes": ("_l", "_r")}),
    ],
)
def test_arguments_that_are_dasks_alone(sides, how, options):
    left, right = sides
    merged = lazy(left, 2).merge(lazy(right, 3), how, on="k", **options)
    assert merged.npartitions == options.get("npartitions", merged.npartitions)
    known = {name: options[name] for name in ("indicator", "suffixes") if name in options}
    wanted = left.merge(right, how, on="k", **known)
    found = merged.compute()
    if "indicator" in options:
        assert found.pop("_merge").value_counts().to_dict() == (
            wanted.pop("_merge").value_counts().to_dict()
        )
    assert_same_rows(found, wanted)


def test_the_side_of_fewer_partitions_is_indexed(sides):
    left, right = sides
    merged = lazy(left, 2).merge(lazy(right, 5), on="k")
    assert merged.npartitions == 5
    assert_same_rows(merged.compute(), left.merge(right, on="k"))
    # A pandas side is one partition.
    assert lazy(left, 2).merge(right, on="k").npartitions == 2


def test_indexes_and_joins(sides):
    left, right = (side.drop_duplicates("k").set_index("k") for side in sides)
    for ours, theirs in ((lazy(left, 2), lazy(right, 3)), (lazy(left, 1), right)):
        joined = ours.join(theirs)
        assert joined.index.name == "k"
        assert_same_rows(joined.compute().reset_index(), left.join(right).reset_index())
    others = [right.rename(columns={"y": name}) for name in "ab"]
    listed = lazy(left, 2).join([lazy(other, 2) for other in others], how="outer")
    wanted = left.join(others, how="outer")
    assert_same_rows(listed.compute().reset_index(), wanted.reset_index())
    # No common column: Dask merges by the indexes.
    assert len(lazy(left, 2).merge(lazy(right, 2)).compute()) == len(left.join(right, how="inner"))
    assert answered("join") == 3 and answered("merge") == 1


class Frame(dd.DataFrame):
    """A subclass with a merge of its own."""

    def merge(self, right: Any, how: str = "inner", on: Any = None, **options: Any) -> Any:
        """Merge, and tell by which verb."""
        return super().merge(right, how, on, **options).assign(merged=1)


def test_subclasses_keep_their_own_verbs(sides):
    left, right = sides
    frame = Frame(lazy(left, 2).expr)
    assert "merged" in frame.merge(lazy(right, 2), on="k")
    joined = frame.join(lazy(right.set_index("k"), 2), on="k")
    assert "merged" in joined
    assert answered("merge") == answered("join") == 1


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize(("subset", "split_out"), [(None, True), ("k", 3), (["k", "t"], False)])
def test_distinct_rows(sides, keep, subset, split_out):
    left, _ = sides
    distinct = lazy(left, 4).drop_duplicates(
        subset, keep=keep, split_out=split_out, split_every=2, shuffle_method="tasks"
    )
    assert distinct.npartitions == {True: 2, 3: 3, False: 1}[split_out]
    pd.testing.assert_frame_equal(
        distinct.compute().sort_index(), left.drop_duplicates(subset, keep=keep)
    )


def test_distinct_values_and_their_numbers(sides):
    left, _ = sides
    values = left["k"].astype("float64").where(left["k"] > 3)
    for name in (None, ("a", 1)):
        lazily = dd.from_pandas(values.rename(name), 4, sort=False)
        distinct = lazily.drop_duplicates()
        assert distinct.name == name
        pd.testing.assert_series_equal(
            distinct.compute().sort_index(), values.rename(name).drop_duplicates()
        )
        assert lazily.nunique().compute() == values.nunique()
        assert lazily.nunique(dropna=False).compute() == values.nunique(dropna=False)
    labels = lazy(left.set_index("k"), 3).index
    distinct = labels.drop_duplicates()
    assert isinstance(distinct, dd.Index)
    pd.testing.assert_index_equal(
        distinct.compute().sort_values(), pd.Index(sorted(set(left["k"])), name="k")
    )
    assert labels.nunique().compute() == left["k"].nunique()
    counts = labels.value_counts().compute()
    assert counts.to_dict() == left["k"].value_counts().to_dict()
    # One partition in its order, as in pandas.
    alone = lazy(left, 1).drop_duplicates("k", ignore_index=True)
    pd.testing.assert_frame_equal(alone.compute(), left.drop_duplicates("k", ignore_index=True))
    pd.testing.assert_series_equal(lazy(left, 3).nunique().compute(), left.nunique())
    assert answered("nunique") == 6
