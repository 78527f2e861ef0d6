"""Python programs of cluster/: they start CPU clusters.

The clusters that they would start on GPUs are checked by their settings.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from ssh_server import SSHServer

pytestmark = pytest.mark.cluster


@pytest.fixture
def program(folder: Path, monkeypatch: pytest.MonkeyPatch, request) -> ModuleType:
    """Return the program under test as a module."""
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(request.param)


def test_one_host(serve, index_works):
    index_works(serve("one_host.py", "--workers", "1", "--device", "cpu"), 1)


@pytest.mark.parametrize("when", ["while it starts", "when it stands"])
def test_ctrl_c_in_a_terminal(folder, tmp_path, when):
    """Which all processes of the program get at once."""
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen(
            [sys.executable, folder / "one_host.py", "--workers", "1", "--device", "cpu"],
            stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            # Another test's cluster may have the dashboard's port.
            env={**os.environ, "PYTHONWARNINGS": "ignore:Port"},
        )  # fmt: skip
    try:
        if when == "when it stands":
            assert b"://" in program.stdout.readline()
        else:
            deadline = time.monotonic() + 60
            # The worker, beside what looks after its resources.
            while len(psutil.Process(program.pid).children()) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(timeout=100) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.stdout.close()
    said = (tmp_path / "log").read_text()
    assert said == "" or (when == "while it starts" and "Traceback" not in said)


SBATCH = """#!/bin/sh
cp "$1" job.sh
bash job.sh >job.log 2>&1 &
echo "Submitted batch job $!"
"""

SCANCEL = """#!/bin/sh
kill "$1"
"""


def test_slurm(serve, index_works, tmp_path):
    """With an `sbatch` that runs the job at once, as SLURM does in the end."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    options = ["--device", "cpu", "--cores", "1", "--memory", "1GB", "--queue", "long"]
    index_works(serve("slurm.py", *options, PATH=path), 1)
    script = (tmp_path / "job.sh").read_text()
    assert "#SBATCH -p long" in script
    assert "#SBATCH -t 01:00:00" in script


def test_slurm_where_there_is_none(folder):
    said = subprocess.run(
        [sys.executable, folder / "slurm.py", "--device", "cpu"],
        env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert said.returncode == 2
    assert "there is no sbatch here" in said.stderr


@pytest.mark.parametrize("options", ["", "--device cuda", "--gpus 8"])
def test_slurm_on_a_node_without_a_gpu(folder, tmp_path, options):
    """Such as a login node: GPU jobs are refused, and no CPU ones are asked for in their place."""
    (tmp_path / "sbatch").write_text("#!/bin/sh\ntouch asked\n")
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "serving.py").write_text(
        (folder / "serving.py").read_text().replace("/dev/nvidiactl", "/nowhere")
    )
    (tmp_path / "slurm.py").write_text((folder / "slurm.py").read_text())
    said = subprocess.run(
        [sys.executable, tmp_path / "slurm.py", *options.split()], cwd=tmp_path,
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert said.returncode == 2
    assert "this node has no GPU" in said.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("one_host.py --workers 0", 2, "argument --workers: '0'; give a number from 1 on"),
        ("slurm.py --jobs -1", 2, "argument --jobs"),
        ("slurm.py --jobs two", 2, "argument --jobs: 'two'; give a number from 1 on"),
        ("one_host.py --device cpu --memory-limit much", 1, "Could not interpret 'much'"),
        ("ssh.py --device cpu host.invalid", 1, "ssh.py: no cluster was started: "),
    ],
)
def test_mistakes_end_in_one_line(folder, arguments, code, said):
    name, *options = arguments.split()
    found = subprocess.run(
        [sys.executable, folder / name, *options], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == code
    assert said in found.stderr.strip().splitlines()[-1]
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "one_host.py --device cuda",
            "takes dask_cuda; pip install '.[cu13]' in a checkout, or ",
        ),
        ("ssh.py --device cpu a", "takes asyncssh; pip install '.[ssh]' in a checkout, or "),
        (
            "slurm.py --device cpu",
            "takes dask_jobqueue; pip install '.[slurm]' in a checkout, or ",
        ),
    ],
)
def test_what_to_install(folder, tmp_path, arguments, said):
    """In an environment without the extras: all of them are hidden."""
    hidden = "asyncssh", "dask_cuda", "dask_jobqueue"
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        f"util.find_spec = lambda name: None if name in {hidden} else found(name)\n"
    )
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    name, *options = arguments.split()
    done = subprocess.run(
        [sys.executable, folder / name, *options], capture_output=True, text=True, timeout=60,
        env={"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name} {said}")


def test_a_job_that_slurm_refuses_ends_the_others(folder, tmp_path):
    first = tmp_path / "first"
    programs = {
        "sbatch": f'mkdir {first} 2>/dev/null && echo "Submitted batch job 7" && exit\n'
        "echo 'sbatch: error: no such partition' >&2\nexit 1",
        "scancel": f'echo "$@" >{first}/ended',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, folder / "slurm.py", "--device", "cpu", "--jobs", "3"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("slurm.py: no cluster was started: ")
    assert last.endswith("sbatch: error: no such partition")
    assert "Traceback" not in done.stderr
    assert (first / "ended").read_text() == "7\n"


@pytest.mark.parametrize("program", ["slurm"], indirect=True)
def test_slurm_job_of_a_node_with_gpus(program):
    from dask_jobqueue.slurm import SLURMJob

    options = program.job_options("cuda", gpus=4, cores=32, memory="512GB", interface="ib0")
    job = SLURMJob("ucx://node1:8786", name="workers", protocol="ucx", **options)
    lines = job.job_script().splitlines()
    assert {"#SBATCH -n 1", "#SBATCH --cpus-per-task=32", "#SBATCH --gpus-per-node=4"} < set(lines)
    assert "#SBATCH --mem=477G" in lines
    command = lines[-1]
    assert "-m dask_cuda.cli ucx://node1:8786 --name workers --nthreads 1" in command
    assert "--memory-limit 119.21GiB" in command
    assert '--local-directory "${TMPDIR:-/tmp}"' in command
    assert "--set-rmm-allocator-for-libs cupy --interface ib0 --protocol ucx" in command


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SSHServer]:
    server = SSHServer(tmp_path)
    try:
        yield server
    finally:
        server.close()


def test_ssh(server, serve, index_works, tmp_path):
    options = ["--device", "cpu", "--memory-limit", "1GB"]
    index_works(serve("ssh.py", "node1", "node2", *options, HOME=str(tmp_path)), 2)


@pytest.mark.parametrize("program", ["ssh"], indirect=True)
def test_ssh_to_hosts_with_gpus(program, monkeypatch):
    asked = {}
    monkeypatch.setattr(program, "SSHCluster", lambda hosts, **options: asked.update(options))
    program.start(["a", "b"], "cuda", interface="ib0")
    assert asked["worker_class"] == "dask_cuda.CUDAWorker"
    assert asked["scheduler_options"]["protocol"] == "ucx"
    assert asked["worker_options"] == {
        "memory_limit": "auto",
        "interface": "ib0",
        "rmm_pool_size": 0.5,
        "rmm_allocator_external_lib_list": ["cupy"],
    }
