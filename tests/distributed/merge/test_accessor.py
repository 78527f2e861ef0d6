"""``ddf.dgpuhash`` with frames, and the rows of an index as a lazy frame, beside pandas."""

from __future__ import annotations

import itertools
import subprocess
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from distributed import wait
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import ColumnError, IndexChanged, SpecError
from dgpuhash.frames.merge.keys import MergeError

pytestmark = pytest.mark.cluster


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "k": rng.integers(0, 40, 200),
            "a": rng.integers(0, 3, 200),
            "t": [f"t{n}" for n in rng.integers(0, 9, 200)],
        }
    )


@pytest.mark.parametrize("keep", ["first", "last", False])
@pytest.mark.parametrize(("subset", "ranges"), [(None, 5), ("k", None), (["a", "t"], 1)])
def test_one_row_of_each_key(threads, frame, keep, subset, ranges):
    distinct = lazy(frame, 6).dgpuhash.drop_duplicates(subset, keep=keep, npartitions=ranges)
    assert distinct.npartitions == (ranges or 3)
    with no_other_engine():
        # One by one: each computation makes the hash ranges anew.
        found = pd.concat([part.compute() for part in distinct.partitions]).sort_index()
    pd.testing.assert_frame_equal(found, frame.drop_duplicates(subset, keep=keep))


def test_which_keys_are_there(threads, frame):
    others = pd.DataFrame({"k": [3, 3, 8, 99], "x": 1})
    ours = dd.from_pandas(frame, npartitions=4)
    for values in (others, lazy(others, 2)):
        mask = ours.dgpuhash.isin(values)
        with no_other_engine():
            found = mask.compute()
        pd.testing.assert_series_equal(found, frame["k"].isin([3, 8, 99]), check_names=False)
        assert len(ours[mask].compute()) == found.sum()


def test_merges_with_frames_and_with_indexes(threads, frame):
    right = pd.DataFrame({"k": np.arange(30), "y": np.arange(30)})
    ours = lazy(frame, 3)
    merged = ours.dgpuhash.merge(lazy(right, 2), "k", how="outer", validate="m:1")
    assert len(merged.compute()) == len(frame.merge(right, "outer", "k"))
    with DistributedIndex.build(lazy(right, 2), on="k", client=threads) as index:
        assert len(ours.dgpuhash.merge(index, how="right").compute()) >= 30
        with pytest.raises(SpecError, match="sort= in a merge with an index"):
            ours.dgpuhash.merge(index, sort=True)
    with pytest.raises(SpecError, match="persist= in a merge with a frame"):
        ours.dgpuhash.merge(right, persist=True)
    with pytest.raises(SpecError, match="keep="):
        ours.dgpuhash.drop_duplicates(keep="some")
    with pytest.raises(KeyError, match="nothing"):
        ours.dgpuhash.drop_duplicates("nothing")
    with pytest.raises(ColumnError):
        ours.dgpuhash.isin(right[["y"]])


