"""Benchmark all-to-all exchanges of columns between workers, beside their bare links."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import rate, require
from dgpuhash.bench.options import Devices, Option, PoolSize, Protocol, Runs
from dgpuhash.bench.timing import REPEATS
from dgpuhash.bench.workers.cluster import check_counts, most_workers, start
from dgpuhash.distributed.collective.base import Collective, Received
from dgpuhash.distributed.collective.cuda_ipc_memory import PeerWindow, WindowSlots, window_nbytes
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.errors import SpecError
from dgpuhash.typing import Device

# cudaMemcpyDeviceToDevice
_DEVICE_TO_DEVICE = 3


def peer_copy_rates(
    host: Any, collective: Collective, nbytes: int, repeats: int
) -> list[list[float]]:
    """Measure the bytes a second that this GPU copies to all other GPUs.

    Parameters
    ----------
    host, collective
        As `group.Group.run` passes them.
    nbytes : int
        Bytes that leave this GPU.
    repeats : int
        Runs, after one that does not count.

    Returns
    -------
    list of list of float
        The rates of all runs that copy to all GPUs at once, and of those that copy to one GPU after
        the other, so that no two GPUs copy to the same one.
    """
    import cupy

    rank, size = collective.rank, collective.size
    slots = WindowSlots.of(size, min(collective.gather(window_nbytes())))
    window = PeerWindow(rank, size, slots)
    window.open(collective.gather(window.handle))
    span = slots.number * slots.nbytes
    rows = cupy.zeros(span, np.uint8)
    others = [(rank + step) % size for step in range(1, size)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in others]
    each = nbytes // len(others)
    pieces = [min(span, each - start) for start in range(0, each, span)]
    at_once = [(to, some) for some in pieces for to in zip(others, streams, strict=True)]
    by_turns = [((other, streams[0]), some) for other in others for some in pieces]
    rates: list[list[float]] = []
    for order in (at_once, by_turns):
        rates.append([])
        for _ in range(repeats + 1):
            cupy.cuda.Device().synchronize()
            collective.gather(None)
            start = time.perf_counter()
            for (other, stream), some in order:
                place = window.place(rank, other, 0)
                cupy.cuda.runtime.memcpyAsync(
                    place, rows.data.ptr, some, _DEVICE_TO_DEVICE, stream.ptr
                )
            for stream in streams:
                stream.synchronize()
            rates[-1].append(each * len(others) / (time.perf_counter() - start))
    window.leave()
    collective.gather(None)
    window.free()
    return [runs[1:] for runs in rates]


def socket_rates(host: Any, collective: Collective, nbytes: int, repeats: int) -> list[list[float]]:
    """Measure the bytes a second of TCP connections to all other ranks.

    The bytes leave this process through one bare connection a rank. Returns rates as
    `peer_copy_rates` does, of one order: all at once.
    """
    rank, size = collective.rank, collective.size
    with socket.create_server(("", 0), backlog=size) as server:
        place = host.worker.address.rpartition("://")[2].rpartition(":")[0] or "127.0.0.1"
        places = collective.gather((place, server.getsockname()[1]))
        lines = [socket.create_connection(places[other]) for other in range(rank)]
        lines += [server.accept()[0] for _ in range(rank + 1, size)]
    each = nbytes // (size - 1)
    sent, received = np.zeros(each, np.uint8), [np.empty(each, np.uint8) for _ in lines]
    rates = []
    for _ in range(repeats + 1):
        work = [threading.Thread(target=line.sendall, args=(sent,)) for line in lines]
        work += [
            threading.Thread(target=_read, args=(line, rows))
            for line, rows in zip(lines, received, strict=True)
        ]
        collective.gather(None)
        start = time.perf_counter()
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        rates.append(nbytes / (time.perf_counter() - start))
    for line in lines:
        line.close()
    return [rates[1:]]


def _read(line: socket.socket, rows: np.ndarray) -> None:
    view = rows.data
    while view:
        view = view[line.recv_into(view) :]


#: Bytes that leave each worker.
BYTES_SENT = {"cuda": (2**24, 2**28, 2**31), "cpu": (2**20, 2**26)}
TRANSPORTS = {"cuda": ("peer", "nccl", "comm"), "cpu": ("comm",)}
_PAIR_NBYTES = 16
_STEP = 10**12


def run(
    backend: Backend,
    *,
    workers: Sequence[int] | None = None,
    leaving: Annotated[Sequence[int] | None, Option(("--bytes",))] = None,
    ways: Annotated[
        Sequence[str] | None, Option(("--exchange",), choices=("comm", "nccl", "peer"))
    ] = None,
    protocol: Protocol = None,
    devs: Devices = None,
    rmm_pool_size: PoolSize = None,
    repeats: Runs = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows for each transport, number of workers and of bytes.

    Two columns of 8 bytes are exchanged. Every worker has as many pairs for each worker, itself
    included; the bytes that it keeps do not count. The time is from the call until the device has
    all received rows, of the slowest worker, the median of the runs. The floor is a rate between
    the same processes: on GPUs of copies into the other GPUs' memory, in the better of two orders,
    on CPUs of bare TCP connections, with as many bytes, all at once.

    Parameters
    ----------
    backend : Backend
        Backend of the workers.
    workers : sequence of int, optional
        Numbers of workers, 2 or more; default: one for each GPU, or CPU, and at least 2.
    leaving : sequence of int, optional
        Bytes that leave each worker.
    ways : sequence of {"comm", "nccl", "peer"}, optional
        Transports.
    protocol, devs, rmm_pool_size
        As for ``scaling``.
    repeats : int, optional
        Runs whose median counts, after one that does not.

    Raises
    ------
    SpecError
        When an option is impossible.
    UnsupportedError
        When the workers cannot use a transport.
    DgpuhashError
        When received rows differ from the rows sent.
    """
    gpus = None if devs is None else devs.split(",")
    counts = sorted(set(workers or [max(2, most_workers(backend, gpus))]))
    if counts[0] < 2:
        raise SpecError(f"--workers {counts[0]}; an exchange takes two or more")
    check_counts(counts, gpus, backend)
    if foreign := [way for way in ways or () if way not in TRANSPORTS[backend.name]]:
        raise SpecError(f"--exchange {foreign[0]} is for GPUs; leave it out, or give --device cuda")
    measure = peer_copy_rates if backend.name == "cuda" else socket_rates
    repeats = repeats or REPEATS[backend.name]
    sizes = leaving or BYTES_SENT[backend.name]
    if min(sizes) < _PAIR_NBYTES * max(counts):
        raise SpecError(f"--bytes {min(sizes)}; give {_PAIR_NBYTES * max(counts)} or more")
    options = {"protocol": protocol, "devs": gpus, "rmm_pool_size": rmm_pool_size}
    for count in counts:
        with start(backend, count, **options) as crew:  # type: ignore[arg-type]
            client, floors = crew.client, {}
            for way in ways or TRANSPORTS[backend.name]:
                group = form_group(client, crew.addresses, way)  # type: ignore[arg-type]
                for nbytes in sizes:
                    if nbytes not in floors:
                        rates = group.run(client, measure, nbytes, repeats)
                        floors[nbytes] = max(
                            min(map(statistics.median, runs)) for runs in zip(*rates, strict=True)
                        )
                    seconds = group.run(client, _exchange, backend.name, nbytes, repeats)
                    slowest = [max(run) for run in zip(*seconds, strict=True)]
                    yield rate(
                        nbytes / statistics.median(slowest),
                        floors[nbytes],
                        unit="GB/s",
                        exchange=way,
                        workers=count,
                        leaving=nbytes,
                        protocol=crew.addresses[0].partition(":")[0],
                    )
                group.close(client)


