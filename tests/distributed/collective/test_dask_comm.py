"""Rows of simulated GPUs over a comm through host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pytest
from clusters import cluster_of
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_gpus import DeviceArray, install

from dgpuhash.distributed.collective import dask_comm, group
from dgpuhash.distributed.collective import dask_comm as staging
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.collective.group import Group, form_group
from dgpuhash.distributed.collective.two_level.layout import HostLayout

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=[("comm", 2), ("two-level", 3)], ids=lambda each: each[0])
def ranks(request: pytest.FixtureRequest) -> Iterator[tuple[Client, Group]]:
    exchange, size = request.param
    with (
        pytest.MonkeyPatch.context() as patches,
        install(patches),
        cluster_of(size, processes=False, protocol="tcp") as client,
    ):
        patches.setattr(dask_comm, "SMALL_NBYTES", 4000)
        patches.setitem(dask.config.get("dgpuhash.exchange"), "host-copy", 10_000)
        # Two of the workers on one host, and one on another.
        patches.setattr(group, "layout_of", lambda places: HostLayout.of(["a", "b", "a"][:size]))
        made = form_group(client, sorted(client.nthreads()), exchange)
        assert all(map(staging.needs_host_memory, made.workers))
        yield client, made
        made.close(client)


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
@given(between=st.lists(st.integers(0, 4000), min_size=9, max_size=9), gap=st.integers(0, 3))
def test_rows_are_copied_by_way_of_the_host(ranks, between, gap):
    client, made = ranks
    size = len(made.workers)
    rows = np.array(between[: size * size]).reshape(size, size)
    made.run(client, exchange_and_check, rows, gap)
