"""Benchmark of all-to-all exchanges of columns between workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import rate, require
from dgpuhash.bench.timing import REPEATS
from dgpuhash.bench.workers.cluster import check_counts, most_workers, start
from dgpuhash.bench.workers.links import peer_copy_rates, socket_rates
from dgpuhash.distributed.collective.base import Collective, Received
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.errors import SpecError
from dgpuhash.typing import Device

#: Bytes that leave each worker.
BYTES_SENT = {"cuda": (2**24, 2**28, 2**31), "cpu": (2**20, 2**26)}
TRANSPORTS = {"cuda": ("peer", "nccl", "comm"), "cpu": ("comm",)}
_PAIR_NBYTES = 16
_STEP = 10**12


def run(
    backend: Backend,
    *,
    workers: Sequence[int] | None = None,
    leaving: Sequence[int] | None = None,
    ways: Sequence[str] | None = None,
    protocol: str | None = None,
    devs: str | None = None,
    rmm_pool_size: str | None = None,
    repeats: int | None = None,
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
