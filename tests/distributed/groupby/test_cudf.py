"""Groupbys of Dask frames of cuDF, on one GPU that two workers share, beside pandas' own."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client
from frames.groupby.test_cudf import FRAMES, plain
from frames.test_gpu import on_gpu

import dgpuhash
from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.partial import plan

pytestmark = [pytest.mark.gpu, pytest.mark.cudf, pytest.mark.cluster, pytest.mark.timeout(180)]

RNG = np.random.default_rng(57)
PARTS = 5
# Aggregates of numbers, and of every column.
NUMBERS = ["sum", "prod", "mean", "var", "std", "sem", "median"]
EVERY = ["count", "min", "max", "first", "last", "nunique"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with cluster_of(2, processes=False) as client:
        yield client


@pytest.fixture
def client(cluster: Client) -> Iterator[Client]:
    with cluster.as_current():
        yield cluster


def spread(frame: pd.DataFrame, parts: int = PARTS) -> Any:
    """Return a Dask frame of cuDF partitions."""
    cuts = np.linspace(0, len(frame), parts + 1).astype(int)
    pieces = [frame.iloc[start:end] for start, end in pairwise(cuts)]
    return dd.from_map(on_gpu, pieces, meta=on_gpu(frame.iloc[:0]))


def rows_of(made: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the labels of a result with its keys, and the rows in the order of all values."""
    host = made.to_pandas() if hasattr(made, "to_pandas") else made
    flat = (host if host.ndim == 2 else host.to_frame("value")).reset_index()
    columns = [plain(flat.iloc[:, place]) for place in range(flat.shape[1])]
    found = list(zip(*columns, strict=True))
    labels = [str(label) for label in flat.columns]
    return labels, sorted(found, key=lambda row: list(map(_key, row)))


def _key(value: Any) -> tuple[str, str]:
    if isinstance(value, float):
        return "number", f"{value:.6e}"
    return "other", repr(value)


def assert_same(lazy: Any, expected: Any) -> Any:
    """Assert values and labels, and that each partition has the dtypes of the meta."""
    parts = [part.compute() for part in lazy.partitions]
    for part in parts:
        assert type(part).__module__.startswith("cudf")
        assert list(part.index.names) == list(lazy._meta.index.names)
        if part.ndim == 1:
            assert part.dtype == lazy._meta.dtype
            assert part.name == lazy._meta.name
        else:
            assert part.dtypes.to_dict() == lazy._meta.dtypes.to_dict()
            assert list(part.columns) == list(lazy._meta.columns)
    import cudf

    whole = cudf.concat(parts)
    (labels, found), (wanted_labels, wanted) = rows_of(whole), rows_of(expected)
    assert labels == wanted_labels
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        for left, right in zip(ours, theirs, strict=True):
            if isinstance(right, float):
                assert left == pytest.approx(right, rel=1e-9, nan_ok=True)
            else:
                assert left == right
    return whole


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("by", ["k", "t", ["k", "t"]], ids=str)
@pytest.mark.parametrize(("sort", "dropna"), [(True, True), (True, False), (False, True)])
def test_aggregates_have_the_values_of_pandas(client, nulls, by, sort, dropna):
    frame = FRAMES[nulls]
    ours = dgpuhash.groupby(spread(frame), by, sort=sort, dropna=dropna)
    theirs = frame.groupby(by, sort=sort, dropna=dropna)
    assert_same(ours.size(), theirs.size())
    numbers = [how for how in NUMBERS if how not in {"prod", "sum"}]
    for columns, hows in ((list("isf"), numbers), (list("isfbdx"), EVERY)):
        asked = dict.fromkeys(columns, hows)
        assert_same(ours.agg(asked), theirs.agg(asked))


@pytest.mark.parametrize(("nulls", "by"), [(False, "t"), (True, "k")])
def test_methods_have_the_values_of_pandas(client, nulls, by):
    frame = FRAMES[nulls]
    ours, theirs = dgpuhash.groupby(spread(frame), by), frame.groupby(by)
    for how in NUMBERS:
        columns = list("sf") if how == "prod" else list("isf")
        least = {"min_count": 1} if how in {"sum", "prod"} else {}
        expected = getattr(theirs[columns], how)(**least)
        assert_same(getattr(ours[columns], how)(), expected)
    for how in EVERY:
        assert_same(getattr(ours[list("isfbdx")], how)(), getattr(theirs[list("isfbdx")], how)())
    # By pairs of a key and a value.
    assert_same(ours["i"].nunique(), theirs["i"].nunique())
    for how in ("any", "all"):
        expected = getattr(theirs["b"], how)().astype(bool)
        assert_same(getattr(ours["b"], how)(), expected)


