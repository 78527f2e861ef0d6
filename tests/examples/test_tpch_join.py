"""TPC-H examples at a small scale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "said"),
    [
        ("tpch_join.py", ["--scale", "0.01"], "Equal to DuckDB's."),
        ("joins_under_change.py", ["--rounds", "1"], "Equal in each round."),
        ("tpch_beside_dask.py", ["0.01"], "60,175 rows, equal."),
    ],
)
def test_tpch(tmp_path, program, options, said):
    found = subprocess.run(
        [sys.executable, EXAMPLES / program, *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert said in found.stdout


def test_help_and_mistakes_start_no_cluster(tmp_path):
    """What would start one has no processes left for it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\n\ndef refuse(*_):\n    raise OSError('no server is to be started')\n\n"
        "socket.socket.bind = socket.socket.listen = refuse\n"
    )
    (tmp_path / "each.py").write_text(
        "import runpy, sys\n\nfor program in sys.argv[1:]:\n"
        "    for option in ('--help', '--no-such-option'):\n"
        "        sys.argv = [program, option]\n"
        "        try:\n            runpy.run_path(program, run_name='__main__')\n"
        "        except SystemExit as end:\n"
        "            print('ended:', program, option, end.code, flush=True)\n"
    )
    programs = sorted(map(str, EXAMPLES.glob("*.py")))
    found = subprocess.run(
        [sys.executable, tmp_path / "each.py", *programs],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    for program in programs:
        for option, code in (("--help", 0), ("--no-such-option", 2)):
            assert f"ended: {program} {option} {code}\n" in found.stdout, found.stderr
        assert f"usage: {Path(program).name}" in found.stdout
        assert f"usage: {Path(program).name}" in found.stderr


def test_examples_are_short():
    # An experiment on clusters of several kinds; its table comes last.
    most = {"weak_scaling.py": 90, "own_kernel.py": 55}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= most.get(path.name, 50), path.name
