"""`dgpuhash.merge` of Dask frames beside pandas, with every other engine shut."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import lazy, merged_lazily
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import KEY_COLUMNS
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import (
    ColumnError,
    KeyTypeError,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster

MAKERS = KEY_COLUMNS | {"narrow": lambda keys: KEY_COLUMNS["ints"](keys).astype("int32")}
HOWS = ["inner", "left", "right", "outer", "semi", "anti", "left_anti", "right_anti"]
KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, None]), min_size=1, max_size=12)
QUICKLY = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def partitions(merged: dd.DataFrame) -> list[pd.DataFrame]:
    """Return the partitions of a lazy frame, each with the dtypes of its meta."""
    with no_other_engine():
        parts = [part.compute() for part in merged.partitions]
    for part in parts:
        assert list(part.columns) == list(merged.columns)
        for label, dtype in part.dtypes.items():
            if not isinstance(dtype, pd.CategoricalDtype):
                assert dtype == merged.dtypes[label], label
    return parts


def rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as sorted tuples of texts, with one word for all nulls."""
    told = [
        tuple("null" if pd.isna(each) else str(each).removesuffix(".0") for each in row)
        for row in frame.itertuples(index=False, name=None)
    ]
    return sorted(told)


def expected(left: pd.DataFrame, right: pd.DataFrame, how: str, **options: Any) -> pd.DataFrame:
    if how not in ("semi", "anti"):
        return left.merge(right, how=how, **options)  # type: ignore[arg-type]
    found = left.reset_index().merge(right, how="inner", **options)["index"]
    return left[left.index.isin(found) == (how == "semi")]


@QUICKLY
@given(
    keys=st.tuples(KEYS, KEYS),
    kind=st.sampled_from(sorted(MAKERS)),
    how=st.sampled_from(HOWS),
    parts=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    placed=st.sampled_from(["auto", "replicate"]),
)
def test_one_key(threads, keys, kind, how, parts, placed):
    left, right = (MAKERS[kind](some) for some in keys)
    ours = pd.DataFrame({"k": left, "v": np.arange(len(left)), "flag": left.notna()})
    theirs = pd.DataFrame({"k": right, "v": np.arange(len(right)) * 2, "w": "x"})
    build = "auto" if how in ("right", "right_anti") else placed
    merged = dgpuhash.merge(lazy(ours, parts[0]), lazy(theirs, parts[1]), how, on="k", build=build)
    found = pd.concat(partitions(merged))
    wanted = expected(ours, theirs, how, on="k")
    assert rows(found) == rows(wanted)


@QUICKLY
@given(
    keys=st.tuples(KEYS, KEYS),
    kinds=st.tuples(st.sampled_from(["ints", "floats", "narrow"]), st.sampled_from(["texts"])),
    how=st.sampled_from(["inner", "left", "right", "outer"]),
)
def test_two_keys_of_two_names(threads, keys, kinds, how):
    frames = []
    for side, some in zip("ab", keys, strict=True):
        columns = {f"{side}{place}": MAKERS[kind](some) for place, kind in enumerate(kinds)}
        frames.append(pd.DataFrame(columns | {f"v{side}": np.arange(len(some))}))
    on = {"left_on": ["a0", "a1"], "right_on": ["b0", "b1"]}
    merged = dgpuhash.merge(lazy(frames[0], 2), lazy(frames[1], 2), how, **on)
    assert rows(pd.concat(partitions(merged))) == rows(frames[0].merge(frames[1], how, **on))


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    left = pd.DataFrame({"k": [5, 3, 1, 3, 9, 2], "x": np.arange(6)})
    right = pd.DataFrame({"k": [3, 2, 3, 7], "y": [10, 20, 30, 40]})
    return left, right


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
def test_rows_come_in_the_order_of_the_side_that_asks(threads, sides, how):
    left, right = sides
    merged = dgpuhash.merge(lazy(left, 3), lazy(right, 2), how, on="k")
    found = pd.concat(partitions(merged)[: merged.npartitions - 3 * (how == "outer")])
    if how == "right":
        assert found["y"].tolist() == [10, 10, 20, 30, 30, 40]
    else:
        kept = left if how in ("left", "outer") else left[left["k"].isin([2, 3]) == (how != "anti")]
        assert list(dict.fromkeys(found["x"].tolist())) == kept["x"].tolist()
    swapped = dgpuhash.merge(lazy(left, 3), lazy(right, 2), on="k", build="left")
    assert swapped.compute()["y"].tolist() == [10, 10, 20, 30, 30]


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_index_keys_and_mixed_ones(threads, sides, how):
    left, right = sides
    by_index = right.set_index("k")
    merged = dgpuhash.merge(
        lazy(left, 2), lazy(by_index, 2), how, left_on="k", right_index=True, indicator=True
    )
    wanted = left.merge(by_index, how, left_on="k", right_index=True, indicator=True)
    assert rows(pd.concat(partitions(merged))) == rows(wanted)
    ours, theirs = left.set_index("k"), by_index
    both = dgpuhash.merge(lazy(ours, 2), lazy(theirs, 2), how, left_index=True, right_index=True)
    wanted = ours.merge(theirs, how, left_index=True, right_index=True)
    found = pd.concat(partitions(both))
    assert found.index.name == "k"
    assert rows(found.reset_index()) == rows(wanted.reset_index())


