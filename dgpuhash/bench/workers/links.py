"""Floor of an exchange: the links between workers, all used at once."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.cuda_ipc_memory import PeerWindow, WindowSlots, window_nbytes

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