def _exchange(
    host: Any, collective: Collective, device: Device, nbytes: int, repeats: int
) -> list[float]:
    """Return the seconds of each exchange on this rank.

    The rows of the first and the last one are checked.
    """
    used, rank, size = backends.get(device), collective.rank, collective.size
    xp, rows = used.xp, nbytes // _PAIR_NBYTES // (size - 1)
    keys = xp.arange(rows * size, dtype=np.int64) + _STEP * rank
    values = -keys
    seconds = []
    came: Received | None
    for turn in range(repeats + 1):
        came = None  # Its memory is free for the next run.
        used.synchronize()
        # As in verbs of distributed tables and frames.
        with collective.with_quiet_loop(device):
            collective.gather(None)
            start = time.perf_counter()
            came = collective.all_to_all([keys, values], [rows] * size)
            used.synchronize()
            seconds.append(time.perf_counter() - start)
        if turn in (0, repeats):
            wanted = xp.arange(rows * rank, rows * (rank + 1), dtype=np.int64)
            sources = _STEP * xp.arange(size, dtype=np.int64)[:, None]
            where = {"rank": rank, "workers": size, "leaving": nbytes}
            found = came.columns[0].reshape(size, rows)
            require((found == wanted + sources).all(), "other keys came", **where)
            require((came.columns[1] == -came.columns[0]).all(), "other values came", **where)
    return seconds[1:]
