"""Groupbys of persisted frames in one phase on all workers, beside pandas; what takes tasks."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from distributed import wait
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.query import groups_collective
from dgpuhash.errors import IndexLost
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
@pytest.mark.parametrize("partitions", [1, 5])
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


@pytest.mark.parametrize("case", ["text", "lazy", "ranges", "partition"])
def test_what_takes_tasks(client, told, case):
    if case == "text":
        found, wanted = dgpuhash.groupby(persisted(FRAME), "t")["v"].max(), FRAME.groupby("t")
        wanted = wanted["v"].max()
    elif case == "lazy":
        doubled = lazy(FRAME, 3).assign(v=lambda rows: rows["v"] // 2)
        found = dgpuhash.groupby(doubled, "k")["v"].sum()
        wanted = FRAME.assign(v=FRAME["v"] // 2).groupby("k")["v"].sum()
    elif case == "ranges":
        found = dgpuhash.groupby(persisted(FRAME), "k", npartitions=7)["v"].sum()
        wanted = FRAME.groupby("k")["v"].sum()
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

    monkeypatch.setattr(groups_collective, "run_collective", lost)
    frame = persisted(FRAME)
    found = getattr(dgpuhash.groupby(frame, "k")["f"], how)()
    assert_like(found, getattr(FRAME.groupby("k")["f"], how)())
    assert told() == [f"{BY_TASKS}a worker left"]


def test_nulls_of_one_partition_take_tasks(client, told):
    rows = FRAME.assign(k=FRAME["k"].astype("Int64"))
    rows.loc[1000, "k"] = pd.NA
    found = dgpuhash.groupby(persisted(rows), "k", dropna=False)["v"].sum()
    assert_like(found, rows.groupby("k", dropna=False)["v"].sum())
    assert all(message.startswith(BY_TASKS) for message in told())
