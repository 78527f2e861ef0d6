"""A few cases of `suites.generated`: frames of every dtype beside pandas and plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import dask
import pytest
from clusters import cluster_of
from distributed import Client

pytest.importorskip("polars")

from suites.generated.__main__ import draw, failure

# How many cases of each kind.
CASES = {
    "merge": 70, "groupby": 50, "merge on Dask": 8, "groupby on Dask": 8, "standing groups": 6,
    "enabled": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster_of(2, processes=False) as client:
        yield client


@pytest.mark.cluster
@pytest.mark.parametrize("kind", CASES)
def test_drawn_cases(client: Client, kind: str) -> None:
    failed = {}
    # Labels and texts are compared as they are.
    with client.as_current(), dask.config.set({"dataframe.convert-string": False}):
        for number in range(CASES[kind]):
            case = draw(kind, Random(f"0 {number}"))
            if reason := failure(kind, case, client):
                failed[number] = f"{reason}\n{case}"
    assert not failed
