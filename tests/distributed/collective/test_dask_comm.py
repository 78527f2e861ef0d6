"""Rows of simulated GPUs over a comm through host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from clusters import cluster_of
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_gpus import DeviceArray, install

from dgpuhash.distributed.collective import dask_comm
from dgpuhash.distributed.collective import dask_comm as staging
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.collective.group import Group, form_group

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def group() -> Iterator[tuple[Client, Group]]:
    with (
        pytest.MonkeyPatch.context() as patches,
        install(patches),
        cluster_of(2, processes=False, protocol="tcp") as client,
    ):
        patches.setattr(dask_comm, "SMALL_NBYTES", 4000)
        patches.setattr(staging, "STEP_NBYTES", 10_000)
        group = form_group(client, sorted(client.nthreads()), "comm")
        assert all(map(staging.needs_host_memory, group.workers))
        yield client, group
        group.close(client)


def columns_of(rank: int, rows: int) -> list[Any]:
    number = np.arange(rows) + 10**9 * rank
    columns = [number, (number % 251).astype("u1"), np.stack([number, -number, number], 1)]
    return [column.view(DeviceArray) for column in columns]


def exchange_and_check(host: Any, collective: Collective, between: np.ndarray, gap: int) -> None:
    rank, size = collective.rank, collective.size
    sent = columns_of(rank, int(between[rank].sum()))
    came = between[:, rank]
    room = [
        np.zeros_like(column, shape=(int(came.sum()) + 2 * gap, *column.shape[1:]))
        for column in sent
    ]
    starts = np.cumsum(came) - came + gap * np.arange(size)
    got = collective.start(sent, between[rank], to=Destination(room, starts)).wait()
    assert got.counts.tolist() == came.tolist()
    for source in range(size):
        first = int(between[source, :rank].sum())
        for column, whole in zip(room, columns_of(source, int(between[source].sum())), strict=True):
            mine = column[starts[source] : starts[source] + came[source]]
            np.testing.assert_array_equal(mine, whole[first : first + came[source]])


@settings(max_examples=25, deadline=None)
@given(
    between=st.lists(st.integers(0, 4000), min_size=4, max_size=4).map(
        lambda rows: np.array(rows).reshape(2, 2)
    ),
    gap=st.integers(0, 3),
)
def test_rows_are_copied_by_way_of_the_host(group, between, gap):
    client, ranks = group
    ranks.run(client, exchange_and_check, between, gap)
