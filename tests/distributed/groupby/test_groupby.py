"""`dgpuhash.groupby` of Dask frames beside pandas, with every other engine shut."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, until
from distributed import futures_of, wait
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby.owners import GroupOwners
from dgpuhash.errors import ColumnError, SpecError, UnsupportedError

pytestmark = pytest.mark.cluster

HOWS = "sum mean min max first last var std sem prod any all count median quantile idxmin nunique"


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(31)
    made = pd.DataFrame(
        {
            "k": rng.integers(0, 9, 400),
            "s": np.array(["a", "b", "c", None], dtype=object)[rng.integers(0, 4, 400)],
            "v": rng.random(400),
            "n": rng.integers(-50, 50, 400),
        }
    )
    made["s"] = made["s"].astype("str")
    return made


def told(result: Any) -> Any:
    """Return a lazy result, whose partitions are all like its meta."""
    with no_other_engine():
        parts = dask.compute(*result.to_delayed())
    for part in parts:
        assert type(part) is type(result._meta)
        assert part.index.names == result._meta.index.names
        assert np.all(part.dtypes == result._meta.dtypes)
    return pd.concat(parts).sort_index() if len(parts) > 1 else parts[0]


def same(found: Any, wanted: Any, **options: Any) -> None:
    if wanted.ndim == 1:
        pd.testing.assert_series_equal(found, wanted, **options)
    else:
        pd.testing.assert_frame_equal(found, wanted, **options)


def nothing_is_left(client: Any) -> None:
    """Wait until no worker of the cluster holds states."""
    workers = client.cluster.workers.values()
    until(lambda: not any(plugin_of(each).service(GroupOwners).runs for each in workers))


def test_aggregates(threads, rows):
    ours, theirs = dgpuhash.groupby(lazy(rows, 5), "k"), rows.groupby("k")
    asked = {f"{how} {label}": (label, how) for how in HOWS.split() for label in ("v", "n")}
    result = ours.agg(**asked)
    assert result.npartitions == 3
    same(told(result), theirs.agg(**asked))
    same(told(ours["n"].max()), theirs["n"].max())
    same(told(ours.size()), theirs.size())
    same(told(ours.agg({"v": ["sum", "mean"], "n": "max"})),
         theirs.agg({"v": ["sum", "mean"], "n": "max"}))  # fmt: skip
    same(told(ours["s"].agg(list)), theirs["s"].agg(list))
    same(told(ours["n"].quantile([0.1, 0.9])), theirs["n"].quantile([0.1, 0.9]))
    same(told(ours[["v", "n"]].cov()), theirs[["v", "n"]].cov().sort_index())
    nothing_is_left(threads)


def test_keys(threads, rows):
    rows = rows.set_index(pd.Index(np.arange(400) % 11, name="day"))
    rows["c"] = rows["s"].astype("category")
    rows["half"] = rows["k"] / 2
    source = lazy(rows, 3)
    for by, options in (
        (["s", "half"], {"dropna": False}),
        ("day", {}),
        ("c", {"observed": False}),
        (lambda day: day % 3, {}),
    ):
        ours = dgpuhash.groupby(source, by, npartitions=2, **options)
        theirs = rows.groupby(by, **options)
        found, wanted = told(ours["n"].sum()), theirs["n"].sum()
        same(found.sort_index(), wanted.sort_index())
    ours = dgpuhash.groupby(source, ["s", "k"], as_index=False, npartitions=1)
    same(told(ours["v"].mean()), rows.groupby(["s", "k"], as_index=False)["v"].mean())
    series = dgpuhash.groupby(source["n"], level="day", npartitions=1)
    same(told(series.sum()), rows["n"].groupby(level="day").sum())


def test_few_groups_are_in_one_partition(threads, rows):
    source = lazy(rows.assign(c=rows["s"].astype("category"), b=rows["n"] > 0), 4)
    assert dgpuhash.groupby(source, ["c", "b"])["v"].sum().npartitions == 1
    assert dgpuhash.groupby(source, ["c", "k"])["v"].sum().npartitions == 3
    assert dgpuhash.groupby(source, "b", npartitions=2)["v"].sum().npartitions == 2
    empty = dgpuhash.groupby(source[source["n"] > 99], ["s", "k"])["v"].sum().compute()
    same(empty, rows.iloc[:0].groupby(["s", "k"])["v"].sum())


@pytest.mark.parametrize(
    ("how", "by", "dropna"),
    [("sum", "k", True), ("first", ["s", "k"], False), ("size", "s", True)],
)
def test_transform_keeps_rows_and_divisions(threads, rows, how, by, dropna):
    rows.index = pd.Index(np.arange(400) * 2, name="row")
    source = lazy(rows, 4)
    ours = dgpuhash.groupby(source, by, dropna=dropna)["n"].transform(how)
    assert ours.divisions == source.divisions
    with no_other_engine():
        found = ours.compute()
    wanted = rows.groupby(by, dropna=dropna)["n"].transform(how)
    # Where a row may have no group, integers are nullable.
    same(found, wanted.astype(found.dtype) if found.dtype == "Int64" else wanted)


def test_categories_that_only_partitions_know(threads, rows):
    rows["c"] = pd.Categorical(rows["s"], categories=["d", "c", "b", "a"], ordered=True)
    source = lazy(rows[["c", "k", "n"]], 4)
    source["c"] = source["c"].cat.as_unknown()
    for by, observed, how in (
        ("c", False, "sum"),
        (["k", "c"], True, "median"),
        ("k", True, "max"),
    ):
        ours = dgpuhash.groupby(source, by, observed=observed)
        theirs = rows[["c", "k", "n"]].groupby(by, observed=observed)
        if how != "max":
            ours, theirs = ours["n"], theirs["n"]
        with no_other_engine():
            found = getattr(ours, how)().compute()
        same(found.sort_index(), getattr(theirs, how)().sort_index())


def test_nunique_of_a_heavy_key(threads):
    rows = pd.DataFrame({"k": np.where(np.arange(900) % 10, 7, np.arange(900)), "v": 0.5})
    rows["v"] = np.arange(900) // 2 + rows["v"].where(rows.index % 7 > 0)
    source = lazy(rows, 3)
    ours = dgpuhash.groupby(source, "k")["v"].nunique(dropna=False)
    same(told(ours), rows.groupby("k")["v"].nunique(dropna=False))


def test_counts_of_columns(threads, rows):
    source = lazy(rows, 4)
    with no_other_engine():
        assert source.dgpuhash.nunique("s").compute() == rows["s"].nunique()
        same(source.dgpuhash.nunique(["s", "n"]).compute(), rows[["s", "n"]].nunique())
        counts = source.dgpuhash.value_counts(["s", "k"], normalize=True)
        assert counts.npartitions == 1
        found, wanted = counts.compute(), rows.value_counts(["s", "k"], normalize=True)
        assert np.array_equal(found.to_numpy(), wanted.to_numpy())
        same(found.sort_index(), wanted.sort_index())
        assert source["s"].dgpuhash.nunique(dropna=False).compute() == 4
        kept = source["k"].dgpuhash.drop_duplicates(keep="last").compute()
        same(kept.sort_index(), rows["k"].drop_duplicates(keep="last"))
        apart = source.dgpuhash.value_counts(["s", "k"], sort=False, dropna=False)
        assert apart.npartitions == 3
        same(apart.compute().sort_index(), rows.value_counts(["s", "k"], dropna=False).sort_index())


@pytest.mark.parametrize("known", [True, False])
def test_categories_that_no_row_has_are_counted(threads, known):
    dtype = pd.CategoricalDtype(["z", "b", "a"], ordered=True)
    rows = pd.DataFrame({"c": ["a", "b", None, "a"], "k": [1, 2, 3, 1]}).astype({"c": dtype})
    source = lazy(rows, 3)
    if not known:
        source = source.assign(c=source["c"].cat.as_unknown())
    for options in ({}, {"dropna": False}, {"normalize": True}, {"sort": False}):
        counts = source["c"].dgpuhash.value_counts(**options)
        same(counts.compute().sort_index(), rows["c"].value_counts(**options).sort_index())
        counts = source.dgpuhash.value_counts(["k", "c"], npartitions=2, **options).compute()
        wanted = rows.value_counts(["k", "c"], **options)
        same(counts.sort_index(), wanted.sort_index())
    # Also beside the values of another key, in whose rows the category is null.
    ours = dgpuhash.groupby(source, ["c", "k"], observed=False)
    same(ours.size().compute().sort_index(), rows.groupby(["c", "k"], observed=False).size())


def test_functions_run_where_groups_belong(threads, rows):
    ours, theirs = dgpuhash.groupby(lazy(rows, 4), "k"), rows.groupby("k")
    same(told(ours.apply(spread, least=1.0)), theirs.apply(spread, least=1.0))
    same(told(ours["n"].agg(spread_of)), theirs["n"].agg(spread_of))
    several = ours.agg(a=("n", spread_of), b=("v", "sum"))
    same(told(several), theirs.agg(a=("n", spread_of), b=("v", "sum")))
    centred = ours["v"].transform(lambda part: part - part.min())
    same(told(centred), theirs["v"].transform(lambda part: part - part.min()))
    whole = ours[["v"]].apply(lambda part: part.head(2), meta=theirs[["v"]].apply(len).iloc[:0])
    assert len(whole.compute()) == 2 * rows["k"].nunique()
    with pytest.raises(SpecError, match="meta="):
        ours.apply(lambda part: part["absent"])


def spread(part: pd.DataFrame, least: float) -> float:
    return max(float(part["n"].max() - part["n"].min()), least)


def spread_of(part: pd.Series) -> int:
    return int(part.max() - part.min())


def test_lazy_series_are_keys(threads, rows):
    source = lazy(rows, 4)
    ours = dgpuhash.groupby(source, [source["k"] % 3, "s"])
    same(told(ours["n"].sum()), rows.groupby([rows["k"] % 3, "s"])["n"].sum())
    assert dgpuhash.groupby(source, source["k"])._asked.by == "k"
    ours = dgpuhash.groupby(source["n"], source["s"])
    same(told(ours.nunique()), rows["n"].groupby(rows["s"]).nunique())
    ours = dgpuhash.groupby(source["n"], source["k"]).transform("sum")
    same(ours.compute(), rows["n"].groupby(rows["k"]).transform("sum"))


def test_what_cannot_be_grouped_is_told(threads, rows):
    source = lazy(rows, 2)
    with pytest.raises(ColumnError, match="absent"):
        dgpuhash.groupby(source, "absent")
    with pytest.raises(ColumnError, match="absent"):
        dgpuhash.groupby(source, "k")["absent"]
    with pytest.raises(SpecError, match="absent"):
        dgpuhash.groupby(source, "k").agg("absent")
    with pytest.raises(AttributeError, match="there is agg"):
        dgpuhash.groupby(source, "k").rank()
    with pytest.raises(SpecError, match="npartitions"):
        dgpuhash.groupby(source, "k", npartitions=0)
    with pytest.raises(UnsupportedError, match=r"assign"):
        dgpuhash.groupby(source, rows["k"])
    assert repr(dgpuhash.groupby(source, "k")[["v"]]) == (
        "<LazyGroupBy of 2 partitions by 'k': 3 hash ranges, columns ['v']>"
    )


def test_nothing_is_read_before_it_is_computed(threads):
    class Read(Exception):
        """Raised by a partition that is read."""

    def refuse(number: int) -> pd.DataFrame:
        raise Read(str(number))

    source = dd.from_map(refuse, range(3), meta=pd.DataFrame({"k": [1], "v": [0.5]})[:0])
    result = dgpuhash.groupby(source, "k").sum()
    assert result.dtypes.to_dict() == {"v": np.dtype("float64")}
    with pytest.raises(Read):
        result.compute()
    nothing_is_left(threads)


def test_the_answer_of_a_hash_range_is_made_where_its_groups_are(threads, rows):
    found = dgpuhash.groupby(lazy(rows, 4), "n", npartitions=6).sum().persist()
    wait(found)
    holders = [threads.who_has([each])[each.key][0] for each in futures_of(found)]
    assert len(set(holders)) == len(threads.nthreads()) == 3
    assert holders == holders[:3] * 2


@pytest.mark.parametrize(
    ("backend", "dropna"),
    [(None, True), (None, False), ("numpy_nullable", True), ("pyarrow", False)],
)
def test_nunique_beside_keys(threads, rows, backend, dropna):
    rows = rows if backend is None else rows.convert_dtypes(dtype_backend=backend)
    for by in ("k", ["s", "k"]):
        ours = dgpuhash.groupby(lazy(rows, 3), by, as_index=False, dropna=False)
        theirs = rows.groupby(by, as_index=False, dropna=False)
        for column, verb in (("n", "nunique"), ("v", "agg"), ("s", "agg"), ("k", "nunique")):
            wanted = theirs[column].nunique(dropna=dropna)
            given = () if verb == "nunique" else ("nunique",)
            found = told(getattr(ours[column], verb)(*given, dropna=dropna))
            order = list(wanted.columns)
            found = found.sort_values(order, ignore_index=True)
            same(found, wanted.sort_values(order, ignore_index=True))