def test_options_of_pandas(threads, sides):
    left, right = (side.rename(columns={"x": "v", "y": "v"}) for side in sides)
    ours, theirs = lazy(left, 2), lazy(right, 2)
    merged = dgpuhash.merge(ours, theirs, "outer", on="k", suffixes=("_l", "_r"), indicator="from")
    wanted = left.merge(right, "outer", on="k", suffixes=("_l", "_r"), indicator="from")
    assert rows(merged.compute()) == rows(wanted)
    in_order = dgpuhash.merge(ours, theirs, on="k", sort=True).compute()
    assert in_order["k"].tolist() == sorted(in_order["k"])
    crossed = dgpuhash.merge(ours, theirs, "cross").compute()
    assert rows(crossed) == rows(left.merge(right, "cross"))
    wide = right.assign(more=1)
    narrow = dgpuhash.merge(ours, lazy(wide, 2), on="k", columns=["more"])
    assert list(narrow.columns) == ["k", "v", "more"]
    assert len(narrow.compute()) == len(left.merge(right, on="k"))


def test_nulls_meet_as_asked(threads):
    left = pd.DataFrame({"k": [1.0, np.nan, 2.0], "x": [1, 2, 3]})
    right = pd.DataFrame({"k": [np.nan, 2.0], "y": [1, 2]})
    for equal, how in itertools.product([True, False], ["inner", "left", "outer", "anti"]):
        found = dgpuhash.merge(lazy(left, 2), lazy(right, 1), how, on="k", nulls_equal=equal)
        wanted = dgpuhash.merge(left, right, how, on="k", nulls_equal=equal)
        assert rows(found.compute()) == rows(wanted), (equal, how)


@pytest.mark.parametrize(
    ("validate", "left", "right"),
    [("1:1", [1, 2], [1]), ("1:1", [1, 1], [1, 2]), ("m:1", [1, 1], [2]), ("1:m", [2, 2], [1])],
)
def test_keys_that_are_not_unique(threads, validate, left, right):
    ours, theirs = (lazy(pd.DataFrame({"k": keys * 3}), 2) for keys in ([*left], [*right]))
    with pytest.raises(pd.errors.MergeError, match=r"not unique in (left|right) dataset"):
        dgpuhash.merge(ours, theirs, on="k", validate=validate).compute()
    good = lazy(pd.DataFrame({"k": np.arange(9)}), 3)
    for how in ("inner", "left", "right", "outer"):
        assert len(dgpuhash.merge(good, good, how, on="k", validate=validate).compute()) == 9


def test_a_frame_of_the_clients_own(threads, sides):
    left, right = sides
    beside = dgpuhash.merge(lazy(left, 3), right, "outer", on="k")
    assert rows(pd.concat(partitions(beside))) == rows(left.merge(right, "outer", on="k"))
    other = dgpuhash.merge(left, lazy(right, 2), "left", on="k").compute()
    pd.testing.assert_frame_equal(other, merged_lazily(left, right, "left", on="k"))


