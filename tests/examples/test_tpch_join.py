"""The TPC-H example passes at a small scale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "tpch_join.py"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tpch_join(tmp_path):
    found = subprocess.run(
        [sys.executable, PROGRAM, "--scale", "0.01"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Equal to DuckDB's." in found.stdout


def test_examples_are_short():
    for path in PROGRAM.parent.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 50, path.name
