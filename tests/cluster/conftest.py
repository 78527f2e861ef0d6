"""The programs and scripts of cluster/, and how a test runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy, prepare
from distributed import Client

from dgpuhash.distributed import DistributedIndex

FOLDER = Path(__file__).resolve().parents[2] / "cluster"


@pytest.fixture(scope="session")
def folder() -> Path:
    return FOLDER


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Return the scripts' settings: CPU workers, and this interpreter."""
    return {"DEVICE": "cpu", "PYTHON": sys.executable}


@pytest.fixture
def serve(
    folder: Path, environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Yield a function that starts a program of cluster/ until the test ends.

    The function returns the address that the program prints.
    """
    programs = []

    def start(name: str, *arguments: str, **variables: str) -> str:
        with (tmp_path / "log").open("wb") as log:
            program = subprocess.Popen(
                [sys.executable, folder / name, *arguments],
                env=os.environ | environment | variables,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=tmp_path,
            )
        programs.append(program)
        for line in program.stdout:
            # UCX writes its warnings there too.
            if "://" in line:
                return line.strip()
        raise AssertionError((tmp_path / "log").read_text())

    yield start
    for program in programs:
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=60) == 0, (tmp_path / "log").read_text()
        program.stdout.close()


@pytest.fixture
def index_works() -> Callable[[str, int], None]:
    """Return a check of an index on the cluster at an address, against pandas."""

    def check(address: str, workers: int) -> None:
        planes = pd.DataFrame({"k": np.arange(3000) % 800, "v": np.arange(3000)})
        flights = pd.DataFrame({"k": np.arange(2000) % 900, "x": np.arange(2000) / 4})
        with Client(address, timeout=200) as client:
            client.wait_for_workers(workers, timeout=120)
            prepare(client)
            source = lazy(planes, 4)
            with DistributedIndex.build(source, on="k", client=client) as index:
                assert len(index.workers) == workers
                assert_same(index.merge(flights).compute(), flights.merge(planes, on="k"))

    return check
