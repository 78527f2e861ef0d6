"""Workers that take long to import the library, or cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dgpuhash.distributed import DistributedIndex, phase
from dgpuhash.errors import UnsupportedError

pytestmark = pytest.mark.cluster

IMPORTS = """
import sys, time

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "dgpuhash.distributed.shard":
            {then}

sys.meta_path.insert(0, Finder())
"""


@contextmanager
def workers_that(then: str, folder: Path) -> Iterator[Client]:
    """A client of two processes that do so when they come to the middle of the library."""
    preload = folder / "imports.py"
    preload.write_text(IMPORTS.format(then=then))
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", preload=[str(preload)]
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client


def test_a_worker_that_imports_is_not_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(phase, "SILENCE", 3.0)
    monkeypatch.setattr(phase, "PATIENCE", 0.1)
    rows = pd.DataFrame({"k": [1, 2], "v": [3, 4]})
    with (
        workers_that("time.sleep(6)", tmp_path) as client,
        DistributedIndex.build(rows, on="k", client=client) as index,
    ):
        assert index.contains([2, 5]).tolist() == [True, False]


def test_a_worker_that_cannot_import(tmp_path):
    with (
        workers_that("raise ImportError('no such disk')", tmp_path) as client,
        pytest.raises(UnsupportedError, match=r"cannot import dgpuhash \(no such disk\)"),
    ):
        DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=client)
