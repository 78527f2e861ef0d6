"""Groupbys of persisted frames in one phase on all workers, beside pandas; what takes tasks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import lazy
from distributed import wait
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.runs import collective
from dgpuhash.errors import IndexLost, KeyTypeError
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.groupby.partial import rows as partial_rows

RNG = np.random.default_rng(71)
ROWS = 1200
FRAME = pd.DataFrame(
    {
        "k": RNG.integers(0, 60, ROWS),
        "j": RNG.integers(0, 4, ROWS).astype(np.int8),
        "v": RNG.integers(-(2**62), 2**62, ROWS),
        "f": np.where(RNG.random(ROWS) < 0.1, np.nan, RNG.normal(size=ROWS)),
        "d": pd.to_datetime(RNG.integers(0, 10**6, ROWS), unit="s"),
        "t": RNG.choice(["a", "b"], ROWS),
    }
)
STATES = {"v": ["sum", "count", "max"], "f": ["mean", "var", "first", "last"], "d": ["min"]}
IN_ONE, BY_TASKS = "groupby in one phase", "groupby by tasks: "


def persisted(frame, partitions=5):
    held = lazy(frame, partitions).persist()
    wait(held)
    return held


@pytest.fixture
def told(dask_logs):
    """Return a function that returns how the groupbys were made since it was called last."""
    dask_logs.set_level(logging.DEBUG, "distributed.dgpuhash.bulk")

    def since():
        name = "distributed.dgpuhash.bulk"
        found = [record.message for record in dask_logs.records if record.name == name]
        dask_logs.clear()
        return found

    return since


def assert_like(found, wanted):
    with no_other_engine():
        found = found.compute()
    same = pd.testing.assert_series_equal if wanted.ndim == 1 else pd.testing.assert_frame_equal
    same(found.sort_index(), wanted.sort_index(), check_index_type=False)


@pytest.mark.parametrize("by", ["k", ["k", "j"], ["j"]], ids=str)
@pytest.mark.parametrize("partitions", [2, 5])
def test_answers_are_those_of_pandas(client, told, by, partitions):
    frame = persisted(FRAME, partitions)
    ours, theirs = dgpuhash.groupby(frame, by), FRAME.groupby(by)
    assert_like(ours.agg(STATES), theirs.agg(STATES))
    assert_like(ours["f"].median(), theirs["f"].median())
    assert_like(ours.size(), theirs.size())
    named = {"a": ("v", "min"), "b": ("f", "sum")}
    assert_like(ours.agg(**named)["b"], theirs.agg(**named)["b"])
    assert told() == [IN_ONE] * 4
    # Pairs of a key and a value first, then the keys of the pairs.
    assert_like(ours["v"].nunique(), theirs["v"].nunique())
    assert told() == [IN_ONE] * 2


def test_rows_for_states(client, told, monkeypatch):
    monkeypatch.setattr(partial_rows, "_FEW_ROWS", 0)
    monkeypatch.setattr(partial_rows, "_SAMPLE", 64)
    distinct = FRAME.assign(k=RNG.permutation(ROWS))
    mixed = distinct.assign(k=np.where(np.arange(ROWS) < 200, distinct["k"] % 5, distinct["k"]))
    for rows in (distinct, mixed):
        found = dgpuhash.groupby(persisted(rows), "k").agg(STATES)
        assert_like(found, rows.groupby("k").agg(STATES))
    assert told() == [IN_ONE] * 2


def test_answers_stay_and_are_grouped_again(client, told):
    frame = persisted(FRAME)
    made = dgpuhash.groupby(frame, ["k", "j"], as_index=False).agg(n=("v", "count")).persist()
    wait(made)
    again = dgpuhash.groupby(made, "j")["n"].sum()
    assert_like(again, FRAME.groupby("j")["v"].count().rename("n"))
    assert told() == [IN_ONE] * 2
    # Hash ranges are whole.
    sizes = [len(part.compute()) for part in made.partitions]
    assert len(sizes) > 1
    assert sum(sizes) == FRAME.groupby(["k", "j"]).ngroups


@pytest.mark.parametrize("ranges", [1, 7])
def test_any_number_of_hash_ranges(client, told, ranges):
    for by, rows in (("k", FRAME), ("t", texts("str"))):
        found = dgpuhash.groupby(persisted(rows), by, npartitions=ranges).agg(STATES)
        assert found.npartitions == ranges
        assert_like(found, rows.groupby(by).agg(STATES))
    # Ranges are those of tasks.
    sums = dgpuhash.groupby(persisted(FRAME), "k", npartitions=ranges)["v"].sum()
    whole = sums.persist()
    for number in {0, ranges - 1}:
        part = sums.partitions[number].compute()
        pd.testing.assert_series_equal(part, whole.partitions[number].compute())
    assert [each for each in told() if "one phase" in each] == [IN_ONE] * 3


@pytest.mark.parametrize("case", ["lazy", "partition"])
def test_what_takes_tasks(client, told, case):
    if case == "lazy":
        doubled = lazy(FRAME, 3).assign(v=lambda rows: rows["v"] // 2)
        found = dgpuhash.groupby(doubled, "k")["v"].sum()
        wanted = FRAME.assign(v=FRAME["v"] // 2).groupby("k")["v"].sum()
    else:
        whole = dgpuhash.groupby(persisted(FRAME), "k", npartitions=2)["v"].sum()
        found, wanted = whole.partitions[1], FRAME.groupby("k")["v"].sum()
        wanted = wanted[wanted.index.isin(found.compute().index)]
    assert_like(found, wanted)
    assert IN_ONE not in told()


@pytest.mark.parametrize("how", ["sum", "median"])
def test_tasks_take_over_where_the_phase_fails(client, told, monkeypatch, how):
    def lost(*args, **kwargs):
        raise IndexLost("a worker left")

    monkeypatch.setattr(collective, "run_collective", lost)
    frame = persisted(FRAME)
    found = getattr(dgpuhash.groupby(frame, "k")["f"], how)()
    assert_like(found, getattr(FRAME.groupby("k")["f"], how)())
    assert told() == [f"{BY_TASKS}a worker left"]


def texts(how: Any) -> pd.DataFrame:
    """Return the rows with texts, and nulls in one partition of five, in a dtype of that name."""
    words = np.array(["", "a", "zwölf", "a\0", "a longer one than eight bytes"], object)
    found = pd.Series(words[RNG.integers(0, 5, ROWS)]).astype(how)
    numbers = pd.Series(RNG.integers(0, 9, ROWS)).astype("Int64")
    found[1000::7], numbers[1100::5] = None, None
    return FRAME.assign(t=found, n=numbers)


@pytest.mark.parametrize(
    ("how", "dropna"),
    [
        ("str", True), ("str", False), ("string[python]", False), ("object", False),
        ("category", True), (pd.ArrowDtype(pa.large_string()), True),
    ],
    ids=str,
)  # fmt: skip
def test_texts_and_nulls(threads, told, how, dropna):
    rows = texts(how)
    frame = persisted(rows)
    for by in ("t", ["n", "t"]):
        options = {"dropna": dropna, "observed": True}
        ours, theirs = dgpuhash.groupby(frame, by, **options), rows.groupby(by, **options)
        asked = {"v": ["sum", "count"], "f": ["mean", "median"], "d": "max"}
        assert_like(ours.agg(asked), theirs.agg(asked))
    assert_like(ours["n"].sum(), theirs["n"].sum())
    # Texts that are aggregated.
    ours, theirs = dgpuhash.groupby(frame, "k")["t"], rows.groupby("k")["t"]
    for verb in ("first", "count"):
        assert_like(getattr(ours, verb)(), getattr(theirs, verb)())
    assert told() == [IN_ONE] * 5
    assert_like(ours.nunique(), theirs.nunique())
    assert told() == [IN_ONE] * 2


def test_numbers_that_may_be_null_and_texts_of_one_partition(client, told):
    rows = texts("str")
    # Codes of numbers without nulls are the numbers, which travel as a column that is no array.
    rows["k"] = rows["k"].astype("Int64")
    rows.loc[:999, "t"] = None
    frame = persisted(rows, 6)
    found, wanted = dgpuhash.groupby(frame, "k", sort=False), rows.groupby("k", sort=False)
    assert_like(found["v"].sum(), wanted["v"].sum())
    assert_like(dgpuhash.groupby(frame, "t")["v"].size(), rows.groupby("t")["v"].size())
    # In order of first appearance.
    one = dgpuhash.groupby(frame, "t", sort=False, dropna=False, npartitions=1, as_index=False)
    pd.testing.assert_frame_equal(
        one.agg(n=("v", "max")).compute(),
        rows.groupby("t", sort=False, dropna=False, as_index=False).agg(n=("v", "max")),
    )
    assert told() == [IN_ONE] * 3


def test_texts_of_one_code(threads, told, monkeypatch):
    monkeypatch.setattr(
        ArrowStrings, "hash", lambda words, seed: np.full(len(words), seed, np.uint64)
    )
    rows = texts("str")
    found = dgpuhash.groupby(persisted(rows), ["t", "j"], dropna=False)["v"].sum()
    assert_like(found, rows.groupby(["t", "j"], dropna=False)["v"].sum())
    assert told() == [IN_ONE]


@pytest.mark.parametrize(
    ("subset", "keep"),
    [
        (["j", "t"], "first"), ("k", "last"), ("f", "first"), ("f", False), ("n", "last"),
        (["d", "c", "t"], False), (None, "first"), (None, False),
    ],
    ids=str,
)  # fmt: skip
def test_distinct_rows(threads, told, subset, keep):
    rows = texts("str").assign(c=lambda frame: frame["t"].astype("category"))
    rows["f"] = np.where(rows["f"] < 0, -0.0, rows["f"])
    rows.loc[::9, "f"] = 0.0
    rows = pd.concat([rows, rows.iloc[100:300]])
    rows.index = pd.Index([f"r{number:05}" for number in range(len(rows))], name="row")
    found = persisted(rows).dgpuhash.drop_duplicates(subset, keep=keep, npartitions=5)
    parts = [part.compute() for part in found.persist().partitions]
    assert told() == ["drop_duplicates in one phase"]
    for part in parts:
        # In the order of the frame.
        assert part.index.is_monotonic_increasing
    wanted = rows.drop_duplicates(subset, keep=keep)
    whole = pd.concat(parts).sort_index()
    pd.testing.assert_frame_equal(whole, wanted)
    assert (np.signbit(whole["f"]) == np.signbit(wanted["f"])).all()


def test_values_of_a_column(client, told, monkeypatch):
    rows = texts("str")
    column = persisted(rows)["t"]
    assert_like(
        column.dgpuhash.drop_duplicates(keep="last"), rows["t"].drop_duplicates(keep="last")
    )
    found = column.dgpuhash.value_counts(sort=False, dropna=False)
    assert_like(found, rows["t"].value_counts(sort=False, dropna=False))
    assert told() == ["drop_duplicates in one phase", IN_ONE]

    def lost(*args, **kwargs):
        raise IndexLost("a worker left")

    monkeypatch.setattr(collective, "run_collective", lost)
    assert_like(column.dgpuhash.drop_duplicates(), rows["t"].drop_duplicates())
    assert told() == ["drop_duplicates by tasks: a worker left"]


def test_keys_that_cannot_be_grouped(client, told):
    rows = FRAME.assign(t=pd.Series([frozenset({n % 5}) for n in range(ROWS)], dtype=object))
    with pytest.raises(KeyTypeError, match="frozenset"):
        dgpuhash.groupby(persisted(rows), "t")["v"].sum().compute()
    assert_like(dgpuhash.groupby(persisted(FRAME), "t")["v"].max(), FRAME.groupby("t")["v"].max())
    assert told() == [IN_ONE]
