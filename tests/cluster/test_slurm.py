"""The programs for SLURM under its own daemons: a controller and two nodes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm

DAEMONS = ("slurmctld", "slurmd", "munged")
CONFIGURATION = """\
ClusterName=dgpuhash
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory={memory}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory={memory}
PartitionName=long Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""

# Merges with an index on the workers of the job, while a node is drained and when it has gone.
JOB = """\
import os, subprocess, sys
import numpy as np, pandas as pd
import dask.dataframe as dd
from distributed import Client
from dgpuhash import DistributedIndex
from dgpuhash.errors import IndexLost

def joins(index):
    merged = index.merge(flights).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(merged, flights.merge(planes, on="k"))

def scontrol(*words):
    subprocess.run(["scontrol", *words], check=True)

planes = pd.DataFrame({"k": np.arange(3000) % 800, "v": np.arange(3000)})
flights = pd.DataFrame({"k": np.arange(2000) % 900, "x": np.arange(2000) / 4})
with Client() as client:
    nodes = client.run(lambda: os.environ["SLURMD_NODENAME"])
    print("nodes", *sorted(nodes.values()), flush=True)
    index = DistributedIndex.build(dd.from_pandas(planes, npartitions=4), on="k")
    assert len(index.workers) == 2
    joins(index)
    scontrol("update", "nodename=n2", "state=drain", "reason=test")
    joins(index)
    index.insert(planes.head(1).assign(k=-1))
    print("drained", flush=True)
    scontrol("update", "nodename=n2", "state=down", "reason=test")
    (gone,) = (worker for worker, node in nodes.items() if node == "n2")
    while gone in client.nthreads():
        pass
    try:
        joins(index)
    except IndexLost as error:
        print("lost", flush=True)
    else:
        sys.exit("the index answered without a worker of its")
    index.rebuild()
    joins(index)
    print("joined again", flush=True)
"""


class Slurm:
    """A controller and two nodes; `run` has programs find them."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in DAEMONS if shutil.which(name, path=_path()) is None]
        assert not missing, f"{', '.join(missing)} not found; apt install slurmctld slurmd munge"
        self.folder = folder
        (folder / "state").mkdir()
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(
            host=host, folder=folder, ports=_free_ports(3), cpus=os.cpu_count(),
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 - 64,
        )  # fmt: skip
        (folder / "slurm.conf").write_text(text)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": _path(),
            "DEVICE": "cpu",
            "PYTHON": sys.executable,
        }
        self._daemons: list[subprocess.Popen[bytes]] = []
        munge = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid",
                 "log-file": "munge.log", "seed-file": "munge.seed"}  # fmt: skip
        self._start(
            "munged", "--foreground", "--force", *(f"--{k}={folder / v}" for k, v in munge.items())
        )
        _until(lambda: (folder / "munge.socket").exists())
        self._start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._start("slurmd", "-D", "-N", node)
        _until(lambda: self.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])

    def _start(self, *command: str) -> None:
        log = (self.folder / f"{len(self._daemons)}.log").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
            )

    def run(self, *command: str, cwd: Path | None = None, check: bool = False) -> str:
        """Return what a command of SLURM's prints."""
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *words: str, cwd: Path) -> str:
        """Return the number of a job."""
        return self.run("sbatch", "--parsable", *words, cwd=cwd, check=True).strip()

    def state(self, job: str) -> str:
        """Return the state of a job, as the controller tells it."""
        text = self.run("scontrol", "show", "job", job)
        return text.partition("JobState=")[2].partition(" ")[0]

    def ended(self, job: str, seconds: float = 200) -> str:
        """Return the state in which a job ends."""
        _until(lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), seconds)
        return self.state(job)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            daemon.wait(timeout=30)


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _until(claim, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def all_nodes(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.run("scontrol", "update", "nodename=n1,n2", "state=resume")
    _until(lambda: slurm.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"], 90)


def test_a_job_of_two_nodes_of_which_one_is_drained_and_goes(slurm, folder, tmp_path):
    program = tmp_path / "job.py"
    program.write_text(JOB)
    job = slurm.submit(
        "--ntasks-per-node=1", "--output=out", "--error=err",
        str(folder / "slurm.sbatch"), sys.executable, str(program), cwd=tmp_path,
    )  # fmt: skip
    state = slurm.ended(job)
    said = (tmp_path / "out").read_text()
    assert state == "COMPLETED", said + (tmp_path / "err").read_text() + slurm.logs()
    lines = said.splitlines()
    assert lines[0].startswith("tcp://")
    assert lines[1:] == ["nodes n1 n2", "drained", "lost", "joined again"]
    assert not list(tmp_path.glob("*.json"))
    # Of a node that has gone the job's own list tells no more.
    assert f"Allocate JobId={job} NodeList=n[1-2]" in slurm.logs()


def test_tasks_of_one_job_are_a_cluster(slurm, folder, tmp_path):
    program = tmp_path / "count.py"
    program.write_text(
        "from distributed import Client\n"
        "with Client() as client:\n"
        "    print(len(client.nthreads()), client.submit(sum, [1, 2]).result(), flush=True)\n"
    )
    command = f"srun {sys.executable} {folder / 'slurm_runner.py'} --device cpu"
    job = slurm.submit(
        "--nodes=2", "--ntasks=4", "--overcommit", "--output=out", "--error=err",
        f"--wrap={command} {sys.executable} {program}", cwd=tmp_path,
    )  # fmt: skip
    state = slurm.ended(job)
    said = (tmp_path / "out").read_text()
    assert state == "COMPLETED", said + (tmp_path / "err").read_text() + slurm.logs()
    assert said == "2 3\n"


def test_jobs_of_workers(slurm, serve, index_works, tmp_path):
    """slurm.py asks for a job for each node."""
    variables = {name: slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
    options = ["--device", "cpu", "--jobs", "2", "--cores", "1", "--memory", "1GB"]
    index_works(serve("slurm.py", *options, "--queue", "long", **variables), 2)
