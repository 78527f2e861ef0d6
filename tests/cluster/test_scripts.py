"""Commands of the by-hand scripts on GPUs, and their refusals.

test_hosts.py runs the scripts on CPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GPU_OPTIONS = "--rmm-pool-size 0.5 --set-rmm-allocator-for-libs cupy"


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """Write an interpreter that prints its arguments."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"\nenv | grep UCX\n')
    program.chmod(0o755)
    return program


def printed(command: list[str | Path], **variables: str) -> list[str]:
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_scripts_on_a_host_with_gpus(folder, recorder):
    variables = {"DEVICE": "cuda", "INTERFACE": "ib0", "PYTHON": str(recorder)}
    context = "DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT=True"
    assert printed([folder / "scheduler.sh", "--no-dashboard"], **variables) == [
        "-m dask scheduler --protocol ucx --port 8786 --interface ib0 --no-dashboard",
        context,
    ]
    assert printed([folder / "worker.sh", "ucx://a:8786", "--name", "b"], **variables) == [
        f"-m dask cuda worker ucx://a:8786 {GPU_OPTIONS} --memory-limit auto --death-timeout 60 "
        "--interface ib0 --name b",
        context,
    ]


def test_scripts_say_what_they_need(folder):
    assert "usage" in printed([folder / "worker.sh"])[0]
    (refusal,) = printed([folder / "scheduler.sh"], DEVICE="tpu")
    assert refusal == "DEVICE=tpu: set it to cuda or cpu, or leave it out"


def test_the_settings_do_not_end_the_shell_that_reads_them(folder):
    lines = printed(["sh", "-c", f"DEVICE=tpu; . '{folder}/settings.sh'; echo goes on"])
    assert lines == ["goes on", "DEVICE=tpu: set it to cuda or cpu, or leave it out"]


GPU_REMEDY = (
    "pip install '.[cu13]' (CUDA 12: [cu12]) in a checkout, or 'FILE.whl[cu13]', or set DEVICE=cpu"
)
UCX_REMEDY = (
    "pip install '.[ucx]' in a checkout, or 'FILE.whl[ucx]', or start the scheduler with "
    "PROTOCOL=tcp"
)


@pytest.mark.parametrize(
    ("command", "device", "said"),
    [
        ("scheduler.sh", "cuda", f"DEVICE=cuda takes distributed_ucxx: {GPU_REMEDY}\n"),
        ("worker.sh ucx://a:8786", "cuda", f"DEVICE=cuda takes distributed_ucxx: {GPU_REMEDY}\n"),
        ("worker.sh tcp://a:8786", "cuda", f"DEVICE=cuda takes dask_cuda: {GPU_REMEDY}\n"),
        ("scheduler.sh", "cpu", f"UCX takes distributed_ucxx: {UCX_REMEDY}\n"),
        ("worker.sh ucx://a:8786", "cpu", f"UCX takes distributed_ucxx: {UCX_REMEDY}\n"),
    ],
)
def test_scripts_without_what_they_take(folder, tmp_path, command, device, said):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    variables = {"DEVICE": device, "PROTOCOL": "ucx", "PYTHON": str(bare)}
    name, *arguments = command.split()
    done = subprocess.run(
        [folder / name, *arguments], env=os.environ | variables,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == said