@pytest.mark.parametrize("nulls", [False, True])
def test_named_and_listed_aggregates(client, nulls):
    frame = FRAMES[nulls]
    ours, theirs = dgpuhash.groupby(spread(frame), "k"), frame.groupby("k")
    named = {"a": ("i", "max"), "c": ("k", "count"), "m": ("f", "mean"), "d": ("d", "min")}
    assert_same(ours.agg(**named), theirs.agg(**named))
    how = {"i": ["min", "max"], "f": "mean"}
    assert_same(ours.agg(how), theirs.agg({"i": ["min", "max"], "f": ["mean"]}))
    assert_same(ours["i"].agg(lambda x: x.quantile(0.25)), theirs["i"].quantile(0.25))
    assert_same(ours[["i", "f"]].sum()["f"], dgpuhash.groupby(on_gpu(frame), "k")["f"].sum())
    flat = dgpuhash.groupby(spread(frame), "k", as_index=False)
    found = flat.agg(total=("i", "sum")).compute()
    assert list(found.columns) == ["k", "total"]


@pytest.mark.parametrize("nulls", [False, True])
def test_verbs_that_need_rows(client, nulls):
    frame = FRAMES[nulls]
    ours, theirs = dgpuhash.groupby(spread(frame), "k"), frame.groupby("k")
    one = dgpuhash.groupby(on_gpu(frame), "k")
    assert_same(ours["f"].quantile([0.1, 0.9]), theirs["f"].quantile([0.1, 0.9]))
    for n in (2, -2):
        for verb in ("head", "tail"):
            found = getattr(ours, verb)(n).compute()
            expected = getattr(theirs, verb)(n)
            assert sorted(found.index.to_pandas()) == sorted(expected.index)
    for verb in ("cov", "corr"):
        assert_same(getattr(ours[["i", "f"]], verb)(), getattr(one[["i", "f"]], verb)())
    assert_same(ours["i"].agg("list"), one["i"].agg("list"))
    assert_same(ours["i"].unique(), one["i"].unique())
    assert_same(ours["s"].value_counts(), one["s"].value_counts())
    there = frame.dropna(subset=["i"]).groupby("k")["i"]
    some = dgpuhash.groupby(spread(frame.dropna(subset=["i"])), "k")["i"]
    for how in ("idxmin", "idxmax"):
        assert_same(getattr(some, how)(), getattr(there, how)())


@pytest.mark.parametrize("dropna", [True, False])
def test_transform_keeps_rows_order_and_dtypes(client, dropna):
    frame = FRAMES[True]
    lazy = spread(frame)
    made = dgpuhash.groupby(lazy, "k", dropna=dropna)["i"].transform("max")
    expected = frame.groupby("k", dropna=dropna)["i"].transform("max")
    found = made.compute()
    assert made.npartitions == lazy.npartitions
    assert found.dtype == made._meta.dtype
    assert found.index.to_pandas().tolist() == frame.index.tolist()
    assert plain(found.to_pandas()) == plain(expected)


@pytest.mark.parametrize("npartitions", [1, 3])
def test_order_of_groups(client, npartitions):
    frame = FRAMES[True]
    for sort in (True, False):
        made = dgpuhash.groupby(spread(frame), "k", sort=sort, npartitions=npartitions)["i"].max()
        parts = [plain(part.compute().index.to_pandas()) for part in made.partitions]
        whole = plain(frame.groupby("k", sort=sort)["i"].max().index)
        assert sorted(key for part in parts for key in part) == sorted(whole)
        for part in parts:
            assert part == [key for key in whole if key in set(part)]