@pytest.mark.parametrize("mode", ["distributed", "replicated", "independent"])
@pytest.mark.parametrize("how", ["left", "right", "outer"])
def test_merges_with_an_index_tell_its_other_rows(threads, frame, mode, how):
    right = pd.DataFrame({"k": np.arange(20, 60), "y": np.arange(40)})
    with DistributedIndex.build(lazy(right, 3), on="k", mode=mode, client=threads) as index:
        merged = index.merge(lazy(frame, 4), how=how)
        with no_other_engine():
            parts = [part.compute() for part in merged.partitions]
    for part in parts:
        assert part.dtypes.to_dict() == merged.dtypes.to_dict()
    found, wanted = pd.concat(parts), frame.merge(right, how, "k")
    columns = list(wanted)
    pd.testing.assert_frame_equal(
        found.sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


HOWS = ["inner", "left", "right", "outer", "semi", "anti"]


@pytest.mark.parametrize("mode", ["distributed", "replicated", "independent"])
def test_merges_with_an_index_tell_where_rows_are(threads, frame, mode):
    right = pd.DataFrame({"k": np.arange(20, 60), "y": np.arange(40)})
    with DistributedIndex.build(lazy(right, 3), on="k", mode=mode, client=threads) as index:
        for how, persist in itertools.product(HOWS[:4], [False, True]):
            merged = index.merge(lazy(frame, 4), how=how, indicator="side", persist=persist)
            parts = [part.compute() for part in merged.partitions]
            for part in parts:
                assert part.dtypes.to_dict() == merged.dtypes.to_dict()
            found, wanted = pd.concat(parts), frame.merge(right, how, "k", indicator="side")
            columns = list(wanted)
            pd.testing.assert_frame_equal(
                found.sort_values(columns, ignore_index=True),
                wanted.sort_values(columns, ignore_index=True),
                check_dtype=False,
            )
        plain = index.merge(lazy(frame, 4), how="semi", indicator=True)
        assert list(plain.columns) == list(frame)
        with pytest.raises(SpecError, match="indicator option"):
            index.merge(frame, indicator=3)
        with pytest.raises(ColumnError, match="existing column"):
            index.merge(frame, indicator="a")


@pytest.mark.parametrize("mode", ["distributed", "replicated", "independent"])
def test_merges_with_an_index_of_keys_that_are_to_be_unique(threads, mode):
    once, twice = pd.DataFrame({"k": range(9)}), pd.DataFrame({"k": [*range(9), 4]})
    wrong = {"1:1": {"left", "right"}, "1:m": {"left"}, "m:1": {"right"}, "m:m": set()}
    hows = itertools.cycle([*HOWS, "inner"])
    for right in (once, twice):
        stored = lazy(right.assign(y=1), 3)
        with DistributedIndex.build(stored, on="k", mode=mode, client=threads) as index:
            for left, (validate, sides) in itertools.product((once, twice), wrong.items()):
                how = next(hows)
                given = {"how": how, "validate": validate, "persist": how == "inner"}
                if ("left" in sides and left is twice) or ("right" in sides and right is twice):
                    with pytest.raises(MergeError, match="are not unique in"):
                        lazy(left, 2).dgpuhash.merge(index, **given).compute()
                else:
                    merged = lazy(left, 2).dgpuhash.merge(index, **given)
                    assert len(merged.compute()) == len(dgpuhash.merge(left, right, how, "k"))
    with DistributedIndex.build(once, on="k", mode=mode, client=threads) as index:
        with pytest.raises(SpecError, match="not a valid argument"):
            index.merge(once, validate="2:2")
        told = index.merge(lazy(once, 2), validate="1:m").dgpuhash.explain()
        assert "checked before: keys of the left side are unique" in told


@pytest.mark.parametrize("mode", ["distributed", "replicated", "independent"])
def test_the_rows_of_an_index(threads, frame, mode):
    with DistributedIndex.build(lazy(frame, 5), on="k", mode=mode, client=threads) as index:
        rows = index.to_dask_dataframe()
        columns = list(frame)
        assert index.columns == columns
        pd.testing.assert_frame_equal(
            rows.compute().sort_values(columns, ignore_index=True),
            frame.sort_values(columns, ignore_index=True),
        )
        assert len(index.head(7)) == 7
        told = index.explain(lazy(frame, 4), how="outer")
        assert told.startswith("outer merge: 4 partitions of the left side ask for ['k']")
        assert "200 rows" in told and mode in told and told.count("\n") == 3
        assert "which keys" in index.explain(frame, how="semi")
        assert index.nbytes >= frame["k"].nbytes
        with pytest.raises(SpecError, match="n=-1"):
            index.head(-1)
        index.insert(frame[:1])
        with pytest.raises(IndexChanged):
            rows.compute()


def test_a_lazy_merge_tells_how_it_runs(threads, frame, tmp_path):
    right = pd.DataFrame({"k": np.arange(30), "y": np.arange(30), "z": "z"})
    left, stored = dd.from_pandas(frame, npartitions=4), dd.from_pandas(right, npartitions=2)
    merged = left.dgpuhash.merge(stored, on="k", how="outer", validate="m:1", npartitions=5)
    told = merged[["k", "y"]].dgpuhash.explain().splitlines()
    assert told == [
        "outer merge by 'k': 4 partitions of the left side ask, in their order",
        "indexed: the right side, as rows come in the order of the left side",
        "placed: distributed over 5 hash ranges of its keys",
        "stored: its keys and columns ['y']",
        "left side: 4 partitions, 1.6 KiB, columns ['k'] of 3",
        "right side: 2 partitions, 480 B, columns ['k', 'y'] of 3",
        "sent: keys to their owners; back: ['y']",
        "checked before: keys of the right side are unique",
        "then: 5 partitions with rows of the right side that nothing matches",
        "result: 9 partitions, divisions unknown",
    ]
    last = merged.partitions[-1].dgpuhash.explain()
    assert "chosen alone: 1 partition" in last and "result: 1 partition" in last
    inner = left.dgpuhash.merge(stored, on="k")
    told = inner[inner["a"] > 0].dgpuhash.explain()
    assert "columns ['k', 'a', 't'], 1 condition before the merge" in told
    assert left.dgpuhash.explain().startswith("no merge or groupby of dgpuhash")
    assert inner.persist().dgpuhash.explain().startswith("no merge or groupby of dgpuhash")


def explained(threads, frame, tmp_path, case):
    left = dd.from_pandas(frame, npartitions=4)
    right = pd.DataFrame({"k": np.arange(30), "y": np.arange(30)})
    stored = dd.from_pandas(right, npartitions=2)
    one = dd.from_pandas(frame, npartitions=1)
    if case == "parquet":
        stored.to_parquet(tmp_path)
        stored = dd.read_parquet(tmp_path, filesystem="arrow")
    if case == "persisted":
        stored = stored.persist()
        wait(stored)
    merged = {
        "right": lambda: left.dgpuhash.merge(stored, on="k", how="right"),
        "semi": lambda: left.dgpuhash.merge(stored, left_on="a", right_on="y", how="semi"),
        "one": lambda: one.dgpuhash.merge(left, on="k"),
        "build": lambda: left.dgpuhash.merge(stored, on="k", build="left"),
        "copied": lambda: left.dgpuhash.merge(stored, on="k", build="replicate"),
        "pandas": lambda: left.dgpuhash.merge(right, on="k"),
        "cross": lambda: left.dgpuhash.merge(stored, how="cross"),
        "labels": lambda: left.dgpuhash.merge(stored.set_index("k"), left_on="k", right_index=True),
        "indexes": lambda: left.dgpuhash.merge(stored, left_index=True, right_index=True),
    }.get(case, lambda: left.dgpuhash.merge(stored, on="k"))()
    return merged.dgpuhash.explain()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("right", ["indexed: the left side, as how='right' keeps each row of the right side"]),
        ("semi", ["by 'a' = 'y'", "as how='semi' tells", "back: which keys", "divisions known"]),
        ("one", ["the right side ask", "the left side, as it has one partition", "replicated"]),
        ("build", ["indexed: the left side, by build='left'", "stored: its keys and columns"]),
        ("copied", ["by build='replicate'", "sent: nothing: each worker has all rows"]),
        ("pandas", ["replicated, all rows on each worker, as it is one partition", "480 B"]),
        ("cross", ["cross merge: 4 part", "no keys and columns ['k', 'y']", "each row meets all"]),
        (
            "labels",
            ["'k' = the index", "and the labels of rows", "right side: 2 partitions, bytes"],
        ),
        ("indexes", ["both sides have divisions", "nothing by hash", "divisions known"]),
        ("parquet", ["right side: 2 partitions, "]),
        ("persisted", ["right side: 2 partitions, "]),
    ],
)
def test_what_a_lazy_merge_tells(threads, frame, tmp_path, case, words):
    told = explained(threads, frame, tmp_path, case)
    assert [word for word in words if word not in told] == [], told
    if case in {"parquet", "persisted"}:
        assert "bytes unknown" not in told


