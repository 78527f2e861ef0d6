"""`--scheduler`: connect to a cluster or start one; `dgpuhash cluster`: print launch scripts."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from dgpuhash.cli.group import Commands
from dgpuhash.cli.signature import option
from dgpuhash.cli.threads import check_threads_of_workers, threads_of_process
from dgpuhash.errors import ExistsError, UnsupportedError, install_command

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10

# What starts a cluster, and where.
_PROGRAMS = {
    "one-host": ("one_host.py", "workers on this host"),
    "scheduler": ("scheduler.sh", "the scheduler, on one of the hosts that you log in to"),
    "worker": ("worker.sh", "the workers of such a host"),
    "settings": ("settings.sh", "what both take from the environment"),
    "ssh": ("ssh.py", "hosts reached by SSH (extra ssh)"),
    "slurm": ("slurm.sbatch", "one job of SLURM with the scheduler, workers and a program"),
    "slurm-runner": ("slurm_runner.py", "the same by one srun (extra slurm)"),
    "slurm-jobs": ("slurm.py", "a job of SLURM for each node (extra slurm)"),
    "serving": ("serving.py", "what the programs in Python have in common"),
    "kubernetes": ("kubernetes.yaml", "Kubernetes with GPUs, for the operator of Dask"),
    "kubernetes-cpu": ("kubernetes-cpu.yaml", "the same without GPUs"),
    "docker": ("Dockerfile", "an image for containers, built in a checkout"),
    "readme": ("README.md", "all of these, and their settings"),
}


Scheduler = Annotated[
    str | None,
    option(
        metavar="ADDRESS",
        help="Run on this Dask cluster, e.g. tcp://host:8786; without it, in this process.",
    ),
]


@contextmanager
def client_for(scheduler: str | None) -> Iterator[Client]:
    """Yield a client of the cluster at `scheduler`, or of a new local one.

    Without `scheduler`, a cluster with one worker is started inside this process.

    Raises
    ------
    OSError
        When no scheduler answers at that address.
    UnsupportedError
        When `scheduler` is not an address, or its protocol is not installed.
    SpecError
        When the command has ``--threads``, too.
    """
    from distributed import Client, LocalCluster
    from distributed.comm import get_address_host_port

    if scheduler is not None:
        check_threads_of_workers(scheduler)
        scheme = scheduler.partition("://")[0]
        if scheme in ("ucx", "ucxx") and importlib.util.find_spec("distributed_ucxx") is None:
            raise UnsupportedError(
                f"--scheduler {scheduler} takes distributed-ucxx; {install_command('ucx')} "
                "(CUDA 12: cu12)"
            )
        # Checked first: a client with an invalid address stays half made, as the default client.
        try:
            get_address_host_port(scheduler)
        except ValueError as error:
            raise UnsupportedError(
                f"--scheduler {scheduler}: {error}; give an address such as tcp://host:8786"
            ) from error
        try:
            connected = Client(scheduler, timeout=CONNECT_SECONDS)
        except OSError as error:
            remedy = "check the address, and that a scheduler runs there"
            raise OSError(f"{error}; {remedy}") from error
        with connected as client:
            yield client
        return
    with (
        _quiet_worker_errors(),
        LocalCluster(
            n_workers=1,
            threads_per_worker=threads_of_process(),
            processes=False,
            dashboard_address=None,
            # Any free port, so that another running scheduler causes no warning.
            scheduler_kwargs={"dashboard_address": ":0"},
        ) as local,
        Client(local) as client,
    ):
        yield client


@contextmanager
def _quiet_worker_errors() -> Iterator[None]:
    """Keep the in-process worker from logging errors that the command prints."""
    logger = logging.getLogger("distributed.worker")
    logger.addFilter(_is_not_compute_failure)
    try:
        yield
    finally:
        logger.removeFilter(_is_not_compute_failure)


def _is_not_compute_failure(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Compute Failed")


@click.group(cls=Commands)
def cluster() -> None:
    """Show or copy the programs that start clusters.

    They are those of cluster/ in a checkout. Some call others that lie beside them, so copy all to
    run them.
    """


@cluster.command("list")
def list_programs() -> None:
    """List the programs by name."""
    widest = max(map(len, _PROGRAMS))
    for name, (file, said) in _PROGRAMS.items():
        click.echo(f"{name:{widest}}  {file}: {said}")


@cluster.command()
@click.argument("program", type=click.Choice(list(_PROGRAMS)), metavar="PROGRAM")
def show(program: str) -> None:
    """Print a program, such as slurm; dgpuhash cluster list names them."""
    click.echo((program_folder() / _PROGRAMS[program][0]).read_text(), nl=False)


@cluster.command()
@click.argument("folder", type=click.Path(path_type=Path))
def copy(folder: Path) -> None:
    """Copy all programs into FOLDER, where none of them may be yet."""
    targets = [folder / file for file, _ in _PROGRAMS.values()]
    for target in targets:
        if target.exists():
            raise ExistsError(f"{target} is there already; choose another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for target in targets:
        shutil.copyfile(program_folder() / target.name, target)
        if target.suffix in {".sh", ".sbatch"}:
            target.chmod(0o755)
    click.echo(f"{folder}: {len(targets)} files; start with README.md")


def program_folder() -> Path:
    """Return the folder of the programs: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "cluster", package.parent / "cluster"):
        if (folder / "one_host.py").is_file():
            return folder
    raise UnsupportedError(
        f"the programs are neither in {package / 'cluster'} nor in {package.parent / 'cluster'}; "
        "install dgpuhash again from a wheel"
    )