def test_counts_of_whole_frames(client):
    frame = FRAMES[True][["k", "t", "x"]]
    lazy = spread(frame)
    assert int(lazy.dgpuhash.nunique("t").compute()) == frame["t"].nunique()
    found = lazy.dgpuhash.nunique().compute()
    assert found.to_dict() == frame.nunique().to_dict()
    counts = lazy.dgpuhash.value_counts("x").compute()
    assert counts.to_pandas().to_dict() == frame["x"].value_counts().to_dict()
    assert counts.to_pandas().is_monotonic_decreasing
    shares = lazy["x"].dgpuhash.value_counts(normalize=True).compute().to_pandas().to_dict()
    assert shares == pytest.approx(frame["x"].value_counts(normalize=True).to_dict())
    assert len(lazy.dgpuhash.drop_duplicates(["k", "t"]).compute()) == len(
        frame.drop_duplicates(["k", "t"])
    )
    whole = spread(FRAMES[True])
    grouped = dgpuhash.groupby(whole["i"], whole["k"])
    assert_same(grouped.max(), FRAMES[True]["i"].groupby(FRAMES[True]["k"]).max())


@pytest.mark.parametrize("parts", [1, 7, 40])
def test_sums_and_variances_are_exact_in_any_partitions(client, parts):
    import cudf

    keys = np.arange(4000) % 3
    values = RNG.normal(size=4000) * 10.0 ** RNG.integers(-3, 3, 4000)
    values[:600], values[-600:] = 1e12, -1e12
    far = 1e9 + RNG.normal(size=4000)
    host = pd.DataFrame({"k": keys, "v": values, "far": far})
    cuts = np.linspace(0, 4000, parts + 1).astype(int)
    pieces = [host.iloc[start:end] for start, end in pairwise(cuts)]
    lazy = dd.from_map(cudf.from_pandas, pieces, meta=cudf.from_pandas(host.iloc[:0]))
    made = dgpuhash.groupby(lazy, "k").agg(total=("v", "sum"), off=("far", "var"))
    found = made.compute().to_pandas()
    for group in range(3):
        own = list(map(Fraction, values[keys == group].tolist()))
        exact = sum(own)
        bound = abs(exact) / 2**51 + sum(map(abs, own)) / 2**92
        assert abs(Fraction(found["total"][group]) - exact) <= bound
        apart = list(map(Fraction, far[keys == group].tolist()))
        mean = sum(apart) / len(apart)
        variance = sum((each - mean) ** 2 for each in apart) / (len(apart) - 1)
        assert abs(Fraction(found["off"][group]) - variance) <= variance / 10**6


def test_infinite_sums_and_nans_that_are_values(client):
    import cudf

    host = pd.DataFrame({"k": [1, 2, 3, 1, 2, 3], "v": [1.0, np.inf, np.inf, 2.0, 5.0, -np.inf]})
    lazy = dd.from_map(cudf.from_pandas, [host[:3], host[3:]], meta=cudf.from_pandas(host[:0]))
    found = dgpuhash.groupby(lazy, "k")["v"].sum().compute().to_pandas()
    assert found[1] == 3.0
    assert np.isposinf(found[2])
    assert np.isnan(found[3])
    strange = cudf.DataFrame({"k": [1, 2, 1]})
    strange["v"] = cudf.Series([1.0, np.nan, np.nan], nan_as_null=False)
    parts = [strange.iloc[:1], strange.iloc[1:]]
    lazy = dd.from_map(lambda part: part, parts, meta=strange.iloc[:0])
    groups = dgpuhash.groupby(lazy, "k")["v"]
    for how in ("count", "sum", "mean", "nunique"):
        ours = getattr(groups, how)().compute().sort_index()
        theirs = getattr(dgpuhash.groupby(strange, "k")["v"], how)()
        assert str(ours.to_arrow().to_pylist()) == str(theirs.to_arrow().to_pylist())


def test_categories_of_each_partition_are_united(client):
    import cudf

    texts = [["b", "a"], ["c", "a"], ["c", None]]
    host = [pd.DataFrame({"t": pd.Categorical(each), "v": [1, 2]}) for each in texts]
    parts = [cudf.from_pandas(each) for each in host]
    lazy = dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])
    made = dgpuhash.groupby(lazy, "t", npartitions=2)["v"].sum()
    found = {}
    for part in made.partitions:
        some = part.compute()
        found |= dict(zip(some.index.to_pandas(), some.to_pandas(), strict=True))
    assert found == {"a": 4, "b": 1, "c": 2}


