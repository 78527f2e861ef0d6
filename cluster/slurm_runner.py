"""A cluster of the tasks of one job of SLURM: ``srun -n 6 python cluster/slurm_runner.py COMMAND``.

The first task is the scheduler, the second one runs COMMAND, with ``DASK_SCHEDULER_ADDRESS`` set,
and all others are workers, which end when COMMAND has ended. The scheduler writes its address into
the folder that ``srun`` was called in, which all nodes must share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from serving import GPU_WORKER, device_here, needs, protocol_for


def start(device: str, memory_limit: str = "auto", interface: str | None = None) -> Any:
    """Return the runner of this task: where it is the scheduler or a worker, once all has ended."""
    from dask_jobqueue.slurm import SLURMRunner

    network = {} if interface is None else {"interface": interface}
    worker: dict[str, Any] = {"memory_limit": memory_limit, **network}
    if device == "cuda":
        worker |= GPU_WORKER
    return SLURMRunner(
        worker_class="dask_cuda.CUDAWorker" if device == "cuda" else "distributed.Nanny",
        worker_options=worker,
        scheduler_options={"protocol": protocol_for(device), "dashboard_address": ":0", **network},
        scheduler_file="dgpuhash-{job_id}.json",
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device_here())
    parser.add_argument("--memory-limit", default="auto", help="of one worker, on its node")
    parser.add_argument("--interface", help="the network interface to use, such as ib0")
    parser.add_argument(
        "--workers", type=int, help="to wait for; default: one for each of their tasks"
    )
    parser.add_argument("command", nargs=REMAINDER)
    arguments = parser.parse_args()
    needs("slurm", "dask_jobqueue")
    if arguments.device == "cuda":
        needs("cu13", "dask_cuda", "distributed_ucxx")
    if "SLURM_PROCID" not in os.environ:
        parser.error("it is a task of SLURM: start it by srun, with three tasks or more")
    from distributed import Client

    with start(arguments.device, arguments.memory_limit, arguments.interface) as runner:
        with Client(runner) as client:
            client.wait_for_workers(arguments.workers or runner.n_workers)
            address = client.scheduler.address
        environment = os.environ | {"DASK_SCHEDULER_ADDRESS": address}
        ended = subprocess.run(arguments.command, env=environment).returncode
    sys.exit(ended)
