"""Clusters of cluster/ on a host with GPUs: UCX and RMM memory pools."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from dgpuhash.distributed import DistributedIndex

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.multigpu,
    pytest.mark.cudf,
    pytest.mark.skipif(importlib.util.find_spec("cudf") is None, reason="cuDF is not installed"),
    pytest.mark.cluster,
    pytest.mark.timeout(180),
]


def index_works_on_gpus(address: str) -> None:
    """Check an index of cuDF frames on all GPUs.

    The tables allocate from RMM's pool.
    """
    import cupy

    def allocator() -> str:
        import cupy

        return cupy.cuda.get_allocator().__name__

    planes = pd.DataFrame({"k": np.arange(60_000) % 20_000, "v": np.arange(60_000)})
    flights = pd.DataFrame({"k": np.arange(40_000) % 25_000, "x": np.arange(40_000) / 4})
    with (
        dask.config.set({"distributed-ucxx.create-cuda-context": True}),
        Client(address, timeout=60) as client,
    ):
        gpus = cupy.cuda.runtime.getDeviceCount()
        client.wait_for_workers(gpus, timeout=90)
        assert set(client.run(allocator).values()) == {"rmm_cupy_allocator"}
        source, probes = (
            dd.from_pandas(frame, npartitions=4, sort=False).to_backend("cudf")
            for frame in (planes, flights)
        )
        with DistributedIndex.build(source, on="k", client=client) as index:
            assert len(index.workers) == gpus
            assert all(worker.startswith("ucx://") for worker in index.workers)
            merged = index.merge(probes).compute().to_pandas()
    wanted = flights.merge(planes, on="k")
    by = ["k", "v", "x"]
    pd.testing.assert_frame_equal(
        merged.sort_values(by, ignore_index=True), wanted.sort_values(by, ignore_index=True)
    )


@pytest.fixture
def by_hand(folder: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Yield the address of a cluster that the scripts started."""
    settings = os.environ | environment | {"DEVICE": "cuda", "INTERFACE": "lo", "PORT": "8799"}
    # Other tests have pools on the same GPUs.
    settings |= {"RMM_POOL_SIZE": "1GiB"}
    address = "ucx://127.0.0.1:8799"
    commands = [[folder / "scheduler.sh"], [folder / "worker.sh", address]]
    with (tmp_path / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [*command, "--no-dashboard"], env=settings, stdout=log, stderr=log, cwd=tmp_path
            )
            for command in commands
        ]
    try:
        yield address
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def test_one_host(serve):
    index_works_on_gpus(serve("one_host.py"))


def test_scripts(by_hand):
    index_works_on_gpus(by_hand)