def test_empty_sides_and_partitions(threads, sides):
    left, right = sides
    for how in ("inner", "left", "right", "outer"):
        for some, others in ((left[:0], right), (left, right[:0]), (left[:0], right[:0])):
            found = dgpuhash.merge(lazy(some, 1), lazy(others, 1), how, on="k")
            assert rows(found.compute()) == rows(some.merge(others, how, on="k"))
    gaps = lazy(left, 3).map_partitions(lambda part: part[part["k"] > 4])
    assert len(dgpuhash.merge(gaps, lazy(right, 2), "outer", on="k").compute()) == 6


def test_one_heavy_key_and_one_null(threads):
    keys = np.where(np.arange(20_000) % 5 < 4, 7, np.arange(20_000))
    right = pd.DataFrame({"k": keys, "y": np.arange(20_000)})
    left = pd.DataFrame({"k": [7, 4, -1], "x": [1, 2, 3]})
    found = dgpuhash.merge(lazy(left, 1), lazy(right, 4), "outer", on="k")
    assert rows(found.compute()) == rows(left.merge(right, "outer", on="k"))
    nulls = pd.DataFrame({"k": [np.nan] * 4, "z": [1, 2, 3, 4]})
    assert len(dgpuhash.merge(lazy(nulls, 2), lazy(nulls, 2), on="k").compute()) == 16


def test_numbers_beyond_the_precision_of_floats(threads):
    keys = [2**53, 2**53 + 1]
    ints, floats = pd.DataFrame({"k": keys}), pd.DataFrame({"k": [float(2**53), 1.0]})
    found = dgpuhash.merge(lazy(ints, 1), lazy(floats, 1), on="k").compute()
    assert found["k"].tolist() == [2**53]


def test_bad_input(threads, sides, monkeypatch):
    ours, theirs = (lazy(side, 2) for side in sides)
    for error, match, options in (
        (ColumnError, "No common columns", {"right": theirs.rename(columns={"k": "q"})}),
        (KeyError, "nothing", {"on": "nothing"}),
        (SpecError, "not a valid Merge type", {"how": "sideways"}),
        (SpecError, "not a valid argument", {"validate": "2:2", "on": "k"}),
        (SpecError, "build=", {"build": "both"}),
        (SpecError, "npartitions=0", {"npartitions": 0}),
        (UnsupportedError, "build='left'", {"build": "left", "how": "left"}),
        (UnsupportedError, "build='right'", {"build": "right", "how": "right"}),
        (ValueError, "columns overlap", {"right": theirs.rename(columns={"y": "x"}), "on": "k",
                                         "suffixes": (None, None)}),
        (KeyTypeError, "object and int64|int64 and", {"right": theirs.assign(k="a"), "on": "k"}),
        (pd.errors.MergeError, "Can not pass on", {"how": "cross", "on": "k"}),
    ):  # fmt: skip
        asked = {"left": ours, "right": theirs} | options
        with pytest.raises(error, match=match):
            dgpuhash.merge(**asked)
    with pytest.raises(UnsupportedError, match="scheduler='threads'"):
        dgpuhash.merge(ours, theirs, "outer", on="k").compute(scheduler="threads")
    with pytest.raises(TypeError, match="Series or DataFrame"):
        dgpuhash.merge(ours, [1, 2])


def test_times_of_tables_beside_dask_frames_stay_times(threads):
    pl = pytest.importorskip("polars")
    times = [datetime.time(1), datetime.time(0, 0, 1), None]
    column = pa.array(times, pa.time64("us"))
    for key, value in (("k", "v"), ("v", "k")):
        table = pa.table({key: column, value: [1, 2, 3]})
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        for other in (table, pl.from_arrow(table)):
            lazily = dd.from_pandas(frame.rename(columns={"v": "w"}), npartitions=2)
            for sides in ((lazily, other), (other, lazily)):
                found = dgpuhash.merge(*sides, on="k").compute()
                assert sorted(map(str, found["v"])) == sorted(map(str, frame["v"]))
                assert sorted(map(str, found["k"])) == sorted(map(str, frame["k"]))
