"""Jobs of SLURM, each with the workers of one node: ``python cluster/slurm.py --jobs 4``.

The scheduler runs in this process: start it on a node of the cluster, and for GPU workers on one
that has a GPU.
"""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from typing import Any

from distributed import SpecCluster, Status
from serving import GPU_WORKER, device_here, needs, number, protocol_for, serve


def job_options(
    device: str, gpus: int = 4, cores: int = 32, memory: str = "256GB", **options: Any
) -> dict[str, Any]:
    """What one job asks SLURM for and starts; `options` go to ``dask_jobqueue.SLURMCluster``."""
    options = {"memory": memory, "local_directory": '"${TMPDIR:-/tmp}"', **options}
    if device == "cpu":
        return {"cores": cores, "processes": 1, **options}
    # A worker has one thread and one GPU; the other cores are for its device thread and its comms.
    return {
        "cores": gpus,
        "processes": gpus,
        "job_cpu": cores,
        "job_extra_directives": [f"--gpus-per-node={gpus}"],
        "worker_command": "dask_cuda.cli",
        "worker_extra_args": [
            "--rmm-pool-size",
            str(GPU_WORKER["rmm_pool_size"]),
            "--set-rmm-allocator-for-libs",
            ",".join(GPU_WORKER["rmm_allocator_external_lib_list"]),
        ],
        **options,
    }


def start(jobs: int, device: str, **options: Any) -> SpecCluster:
    """A cluster of `jobs` jobs, with `options` as in `job_options`."""
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(protocol=protocol_for(device), **job_options(device, **options))
    for _ in range(jobs):
        cluster.worker_spec.update(cluster.new_worker_spec())
    try:
        # `scale` does not wait, and only logs what SLURM refuses.
        cluster.sync(cluster._correct_state)
    except Exception:
        # Otherwise jobs that SLURM has not got keep the cluster from closing.
        for job in cluster.workers.values():
            job.status = Status.failed
        cluster.close()
        raise
    return cluster


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=number, default=1, help="nodes to ask for")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda on a GPU node")
    parser.add_argument("--gpus", type=number, default=4, help="of a node")
    parser.add_argument("--cores", type=number, default=32, help="of a node")
    parser.add_argument("--memory", default="256GB", help="of a node")
    parser.add_argument("--walltime", default="01:00:00")
    parser.add_argument("--queue", help="the partition")
    parser.add_argument("--account")
    parser.add_argument("--interface", help="the network interface to use, such as ib0")
    arguments = vars(parser.parse_args())
    if shutil.which("sbatch") is None:
        parser.error("there is no sbatch here; run it on a node from which jobs are submitted")
    needs("slurm", "dask_jobqueue")
    # A login node may have no GPU, and the scheduler runs here.
    if device_here() == "cpu" and arguments["device"] != "cpu":
        parser.error(
            "this node has no GPU, which the scheduler of GPU workers needs: run it on a node with "
            "one, as by srun, or submit cluster/slurm.sbatch; --device cpu asks for CPU workers"
        )
    arguments["device"] = arguments["device"] or "cuda"
    if arguments["device"] == "cuda":
        needs("cu13", "dask_cuda", "distributed_ucxx")
    serve(start, arguments.pop("jobs"), arguments.pop("device"), **arguments)
