"""Groupbys of Dask frames of cuDF on two GPUs, beside pandas' own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import gpu_cluster
from distributed import Client

import dgpuhash
from dgpuhash import backend
from dgpuhash.bench.frames import on_workers
from dgpuhash.distributed import DistributedGroupBy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.multigpu,
    pytest.mark.cudf,
    pytest.mark.cluster,
    pytest.mark.timeout(300),
]

RNG = np.random.default_rng(58)
ROWS, PARTS = 400_000, 6
HOST = pd.DataFrame(
    {
        "k": RNG.integers(0, 50_000, ROWS),
        "t": pd.array(RNG.choice(["a", "b", "c", None], ROWS), "str"),
        "v": RNG.integers(-1000, 1000, ROWS),
        "f": RNG.normal(size=ROWS),
    }
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with gpu_cluster(2) as client:
        yield client


@pytest.fixture
def client(cluster: Client) -> Iterator[Client]:
    with cluster.as_current():
        yield cluster


def part_of(number: int) -> Any:
    import cudf

    size = ROWS // PARTS + 1
    return cudf.from_pandas(HOST.iloc[number * size : (number + 1) * size])


def spread() -> Any:
    return dd.from_map(part_of, list(range(PARTS)), meta=part_of(0).iloc[:0])


@pytest.mark.parametrize("by", ["k", "t", ["k", "t"]], ids=str)
def test_aggregates_have_the_values_of_pandas(client, by):
    ours = dgpuhash.groupby(spread(), by, dropna=False, sort=False)
    theirs = HOST.groupby(by, dropna=False, sort=False)
    how = {"v": ["sum", "count", "min", "first", "median", "nunique"], "f": ["mean", "var", "max"]}
    states = {label: [each for each in hows if each not in {"median", "nunique"}]
              for label, hows in how.items()}  # fmt: skip
    for asked in (states, how):
        found = ours.agg(asked).compute().to_pandas()
        expected = theirs.agg(asked)
        assert len(found) == len(expected)
        found, expected = (
            each.reset_index().fillna({(key, ""): "null" for key in np.ravel(by) if key == "t"})
            for each in (found, expected)
        )
        keys = [(key, "") for key in np.ravel(by)]
        found, expected = (each.sort_values(keys, ignore_index=True) for each in (found, expected))
        assert found[keys].to_numpy().tolist() == expected[keys].to_numpy().tolist()
        rest = [label for label in expected.columns if label not in keys]
        np.testing.assert_allclose(
            found[rest].to_numpy(np.float64), expected[rest].to_numpy(np.float64), rtol=1e-9
        )


def test_nunique_and_transform(client):
    groups = dgpuhash.groupby(spread(), "k")
    found = groups["v"].nunique().compute().to_pandas().sort_index()
    assert found.tolist() == HOST.groupby("k")["v"].nunique().tolist()
    rows = groups["v"].transform("max").compute().to_pandas()
    assert rows.tolist() == HOST.groupby("k")["v"].transform("max").tolist()


def test_persisted_rows_and_projections(client):
    frame = spread().persist()
    made = dgpuhash.groupby(frame, "k")[["v", "f"]].sum()
    assert made["v"].sum().compute() == HOST["v"].sum()
    found = made.persist().compute().to_pandas().sort_index()
    np.testing.assert_allclose(found, HOST.groupby("k")[["v", "f"]].sum(), rtol=1e-9, atol=1e-12)


def test_states_that_follow_new_rows(client):
    named = {"total": ("v", "sum"), "n": ("v", "count"), "mean": ("f", "mean")}
    state = DistributedGroupBy.build(spread(), "k", client=client, **named)
    state.update(part_of(0))
    whole = pd.concat([HOST, HOST.iloc[: ROWS // PARTS + 1]]).groupby("k").agg(**named)
    found = state.result().compute().to_pandas().sort_index()
    assert found["total"].tolist() == whole["total"].tolist()
    np.testing.assert_allclose(found["mean"], whole["mean"], rtol=1e-9)
    told = state.lookup(part_of(0)[["k"]].iloc[:5]).to_pandas()
    assert told["n"].tolist() == whole.loc[HOST["k"].iloc[:5], "n"].tolist()
    state.close()


def test_the_benchmark_on_few_rows():
    rows = list(on_workers.run(backend.get("cuda"), quick=True, workers=2, engines=["dgpuhash"]))
    assert [row["verb"] for row in rows] == [*on_workers.VERBS] * 2
    assert all(row["correct"] for row in rows)
