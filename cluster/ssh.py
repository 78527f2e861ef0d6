"""The scheduler on the first host, workers on all: ``python cluster/ssh.py host1 host2 host3``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from distributed import SpecCluster, SSHCluster
from serving import GPU_WORKER, device_here, needs, protocol_for, serve


def start(
    hosts: Sequence[str],
    device: str,
    memory_limit: str = "auto",
    interface: str | None = None,
    **options: Any,
) -> SpecCluster:
    """A cluster on `hosts`; `options` go to ``SSHCluster``."""
    network = {} if interface is None else {"interface": interface}
    worker_options = {"memory_limit": memory_limit, **network}
    if device == "cuda":
        options = {"worker_class": "dask_cuda.CUDAWorker", **options}
        worker_options |= GPU_WORKER
    return SSHCluster(
        [hosts[0], *hosts],
        worker_options=worker_options,
        scheduler_options={"protocol": protocol_for(device), "dashboard_address": ":0", **network},
        **options,
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("hosts", nargs="+")
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device_here())
    parser.add_argument("--memory-limit", default="auto", help="of one worker, on its host")
    parser.add_argument("--interface", help="the network interface to use, such as ib0")
    parser.add_argument("--python", help="the interpreter on the hosts; default: this one")
    arguments = parser.parse_args()
    needs("ssh", "asyncssh")
    if arguments.device == "cuda":
        needs("cu13", "distributed_ucxx")
    serve(
        start,
        arguments.hosts,
        arguments.device,
        arguments.memory_limit,
        arguments.interface,
        remote_python=arguments.python,
    )