def test_decimals_and_spans(client):
    import cudf

    texts = ["1.25", "-7.50", None, "3.00", "-0.25", "2.00"]
    frame = cudf.DataFrame({"k": [1, 2, 1, 1, 2, 2]})
    frame["v"] = cudf.Series(texts).astype(cudf.Decimal64Dtype(9, 2))
    frame["e"] = cudf.Series([5, 6, 7, 2**60, 1, 2]).astype("m8[ns]")
    parts = [frame.iloc[:3], frame.iloc[3:]]
    lazy = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
    ours, one = dgpuhash.groupby(lazy, "k")["v"], dgpuhash.groupby(frame, "k")["v"]
    for how in ("sum", "min", "max", "first", "count"):
        assert_same(getattr(ours, how)(), getattr(one, how)())
    # Neither has cuDF an index of decimals.
    with pytest.raises(UnsupportedError, match="as_index=False"):
        dgpuhash.groupby(lazy, "v")["k"].sum()
    found = dgpuhash.groupby(lazy, "v", as_index=False)["k"].sum().compute()
    rows = found.to_arrow(preserve_index=False).to_pylist()
    totals = {str(row["v"]): row["k"] for row in rows}
    assert totals == {"1.25": 1, "-7.50": 2, "3.00": 1, "-0.25": 2, "2.00": 2}
    means = dgpuhash.groupby(lazy, "k")["e"].mean().compute().sort_index()
    assert means.astype("int64").to_arrow().to_pylist() == [(5 + 7 + 2**60) // 3, 3]


def test_keys_that_are_no_columns(client):
    frame = FRAMES[False]
    lazy = spread(frame)
    found = dgpuhash.groupby(lazy, lazy["i"] % 3)["f"].max()
    assert_same(found, frame["f"].groupby(frame["i"] % 3).max())
    found = dgpuhash.groupby(lazy, lambda labels: labels % 4)["i"].sum()
    expected = frame["i"].groupby(frame.index % 4).sum()
    assert sorted(plain(found.compute().to_pandas())) == sorted(plain(expected))
    indexed = lazy.set_index("s", sort=False)
    found = dgpuhash.groupby(indexed, level=0)["i"].max()
    assert_same(found, frame.set_index("s").groupby(level=0)["i"].max())


def test_no_rows(client):
    frame = FRAMES[True]
    lazy = spread(frame[:0], 1)
    for how in (*NUMBERS, *EVERY):
        made = getattr(dgpuhash.groupby(lazy, "k")[["i", "f"]], how)()
        found = made.compute()
        assert len(found) == 0
        assert found.dtypes.to_dict() == made._meta.dtypes.to_dict()
    gaps = spread(frame[frame.index < 80], 5)
    gaps = gaps[gaps["i"] > 40]
    left = frame[(frame.index < 80) & (frame["i"] > 40).fillna(False)]
    assert_same(dgpuhash.groupby(gaps, "k")["i"].max(), left.groupby("k")["i"].max())


def test_rows_travel_where_states_do_not_shrink(client, monkeypatch):
    import cudf

    seen: list[bool] = []
    asked = plan.mostly_distinct_rows

    def spied(*args: Any) -> Any:
        found = asked(*args)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(plan, "mostly_distinct_rows", spied)
    rows = 60_000
    host = pd.DataFrame({"k": RNG.permutation(rows), "v": RNG.integers(0, 99, rows)})
    host.loc[40_000:, "k"] = RNG.integers(0, 50, 20_000)
    pieces = [host[start : start + 20_000] for start in range(0, rows, 20_000)]
    lazy = dd.from_map(cudf.from_pandas, pieces, meta=cudf.from_pandas(host[:0]))
    how = {"v": ["sum", "mean", "first", "var"]}
    found = dgpuhash.groupby(lazy, "k").agg(how).compute().to_pandas().sort_index()
    expected = host.groupby("k").agg(how)
    assert found.index.tolist() == expected.index.tolist()
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-12)
    assert sorted(seen) == [False, True, True]


def test_states_beyond_the_share_of_the_gpu_go_to_files(client, monkeypatch):
    monkeypatch.setattr(worker_memory, "most_on_gpu", lambda: 2000)
    monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 0)
    frame = FRAMES[True]
    ours, theirs = dgpuhash.groupby(spread(frame), ["k", "t"]), frame.groupby(["k", "t"])
    how = {"i": ["min", "count"], "f": ["mean", "var"], "x": ["first"], "d": ["max"]}
    assert_same(ours.agg(how), theirs.agg(how))
    assert_same(ours["i"].median(), theirs["i"].median())


