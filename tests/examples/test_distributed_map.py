"""Example of a distributed map."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "distributed_map.py"


@pytest.mark.cluster
@pytest.mark.slow
def test_distributed_map():
    found = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, timeout=280, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "loaded onto 3 workers" in found.stdout
    assert "Right." in found.stdout
