"""Lost wake-ups in an exchange: all workers respond, none continues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import dask
import numpy as np
import pytest
from clusters import cluster_of
from distributed import Client

from dgpuhash.distributed.collective import membership
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.group import Group, form_group
from dgpuhash.errors import IndexLost

pytestmark = pytest.mark.cluster

# Seconds to the error.
SOON = 30
# What no mailbox has room for, so that it goes by messages.
LARGE = 1 << 20


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster_of(3, processes=True) as client:
        yield client


@pytest.fixture
def group(client: Client) -> Iterator[Group]:
    group = form_group(client, sorted(client.nthreads()))
    yield group
    group.close(client)


async def taken_and_forgotten(kind: str, source: int, payload: Any, **_: Any) -> list[Any]:
    return []


def forget_on(host: Any, collective: Collective, forgetful: int, then: int) -> None:
    """Let one rank take messages without waking their receiver."""
    if collective.rank == forgetful:
        host.ends[collective.membership.name].take = taken_and_forgotten
    collective.gather(None)
    collective.all_to_all([np.arange(3)], [1, 1, 1])
    for _ in range(then):
        collective.gather(bytes(LARGE))


@pytest.mark.parametrize("then", [0, 1], ids=["its last call", "another call follows"])
def test_a_message_that_is_taken_and_forgotten(client, group, then):
    start = time.monotonic()
    with pytest.raises(IndexLost, match="nothing is on its way"):
        group.run(client, forget_on, 1, then)
    assert time.monotonic() - start < SOON
    assert form_and_count(client) == [3, 3, 3]


def form_and_count(client: Client) -> list[int]:
    group = form_group(client, sorted(client.nthreads()))
    try:
        return group.run(client, exchange_threes)
    finally:
        group.close(client)


def exchange_threes(host: Any, collective: Collective) -> int:
    return len(collective.all_to_all([np.arange(3)], [1, 1, 1]).columns[0])


def never_told(host: Any, collective: Collective, fails: bool) -> int:
    """Let the event loop work without waking the thread of rank 0."""
    member = collective.membership
    run = member.run

    def untold(work: Any) -> Any:
        begun = run(work)
        begun.told = Future()
        return begun

    if collective.rank == 0:
        member.run = untold
    try:
        if fails and collective.rank == 1:
            raise ArithmeticError("rank 1 fails")
        return exchange_threes(host, collective)
    finally:
        member.run = run


def test_a_thread_that_is_not_told(client, group):
    assert group.run(client, never_told, False) == [3, 3, 3]


def test_a_thread_that_is_not_told_of_a_failure(client, group):
    start = time.monotonic()
    with pytest.raises(ArithmeticError, match="rank 1 fails"):
        group.run(client, never_told, True)
    assert time.monotonic() - start < SOON


def quick_to_give_up(seconds: float) -> None:
    membership.ALL_RANKS_SECONDS = seconds / 10
    dask.config.set({"dgpuhash.liveness.stuck": seconds})


def one_at_work(host: Any, collective: Collective, seconds: float) -> int:
    if collective.rank == 1:
        time.sleep(seconds)
    collective.gather(None)
    collective.gather(bytes(LARGE))
    return exchange_threes(host, collective)


def test_who_is_at_work_is_waited_for(client, group):
    before = membership.ALL_RANKS_SECONDS * 10
    client.run(quick_to_give_up, 0.5)
    try:
        assert group.run(client, one_at_work, 3.0) == [3, 3, 3]
    finally:
        client.run(quick_to_give_up, before)