def test_several_merges_and_those_with_indexes_are_told(threads, frame):
    left, right = lazy(frame, 4), lazy(frame[:20], 2)
    outer = left.dgpuhash.merge(right, on="k", how="outer")
    told = outer.dgpuhash.merge(right, on="k", suffixes=("", "_r")).dgpuhash.explain()
    first, second = told.split("\n\n")
    assert first.startswith("merge 1: outer") and second.startswith("merge 2: inner")
    assert "left side: 7 partitions, merge 1, columns" in second
    both = dd.concat([left.dgpuhash.merge(right, on="k", how=how) for how in ("left", "inner")])
    assert "shared: its shards are those of merge 1" in both.dgpuhash.explain()
    with DistributedIndex.build(right, on="k", client=threads, name="told") as index:
        for asking in (left, left.persist()):
            told = asking.dgpuhash.merge(index, how="semi").dgpuhash.explain().splitlines()
            assert told == [
                "semi merge by 'k': 4 partitions of the left side ask the index 'told', in their "
                "order",
                "stored: 3 shards, distributed, epoch 1, columns ['k', 'a', 't']",
                "sent: keys to their owners; back: which keys are there",
                "result: 4 partitions, divisions unknown",
            ]
        told = left.dgpuhash.merge(index, how="outer").dgpuhash.explain()
        assert "back: ['a', 't']" in told and "result: 7 partitions" in told
        assert "then: 3 partitions with rows of the index that nothing matches" in told


def test_accessors_are_there_after_an_import():
    program = (
        "import dgpuhash, sys; assert 'pandas' not in sys.modules;"
        "import pandas as pd; frame = pd.DataFrame({'k': [1, 1]});"
        "assert 'dgpuhash.frames' not in sys.modules;"
        "assert len(frame.dgpuhash.drop_duplicates()) == 1;"
        "import dask.dataframe as dd; assert dd.from_pandas(frame).dgpuhash.merge"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_lazy_series_tells_how_it_is_made(threads, frame):
    left = dd.from_pandas(frame, npartitions=4)
    total = dgpuhash.groupby(left, "k")["a"].sum()
    assert total.dgpuhash.explain() == total.to_frame().dgpuhash.explain()
    assert total.dgpuhash.explain().startswith("sum by 'k': 4 partitions are reduced")
    assert left.dgpuhash.isin(frame[["k"]]).dgpuhash.explain().startswith("isin merge by 'k'")
    assert left["a"].dgpuhash.explain().startswith("no merge or groupby of dgpuhash")
    assert "sum by 'a'" in left["k"].dgpuhash.groupby(left["a"]).sum().dgpuhash.explain()
