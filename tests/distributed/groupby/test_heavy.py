"""Medians and quantiles of keys with more rows than a worker is to have: their rows stay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import lazy, unnamed_files, until
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby import spilling, tasks
from dgpuhash.distributed.groupby.heavy.held import HeldRows
from dgpuhash.distributed.groupby.heavy.rounds import found_by_counts
from dgpuhash.distributed.groupby.owners import GroupOwners
from dgpuhash.distributed.partition import skew
from dgpuhash.distributed.runs import phases
from dgpuhash.distributed.runs.phases import sink
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding
from dgpuhash.frames.groupby.partial.result import ranked_columns, result_of_places

HOWS = ["linear", "lower", "higher", "nearest", "midpoint"]
DTYPES = [
    "int64",
    "int8",
    "uint64",
    "bool",
    "float64",
    "float32",
    "Int16",
    "Float64",
    "M8[s]",
    "m8[ms]",
]


def drawn(rng: np.random.Generator, dtype: str, size: int) -> Any:
    """Return values of a dtype with many equal ones, the least and greatest, and nulls."""
    if dtype == "bool":
        return pd.Series(rng.random(size) < 0.3)
    if dtype in ("float64", "float32"):
        made = rng.choice([-np.inf, np.inf, 0.0, -0.0, -1.5, 1e-300, np.nan], size)
        return pd.Series(np.where(rng.random(size) < 0.5, rng.normal(size=size), made), dtype=dtype)
    if dtype == "Float64":
        # NaNs that are no nulls beside nulls.
        numbers = np.where(rng.random(size) < 0.5, rng.normal(size=size), np.nan)
        return pd.Series(pd.arrays.FloatingArray(numbers, rng.random(size) < 0.2))
    if dtype in ("int64", "int8", "uint64"):
        limits = np.iinfo(dtype)
        some = rng.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
        return pd.Series(np.where(rng.random(size) < 0.5, some, some[:1]))
    some = pd.Series(rng.integers(-5000, 30000, size)).where(rng.random(size) > 0.2)
    return some.astype("Int16" if dtype == "Int16" else dtype)


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 90),
    dtype=st.sampled_from(DTYPES),
    q=st.sampled_from([None, 0.5, 0.0, 1.0, [0.1, 0.99], [0.3, 0.3, 0.75]]),
    how=st.sampled_from(HOWS),
    cuts=st.lists(st.integers(0, 90), max_size=4),
)
@settings(max_examples=20, deadline=None)
def test_counts_find_what_stands_at_a_place(seed, size, dtype, q, how, cuts):
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(size) < 0.7, 7, rng.integers(0, 4, size))
    frame = pd.DataFrame({"k": keys, "v": drawn(rng, dtype, size)})
    if q is None or dtype == "bool":
        verb = GroupByCall("median")
    else:
        verb = GroupByCall("quantile", (q,), {"interpolation": how})
    plan = GroupPlan.of(frame.iloc[:0], "k", how=verb)
    parts = [frame.iloc[a:b] for a, b in pairwise([0, *sorted(cuts), size])]
    columns, workers = ranked_columns(plan), {}
    for name in ("a", "b"):
        workers[name] = HeldRows(plan, columns, None)
    chosen: dict[str, list[Any]] = {"a": [], "b": []}
    for number, part in enumerate(parts):
        name = "ab"[number % 2]
        workers[name].add(number, "x", plan.reduce(part, number))
        chosen[name].append((number, "x"))
    found = found_by_counts(
        plan, columns, {name: held.chosen(chosen[name]) for name, held in workers.items()},
        lambda numbers, *asked: [
            held.counts(numbers[name], *asked) for name, held in workers.items()
        ],
    )  # fmt: skip
    result, _ = result_of_places(plan, found.keys, found.known)
    standing = folding(plan)
    standing.fold(plan.reduce(frame, 0))
    assert result.equals(standing.result())
    if dtype not in ("int64", "uint64"):
        # Of these pandas makes floats before it takes differences; of two infinities it has none.
        if dtype == "Float64" and q is None:
            # pandas' median counts NaNs that are no nulls; ours leaves them out.
            frame["v"] = frame["v"].where(~np.isnan(frame["v"].to_numpy(float, na_value=np.nan)))
        wanted = verb.of(frame.groupby("k"))
        if dtype.startswith("float"):
            result = result.where(wanted.notna())
        pd.testing.assert_frame_equal(result, wanted, check_dtype=False)


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(31)
    keys = np.where(rng.random(2400) < 0.6, 7, rng.integers(0, 300, 2400))
    made = pd.DataFrame({"k": keys, "s": pd.array([f"t{key % 90}" for key in keys], dtype="str")})
    made["v"] = drawn(rng, "float64", 2400).replace([np.inf, -np.inf], 2.5)
    made["n"] = rng.integers(-50, 50, 2400)
    made["d"] = drawn(rng, "M8[s]", 2400)
    return made


@pytest.fixture
def sent(monkeypatch) -> list[tuple[int, int]]:
    """Let few rows of a key be heavy; return of each partition the rows that are sent and stay."""
    monkeypatch.setattr(skew, "LEAST_ROWS", 16)
    monkeypatch.setattr(skew, "HEAVY_SHARE", 0.5)
    found: list[tuple[int, int]] = []

    def watched(frame: Any, *args: Any) -> Any:
        sent = sink(frame, *args)
        rows = sum(sent.receipt.rows)
        found.append((rows, len(frame) - rows))
        return sent

    monkeypatch.setattr(phases, "sink", watched)
    return found


def alike(found: Any, wanted: Any) -> None:
    with no_other_engine():
        found = found.compute()
    wanted = wanted.sort_index() if wanted.index.nlevels > 1 else wanted
    if wanted.ndim == 1:
        pd.testing.assert_series_equal(found.sort_index(), wanted)
    else:
        pd.testing.assert_frame_equal(found.sort_index(), wanted)


@pytest.mark.cluster
def test_rows_of_a_heavy_key_stay(threads, rows, sent):
    ours, theirs = dgpuhash.groupby(lazy(rows, 5), "k"), rows.groupby("k")
    heavy = int((rows["k"] == 7).sum())
    alike(ours[["v", "n", "d"]].median(), theirs[["v", "n", "d"]].median())
    assert sum(stay for _, stay in sent) == heavy
    alike(ours["v"].quantile([0.1, 0.5, 0.9]), theirs["v"].quantile([0.1, 0.5, 0.9]))
    asked = {"m": ("v", "median"), "c": ("n", "count"), "q": ("n", "quantile")}
    alike(ours.agg(**asked), theirs.agg(**asked))
    assert sum(stay for _, stay in sent) == 3 * heavy
    # Others need the rows of a group side by side.
    alike(ours["n"].agg(["median", "sum"]), theirs["n"].agg(["median", "sum"]))
    assert sum(stay for _, stay in sent) == 3 * heavy
    workers = threads.cluster.workers.values()
    until(lambda: not any(plugin_of(each).service(GroupOwners).held for each in workers))


@pytest.mark.cluster
def test_other_keys_and_forms(threads, rows, sent):
    source = lazy(rows.assign(z=np.where(rows["k"] == 7, None, rows["s"])), 4)
    rows = rows.assign(z=np.where(rows["k"] == 7, None, rows["s"]))
    for by, options in ((["s", "k"], {}), ("z", {"dropna": False}), ("s", {"sort": False})):
        ours = dgpuhash.groupby(source, by, npartitions=1, **options)["v"].median()
        with no_other_engine():
            found = ours.compute()
        wanted = rows.groupby(by, **options)["v"].median()
        pd.testing.assert_series_equal(found, wanted, check_index_type=False)
    ours = dgpuhash.groupby(source, "k", as_index=False, npartitions=1)["n"].median().compute()
    pd.testing.assert_frame_equal(ours, rows.groupby("k", as_index=False)["n"].median())
    ordered = rows.sort_values("k", ignore_index=True)
    # Each partition has heavy keys of its own.
    alike(dgpuhash.groupby(lazy(ordered, 6), "k")["n"].median(), ordered.groupby("k")["n"].median())
    assert sum(stay for _, stay in sent)


@pytest.mark.cluster
def test_heavy_rows_beyond_memory_go_to_a_file(threads, rows, sent, monkeypatch):
    monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 0)
    monkeypatch.setattr(worker_memory, "SHARE", 1 << 60)
    monkeypatch.setattr(spilling, "PIECES", 3)
    # Only the first partitions have enough of the key, and an owner has rows of others on the disk.
    rows = rows.sort_values("v", ignore_index=True)
    rows.loc[1500:, "k"] = np.where(np.arange(900) % 9, np.arange(900) % 300, 7)
    for how in ("median", "quantile"):
        ours, theirs = dgpuhash.groupby(lazy(rows, 6), "k"), rows.groupby("k")
        alike(getattr(ours[["v", "n"]], how)(), getattr(theirs[["v", "n"]], how)())
    assert 0 < sum(stay for _, stay in sent) < 2 * int((rows["k"] == 7).sum())
    until(lambda: not unnamed_files())


@pytest.mark.cluster
def test_tasks_that_run_twice_or_on_a_late_worker(threads, rows, sent, monkeypatch):
    hold = tasks.hold_heavy

    def late(worker: Any, opened: Any, *args: Any) -> Any:
        # As if this worker had come after the run began.
        there = tuple(each for each in opened.holders if each != worker.address)
        made = tasks.OpenRun(opened.uid, opened.workers, (*there, there[0]))
        return hold(worker, made, *args)

    def twice(frame: Any, *args: Any) -> Any:
        sink(frame, *args)
        monkeypatch.setattr(tasks, "hold_heavy", late)
        try:
            return sink(frame, *args)
        finally:
            monkeypatch.setattr(tasks, "hold_heavy", hold)

    monkeypatch.setattr(phases, "sink", twice)
    ours = dgpuhash.groupby(lazy(rows, 4), "k")["v"].median()
    alike(ours, rows.groupby("k")["v"].median())
