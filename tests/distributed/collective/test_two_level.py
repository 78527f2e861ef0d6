"""Exchange in two levels: real processes on two hosts of three, answers and messages counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hosts import Hosts, why_no_hosts
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds.cluster import OPTIONS, SETTINGS
from rounds.process import fork, started

from dgpuhash.distributed.collective import membership
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.dask_comm import SMALL_NBYTES
from dgpuhash.distributed.collective.group import WorkerInfo, form_group, transports_between
from dgpuhash.distributed.collective.two_level.layout import HostLayout
from dgpuhash.errors import IndexLost, UnsupportedError

PER_HOST = 3
# Rows of 8 bytes to each rank: none, few, and more than a gateway carries.
ROWS = {"none": 0, "few": 1000, "many": SMALL_NBYTES // 8 + 1}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield a client of three workers on each of two hosts."""
    if (reason := why_no_hosts()) is not None:
        pytest.skip(reason)
    fork(False)
    folder = tmp_path_factory.mktemp("hosts")
    hosts = Hosts(2, bandwidth="1gbit", delay_ms=0.1)
    address = f"tcp://{hosts.address(1)}:8786"
    processes = []

    def start(host: int, name: str, *command: str) -> None:
        log = folder / f"{name}.log"
        processes.append(started(command, SETTINGS, log, hosts.network(host)))

    try:
        start(1, "scheduler", "scheduler", "--no-dashboard", "--port", "8786")
        for number in range(2 * PER_HOST):
            local = ("--local-directory", str(folder))
            start(1 + number % 2, f"worker{number}", "worker", address, *OPTIONS, *local)
        with Client(address, timeout=60) as client:
            client.wait_for_workers(2 * PER_HOST, timeout=60)
            yield client
    finally:
        for process in processes:
            process.kill()
            process.join()
        hosts.close()


@pytest.fixture
def workers(client: Client) -> list[str]:
    """Return the workers of both hosts by turns, so that no host has ranks side by side."""
    by_host = sorted(client.nthreads())
    return [
        each for pair in zip(by_host[:PER_HOST], by_host[PER_HOST:], strict=True) for each in pair
    ]


def count_messages(host: Any, collective: Collective, rows: int, gathers: int) -> list[Any]:
    """Exchange rows and values, check them, and return the messages sent to each rank."""
    rank, size = collective.rank, collective.size
    sent: Counter[int] = Counter()
    member = collective.membership
    send = member.send

    def counted(target: int, kind: str, *rest: Any, **message: Any) -> Any:
        sent[target] += kind not in membership.QUIET
        return send(target, kind, *rest, **message)

    member.send = counted
    try:
        for turn in range(gathers):
            assert collective.gather((turn, rank)) == [(turn, other) for other in range(size)]
        if not gathers:
            counts = np.arange(size) % 2 + rows if rows else np.zeros(size, np.int64)
            column = np.arange(counts.sum()) + rank * 10**9
            got = collective.all_to_all([column, column.astype("S12")], counts)
            starts = [int((np.arange(size) % 2 + rows)[:rank].sum()) if rows else 0] * size
            wanted = [
                np.arange(first, first + counts[rank]) + source * 10**9
                for source, first in enumerate(starts)
            ]
            assert got.counts.tolist() == [counts[rank]] * size
            np.testing.assert_array_equal(got.columns[0], np.concatenate(wanted))
            np.testing.assert_array_equal(got.columns[1], got.columns[0].astype("S12"))
    finally:
        member.send = send
    return [sent[target] for target in range(size)]


def run(client: Client, workers: list[str], exchange: Any, *args: int) -> np.ndarray:
    """Return the messages from each rank to each."""
    group = form_group(client, workers, exchange)
    try:
        return np.array(group.run(client, count_messages, *args))
    finally:
        group.close(client)


def between_hosts(messages: np.ndarray) -> int:
    host = np.arange(len(messages)) % 2
    return int(messages[host[:, None] != host].sum())


@pytest.mark.cluster
@pytest.mark.parametrize("rows", ROWS)
def test_one_message_between_two_hosts(client, workers, rows):
    messages = run(client, workers, "two-level", ROWS[rows], 0)
    far = between_hosts(messages)
    if rows == "many":
        # Large parts take a message each besides; here each is less than a chunk.
        assert (far, messages.sum()) == (2 + 18, 18 + 30)
    else:
        # Two messages to each other rank of a host, one of them by the gateway alone.
        assert (far, messages.sum()) == (2, 12 + 2 + 4)
        assert between_hosts(run(client, workers, "comm", ROWS[rows], 0)) == 18


@pytest.mark.cluster
def test_values_take_one_message_between_two_hosts(client, workers):
    messages = run(client, workers, "two-level", 0, 5)
    # Values within a host go through its memory.
    assert (between_hosts(messages), messages.sum()) == (10, 10)
    flat = run(client, workers, "comm", 0, 1)
    assert (between_hosts(flat), flat.sum()) == (18, 30)


@pytest.mark.cluster
def test_two_levels_that_are_not_there(client, workers):
    for few in (workers[::2], workers[:2]):
        with pytest.raises(
            UnsupportedError,
            match=r"'two-level' is not possible: a two-level exchange needs several",
        ):
            form_group(client, few, "two-level")


def lose_a_gateway(host: Any, collective: Collective, lost: bool) -> None:
    if lost and collective.rank == 0:
        raise ArithmeticError("the gateway fails")
    collective.all_to_all([np.arange(collective.size)], [1] * collective.size)


@pytest.mark.cluster
def test_a_gateway_that_fails_ends_the_others(client, workers):
    group = form_group(client, workers, "two-level")
    with pytest.raises(ArithmeticError, match="the gateway fails"):
        group.run(client, lose_a_gateway, True)
    with pytest.raises(IndexLost, match="the gateway fails"):
        group.run(client, lose_a_gateway, False)
    group.close(client)


@given(names=st.lists(st.integers(0, 5), min_size=1, max_size=24))
@settings(max_examples=50, deadline=None)
def test_each_pair_of_hosts_has_a_gateway_on_either_side(names):
    layout = HostLayout.of(names)
    assert [names[ranks[0]] for ranks in layout.hosts] == list(dict.fromkeys(names))
    assert layout.has_levels == (1 < len(set(names)) < len(names))
    for host, ranks in enumerate(layout.hosts):
        served = [other for rank in ranks for other in layout.served(rank)]
        assert sorted([host, *served]) == list(range(len(layout.hosts)))
        for rank in ranks:
            assert layout.host_numbers[rank] == host
            assert {layout.gateway(host, other) for other in layout.served(rank)} <= {rank}
            assert (rank in layout.servers(rank)) == bool(layout.served(rank))
        # None has two hosts more than another.
        shares = [len(layout.served(rank)) for rank in ranks]
        assert max(shares) - min(shares) <= 1


def places(hosts: int, device: str = "cpu") -> list[WorkerInfo]:
    return [WorkerInfo(str(rank // 8), rank, device) for rank in range(8 * hosts)]


def test_two_levels_are_chosen_where_they_take_fewer_messages():
    assert transports_between(places(1)) == ["comm"]
    assert transports_between(places(2)) == ["comm"]
    assert transports_between(places(8)) == ["two-level", "comm"]
    assert transports_between(places(8, "cuda")) == ["nccl", "two-level", "comm"]
