"""No other engine runs beneath our verbs: each of those listed raises, and only then."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas.core.algorithms as algorithms
import pandas.core.groupby.groupby as groupby
import pandas.core.groupby.ops as ops
import pandas.core.indexes.base as indexes
import pandas.core.reshape.merge as merging
import pytest
from suites.raising import no_other_engine, verb_runs

import dgpuhash

LEFT = pd.DataFrame({"k": [2, 1, 2], "x": [1.0, 2.0, 3.0]})
RIGHT = pd.DataFrame({"k": [1, 2], "y": ["a", "b"]})
KEYS = np.array([1, 2, 2])
SORTED = pd.Index([1, 3, 4])
DAYS = pd.DatetimeIndex(["2026-01-01", "2026-01-03", "2026-01-04"])
PAIRS = pd.MultiIndex.from_frame(LEFT)
SINGLES = pd.Index([1.0], name="x")
PARTS = dd.from_pandas(LEFT, npartitions=2)
GROUPED = PARTS.groupby("k")
ARRAYS = {
    "IntegerArray": pd.array([1, 2, 2], dtype="Int64"),
    "Categorical": pd.Categorical(["a", "b", "b"]),
    "DatetimeArray": DAYS.array,
    "IntervalArray": pd.arrays.IntervalArray.from_breaks([0, 1, 2]),
    "SparseArray": pd.arrays.SparseArray([0, 0, 1]),
    "ArrowExtensionArray": pd.array([1, 2, 2], dtype="int64[pyarrow]"),
    "ArrowStringArray": pd.array(["a", "b"], dtype="str"),
}

ENGINES: dict[str, Any] = {
    "_MergeOperation": lambda: pd.merge(LEFT, RIGHT),
    "_OrderedMerge": lambda: pd.merge_ordered(LEFT, RIGHT),
    "_AsOfMerge": lambda: pd.merge_asof(LEFT.sort_values("k"), RIGHT, on="k"),
    "_CrossMergeOperation": lambda: merging._CrossMergeOperation(LEFT, RIGHT),
    "_cross_merge": lambda: pd.merge(LEFT, RIGHT, how="cross"),
    "get_join_indexers": lambda: merging.get_join_indexers([KEYS], [KEYS]),
    "get_join_indexers_non_unique": lambda: merging.get_join_indexers_non_unique(KEYS, KEYS),
    "factorize": lambda: pd.factorize(KEYS),
    "factorize ": lambda: algorithms.factorize(KEYS),
    "factorize_array": lambda: algorithms.factorize_array(KEYS),
    "duplicated": lambda: algorithms.duplicated(KEYS),
    "Index.factorize": lambda: pd.Index(KEYS).factorize(),
    "RangeIndex.factorize": lambda: pd.RangeIndex(3).factorize(),
    "DatetimeIndex.factorize": lambda: DAYS.factorize(),
    "Series.factorize": lambda: LEFT["k"].factorize(),
    "Index.join": lambda: SORTED.join(pd.Index([3, 5])),
    "MultiIndex.join": lambda: PAIRS.join(SINGLES, level="x"),
    "Index.duplicated": lambda: pd.Index(KEYS).duplicated(),
    "MultiIndex.duplicated": lambda: PAIRS.duplicated(),
    "Series.duplicated": lambda: LEFT["k"].duplicated(),
    "DataFrame.duplicated": lambda: LEFT.duplicated(),
    "DataFrame.duplicated ": lambda: LEFT.drop_duplicates(),
    "DataFrame.merge": lambda: LEFT.merge(RIGHT),
    "DataFrame.join": lambda: LEFT.join(RIGHT[["y"]]),
    "DataFrame.groupby": lambda: LEFT.groupby("k").sum(),
    "Series.groupby": lambda: LEFT["x"].groupby(LEFT["k"]).sum(),
    "_libs.groupby.group_sum": lambda: ops.libgroupby.group_sum,
    "_libs.groupby.group_quantile": lambda: groupby.libgroupby.group_quantile,
    **{
        f"_libs.join.{name}": lambda name=name: getattr(merging.libjoin, name)
        for name in ("inner_join", "left_outer_join", "full_outer_join")
    },
    **{
        f"_libs.join.{name}": lambda name=name: getattr(indexes.libjoin, name)(
            SORTED.to_numpy(), SORTED.to_numpy()
        )
        for name in ("inner_join_indexer", "left_join_indexer", "outer_join_indexer")
    },
    **{f"{kind}.factorize": each.factorize for kind, each in ARRAYS.items()},
    **{f"{kind}.duplicated": each.duplicated for kind, each in ARRAYS.items()},
    "Merge": lambda: PARTS.merge(RIGHT),
    "Sum": lambda: GROUPED.sum(),
}
ALLOWED: dict[str, Any] = {
    "is_unique": lambda: pd.Index(KEYS).is_unique,
    "get_indexer": lambda: SORTED.get_indexer(pd.Index([3, 5])),
    "reindex": lambda: RIGHT.reindex([1, 2]),
    "concat": lambda: pd.concat([LEFT, RIGHT], axis=1),
    "take": lambda: LEFT.take([0, 1]),
    "sort_values": lambda: LEFT.sort_values("k"),
}


def again(call: Any) -> Any:
    """Return a function of the same code, which finds methods anew if `call` is a bound one."""
    owner = getattr(call, "__self__", None)
    return call if owner is None else lambda: getattr(owner, call.__name__)()


def as_ours(call: Any, *rooms: str) -> Any:
    """Call a function from a function whose file would lie in this library."""
    path = Path(dgpuhash.__file__).parent.joinpath(*rooms, "imagined.py")
    names: dict[str, Any] = {}
    exec(compile("def verb(call):\n    return call()", str(path), "exec"), names)
    return names["verb"](call)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_raises_beneath_a_verb_and_works_elsewhere(name):
    call = again(ENGINES[name])
    with no_other_engine():
        call()
        with (
            verb_runs(),
            pytest.raises(AssertionError, match=rf"(pandas'|Dask's) {name.strip()} was called"),
        ):
            call()
        call()
    with verb_runs():
        call()
    call()


@pytest.mark.parametrize("name", ALLOWED)
def test_what_aligns_frames_is_allowed(name):
    with no_other_engine(), verb_runs():
        ALLOWED[name]()


def test_code_of_ours_on_the_stack_is_a_verb():
    with no_other_engine():
        with pytest.raises(AssertionError, match=r"pandas' DataFrame\.groupby was called"):
            as_ours(lambda: LEFT.groupby("k"), "frames", "merge")
        as_ours(lambda: LEFT.groupby("k"), "bench")
    as_ours(lambda: LEFT.groupby("k"), "frames", "merge")


def test_a_verb_runs_in_all_threads():
    raised = []

    def work() -> None:
        try:
            pd.factorize(KEYS)
        except AssertionError as error:
            raised.append(error)

    with no_other_engine(), verb_runs():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_all_is_as_before_after_nested_blocks_and_errors():
    places = [merging, indexes, algorithms, ops, groupby, pd.DataFrame, pd.Series, pd.Index]
    places += [merging._MergeOperation, type(ARRAYS["Categorical"]).__mro__[1]]
    places += [sys.modules["dask.dataframe.dask_expr._merge"].Merge]
    before = [dict(vars(place)) for place in places]
    with pytest.raises(ZeroDivisionError), no_other_engine():
        with no_other_engine(), verb_runs():
            pass
        with verb_runs(), pytest.raises(AssertionError):
            pd.factorize(KEYS)
        assert [dict(vars(place)) for place in places] != before
        raise ZeroDivisionError
    assert [dict(vars(place)) for place in places] == before


def test_a_block_is_entered_quickly():
    def seconds() -> float:
        start = time.perf_counter()
        with no_other_engine():
            pass
        return time.perf_counter() - start

    assert min(seconds() for _ in range(20)) < 1e-3