def test_a_key_with_most_rows(client):
    import cudf

    rows = 2**17
    host = pd.DataFrame({"k": RNG.integers(0, 50, rows), "v": RNG.integers(0, 10**9, rows)})
    host.loc[RNG.random(rows) < 0.8, "k"] = 7
    pieces = [host[start : start + rows // 4] for start in range(0, rows, rows // 4)]
    lazy = dd.from_map(cudf.from_pandas, pieces, meta=cudf.from_pandas(host[:0]))
    groups, theirs = dgpuhash.groupby(lazy, "k")["v"], host.groupby("k")["v"]
    for how in ("median", "nunique", "sum"):
        found = getattr(groups, how)().compute().to_pandas().sort_index()
        assert found.tolist() == getattr(theirs, how)().tolist()


def test_dask_s_own_verbs_are_answered(client, monkeypatch):
    import cudf.core.groupby.groupby as engine

    def raising(*_: Any, **__: Any) -> None:
        raise AssertionError("cuDF's groupby was called")

    frame = FRAMES[True]
    lazy = spread(frame)
    with dgpuhash.dask.enabled(fallback=False):
        monkeypatch.setattr(engine._GroupByContextManager, "__init__", raising)
        assert_same(lazy.groupby("k")["i"].max(), frame.groupby("k")["i"].max())
        made = lazy.groupby(["k", "t"]).agg({"i": ["min", "max"], "f": ["mean", "std"]})
        assert_same(
            made, frame.groupby(["k", "t"]).agg({"i": ["min", "max"], "f": ["mean", "std"]})
        )
        assert_same(lazy.groupby("t").size(), frame.groupby("t").size())
        told = {each.verb: each.by for each in dgpuhash.dask.report().answers}
    assert told == {
        "groupby.max": "dgpuhash", "groupby.agg": "dgpuhash", "groupby.size": "dgpuhash"
    }  # fmt: skip


def test_states_that_follow_new_rows(client):
    frame = FRAMES[True]
    named = {
        "n": ("i", "count"), "total": ("i", "sum"), "low": ("i", "min"), "mean": ("f", "mean"),
        "off": ("f", "var"), "text": ("x", "first"), "late": ("d", "last"),
    }  # fmt: skip
    first, second, third = frame[:150], frame[150:300], frame[300:]
    for by in ("k", ["k", "t"]):
        state = DistributedGroupBy.build(spread(first, 3), by, dropna=False, client=client, **named)
        state.update(on_gpu(second))
        since = state.epoch
        changed = third.groupby(by, dropna=False).ngroups
        assert state.update(spread(third, 2)) == changed
        whole = frame.groupby(by, dropna=False).agg(**named)
        assert_same(state.result(), whole)
        assert len(state.changed(since=since).compute()) == changed
        keys = on_gpu(frame)[[by] if isinstance(by, str) else by].iloc[:4]
        told = state.lookup(keys)
        assert type(told).__module__.startswith("cudf")
        wanted = [
            whole.loc[tuple(row) if len(row) > 1 else row[0], "n"]
            for row in zip(*(plain(keys[label].to_pandas()) for label in keys), strict=True)
            if None not in row
        ]
        assert set(wanted) <= set(plain(told["n"].to_pandas()))
        state.close()
    state = DistributedGroupBy.build(spread(frame), "k", client=client, n=("i", "count"))
    state.retract(on_gpu(second))
    expected = pd.concat([first, third]).groupby("k").agg(n=("i", "count"))
    assert_same(state.result(), expected)
    state.close()


def test_refusals(client):
    frame = spread(FRAMES[False])
    groups = dgpuhash.groupby(frame, "k")
    with pytest.raises(UnsupportedError, match="apply with a Python function is not supported"):
        groups.apply(len)
    with pytest.raises(UnsupportedError, match="nlargest"):
        groups["i"].nlargest(2)
    with pytest.raises(UnsupportedError, match="'median'"):
        DistributedGroupBy.build(frame, "k", client=client, middle=("i", "median"))
    pandas_state = DistributedGroupBy.build(
        FRAMES[False][["k", "i"]], "k", client=client, n=("i", "count")
    )
    with pytest.raises(UnsupportedError, match=r"\.to_pandas"):
        pandas_state.update(on_gpu(FRAMES[False][["k", "i"]]))
    pandas_state.close()
