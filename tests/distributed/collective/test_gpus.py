"""All-to-all between GPUs by CUDA IPC, by NCCL and over the comm."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from clusters import gpu_cluster, gpus_apart, share_gpus
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.errors import DgpuhashError, IndexLost

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.cluster, pytest.mark.timeout(120)]

# Seconds from a loss to the error.
SOON = 30


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with gpu_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def apart() -> Iterator[Client]:
    with gpus_apart() as client:
        yield client


WAYS = ["client-peer", "client-nccl", "client-comm", "apart-nccl", "apart-comm"]


@pytest.fixture(params=WAYS)
def on_ranks(request: pytest.FixtureRequest) -> Iterator[Callable[..., list[Any]]]:
    """Yield a function that runs another on all ranks of a group.

    The workers are on one host over UCXX, or seem to be on several.
    """
    place, way = request.param.split("-")
    client = request.getfixturevalue(place)
    if way == "nccl" and share_gpus(client):
        pytest.skip("workers share GPUs, which NCCL does not allow; it takes a GPU for each")
    # The last address first: ranks need not be in the order of hosts.
    group = form_group(client, sorted(client.nthreads(), reverse=True), way)
    yield partial(group.run, client)
    group.close(client)


def counts_between(size: int, shape: str) -> np.ndarray:
    """Return the rows from each rank to each."""
    if shape == "none":
        return np.zeros((size, size), np.int64)
    if shape == "all to one":
        counts = np.zeros((size, size), np.int64)
        counts[:, 0] = 3_000_000
        return counts
    if shape == "much":
        return np.full((size, size), 9_000_000)
    counts = np.random.default_rng(size).integers(0, 3000, (size, size))
    counts[1] = 0
    return counts


def exchange_and_check(host: Any, collective: Collective, shape: str, library: str) -> None:
    import cupy

    xp: Any = cupy if library == "cupy" else np
    rank, size = collective.rank, collective.size
    between = counts_between(size, shape)
    edges = np.concatenate([np.zeros((size, 1), int), between.cumsum(axis=1)], axis=1)
    with cupy.cuda.Stream(non_blocking=True):
        number = xp.arange(int(edges[rank, -1])) + rank * 10**12
        sent = [
            number,
            (number % 1000).astype(np.float32),
            (number % 7).astype(np.uint8),
            number % 2 == 0,
            xp.stack([number, -number], axis=1).astype(np.int32),
        ]
        got = collective.all_to_all(sent, between[rank])
        wanted = xp.concatenate(
            [
                xp.arange(int(edges[source, rank]), int(edges[source, rank + 1])) + source * 10**12
                for source in range(size)
            ]
        )
        assert isinstance(got.columns[0], xp.ndarray)
        assert got.counts.tolist() == between[:, rank].tolist()
        assert bool((got.columns[0] == wanted).all())
        assert bool((got.columns[1] == (wanted % 1000).astype(np.float32)).all())
        assert bool((got.columns[2] == (wanted % 7).astype(np.uint8)).all())
        assert bool((got.columns[3] == (wanted % 2 == 0)).all())
        assert bool((got.columns[4] == xp.stack([wanted, -wanted], 1).astype(np.int32)).all())


@pytest.mark.parametrize(
    ("shape", "library"),
    [
        *((shape, "cupy") for shape in ("uneven", "none", "all to one", "much")),
        *((shape, "numpy") for shape in ("uneven", "none", "all to one")),
    ],
)
def test_rows_arrive_in_the_order_of_ranks(on_ranks, shape, library):
    on_ranks(exchange_and_check, shape, library)


def exchange_in_flight(host: Any, collective: Collective) -> None:
    import cupy

    size, under_way = collective.size, []
    for turn in range(40):
        rows = 100_000 * (turn % 3)
        column = cupy.full(rows * size, 100 * turn + collective.rank)
        under_way.append(collective.start([column, column / 2], [rows] * size))
        column = None
    for turn, transfer in enumerate(under_way):
        got, rows = transfer.wait(), 100_000 * (turn % 3)
        wanted = cupy.repeat(100 * turn + cupy.arange(size), rows)
        assert bool((got.columns[0] == wanted).all())
        assert bool((got.columns[1] == wanted / 2).all())
    column = cupy.empty(size * 1_000_000)
    for turn in range(20):
        column[:] = turn
        assert bool((collective.all_to_all([column], [10**6] * size).columns[0] == turn).all())


def test_several_in_flight_and_senders_that_write_again(on_ranks):
    on_ranks(exchange_in_flight)


def exchange_other_dtypes(host: Any, collective: Collective) -> None:
    import cupy

    dtype = np.int32 if collective.rank == 1 else np.int64
    collective.all_to_all([cupy.zeros(collective.size, dtype)], [1] * collective.size)


def exchange_other_devices(host: Any, collective: Collective) -> None:
    import cupy

    xp = np if collective.rank == 1 else cupy
    collective.all_to_all([xp.zeros(collective.size)], [1] * collective.size)


@pytest.mark.parametrize("function", [exchange_other_dtypes, exchange_other_devices])
def test_ranks_with_other_columns_are_refused(on_ranks, function):
    with pytest.raises(DgpuhashError, match="same"):
        on_ranks(function)
    with pytest.raises(IndexLost, match="given up"):
        on_ranks(exchange_and_check, "uneven", "cupy")


def remember_window(host: Any, collective: Collective) -> None:
    host.__dict__.setdefault("windows", []).append(collective._window)


def windows_are_freed(host: Any) -> list[bool]:
    return [window._base == 0 for window in host.windows]


def test_groups_that_are_closed_free_their_memory(client):
    workers = sorted(client.nthreads())
    for _ in range(2):
        group = form_group(client, workers)
        assert group.exchange == "peer"
        group.run(client, exchange_and_check, "uneven", "cupy")
        group.run(client, remember_window)
        group.close(client)
    time.sleep(2)
    freed = run_on_workers(client, workers, windows_are_freed)
    assert freed == [[True, True]] * len(workers)


def exchange_from_another_stream(host: Any, collective: Collective) -> None:
    """Exchange rows that another stream has still to compute."""
    import cupy

    rank, size, rows = collective.rank, collective.size, 100_000
    column, busy = cupy.zeros(size * rows, np.int64), cupy.ones(1 << 27)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(40):
            busy += 1
        column += rank + 1
        transfer = collective.start([column], [rows] * size)
    came = transfer.wait().columns[0]
    assert bool((came == cupy.repeat(cupy.arange(size) + 1, rows)).all())


def test_rows_wait_for_the_stream_that_makes_them(on_ranks):
    on_ranks(exchange_from_another_stream)


def exchange_to_places(host: Any, collective: Collective) -> None:
    """Exchange rows in slices, into columns of the caller."""
    import cupy

    rank, size, rows, slices = collective.rank, collective.size, 800_000, 4
    room = [cupy.zeros(size * rows, dtype) for dtype in (np.int64, np.float32)]
    sent = [cupy.arange(size * rows) + 10**12 * rank]
    sent.append(sent[0].astype(np.float32))
    places = rows * np.arange(size)
    under_way = []
    for number in range(slices):
        starts = places + number * (rows // slices)
        counts = [rows // slices] * size
        to = Destination(room, starts)
        under_way.append(collective.start(sent, counts, starts=starts, to=to))
    for transfer in under_way:
        assert transfer.wait().columns[0] is room[0]
    mine = cupy.arange(rank * rows, (rank + 1) * rows)
    wanted = cupy.concatenate([mine + 10**12 * source for source in range(size)])
    assert bool((room[0] == wanted).all())
    assert bool((room[1] == wanted.astype(np.float32)).all())


def test_slices_go_to_the_places_of_the_caller(on_ranks):
    on_ranks(exchange_to_places)


def nccl_number(host: Any, collective: Any) -> tuple[str, int]:
    return host.worker.address, collective._there[collective.rank]


def test_workers_on_other_hosts(apart):
    """They have no memory in common, and neighbours of NCCL are in the order of hosts."""
    workers = sorted(apart.nthreads(), reverse=True)
    group = form_group(apart, workers)
    assert group.exchange == "nccl"
    numbers = dict(group.run(apart, nccl_number))
    assert sorted(numbers, key=numbers.__getitem__) == sorted(workers)
    group.run(apart, exchange_and_check, "much", "cupy")
    group.close(apart)


def exchange_for_long(host: Any, collective: Collective) -> None:
    for _ in range(10_000):
        exchange_and_check(host, collective, "much", "cupy")


def why_it_ended(host: Any, name: str) -> str:
    return type(host.ends[name].membership.broken).__name__


def test_a_worker_that_is_killed_in_the_middle():
    """Within seconds all others say so, and can form a group again."""
    with gpu_cluster(4) as client:
        workers = sorted(client.nthreads())
        pids = client.run(os.getpid)
        group = form_group(client, workers)
        group.run(client, exchange_and_check, "much", "cupy")
        threading.Timer(0.5, os.kill, (pids[workers[-1]], signal.SIGKILL)).start()
        start = time.monotonic()
        with pytest.raises(IndexLost):
            group.run(client, exchange_for_long)
        assert time.monotonic() - start < SOON
        left = workers[:-1]
        ends = run_on_workers(client, left, why_it_ended, group.name, limit=SOON)
        assert ends == ["IndexLost"] * len(left)
        group.close(client)
        anew = form_group(client, left)
        anew.run(client, exchange_and_check, "much", "cupy")
        anew.run(client, exchange_in_flight)
