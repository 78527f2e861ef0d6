"""What the programs here share: which device workers use, GPU workers' settings, and serving."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import dask

# README.md says what each of these does; worker.sh has the same ones.
GPU_WORKER = {"rmm_pool_size": 0.5, "rmm_allocator_external_lib_list": ["cupy"]}


def device_here() -> str:
    """``"cuda"`` on a machine with an NVIDIA driver, else ``"cpu"``."""
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def protocol_for(device: str) -> str:
    """What the scheduler and the workers speak; makes this process ready for it."""
    if device == "cpu":
        return "tcp"
    dask.config.set({"distributed-ucxx.create-cuda-context": True})
    return "ucx"


def serve(cluster: Any) -> None:
    """Print the address for clients, and end the cluster at Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with cluster:
        print(cluster.scheduler_address, flush=True)
        ended.wait()
