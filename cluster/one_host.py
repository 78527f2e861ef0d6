"""Workers on this host, one for each GPU, or a few on its cores: ``python cluster/one_host.py``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from distributed import LocalCluster
from serving import GPU_WORKER, device_here, needs, number, protocol_for, serve, sheltered_loop


def start(device: str, memory_limit: str = "auto", **options: Any) -> LocalCluster:
    """A cluster on this host; `options` go to ``LocalCUDACluster`` or ``LocalCluster``."""
    if device == "cpu":
        return LocalCluster(memory_limit=memory_limit, **options)
    from dask_cuda import LocalCUDACluster

    return LocalCUDACluster(
        protocol=protocol_for(device), memory_limit=memory_limit, **GPU_WORKER, **options
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device_here())
    parser.add_argument("--workers", type=number, help="default: one for each GPU")
    parser.add_argument("--memory-limit", default="auto", help="of one worker, on the host")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        needs("cu13", "dask_cuda", "distributed_ucxx")
    with sheltered_loop() as loop:
        serve(
            start, arguments.device, arguments.memory_limit, n_workers=arguments.workers, loop=loop
        )
