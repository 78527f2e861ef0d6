"""The seconds of cudf-polars' own runner of these queries, which it calls PDS-H."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

__all__ = ["FRONTENDS", "seconds_of"]

_MODULE = "cudf_polars.streaming.benchmarks.pdsh"
#: Its engines: two for one GPU, one for several.
FRONTENDS = ("spmd", "in-memory", "dask")
_END = 30


def seconds_of(
    folder: Path,
    queries: Sequence[int],
    *,
    frontend: str,
    repeats: int,
    workers: int = 1,
    timeout: float = 600,
) -> dict[int, float]:
    """Return the median of the seconds of each query that it answers, reading the files included.

    The first run of a query is not counted. It runs in a process of its own, on the first GPUs.

    Raises
    ------
    ModuleNotFoundError
        When cudf-polars is not installed.
    """
    if find_spec("cudf_polars") is None:
        raise ModuleNotFoundError("no cudf_polars; 'pip install cudf-polars-cu13' has its runner")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(workers)))
    gpus = ",".join(visible.split(",")[:workers])
    with tempfile.TemporaryDirectory() as place:
        told = Path(place, "told.jsonl")
        command = [
            *(sys.executable, "-m", _MODULE, ",".join(map(str, queries))),
            *("--path", str(folder.absolute()), "--suffix", "/*.parquet", "--frontend", frontend),
            *("--iterations", str(repeats + 1), "--output", str(told)),
            *("--no-print-results", "--no-print-plans", "--no-summarize"),
        ]
        try:
            ended = subprocess.run(
                command, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus}, timeout=timeout,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            said = ended.stdout
        except subprocess.TimeoutExpired as error:
            said = f"{error.stdout or ''}\nstopped after {timeout:.0f} s"
        records = _records(told)
    found = {int(number): _median(each) for number, each in records.items()}
    if missing := [number for number in queries if found.get(number) is None]:
        last = "\n".join(said.splitlines()[-_END:])
        print(f"pdsh {frontend} has no time of {missing}:\n{last}", file=sys.stderr, flush=True)
    return {number: seconds for number, seconds in found.items() if seconds is not None}


def _records(told: Path) -> dict[str, list[dict[str, object]]]:
    """Return the runs of each query that it wrote down, none where it ended before."""
    lines = told.read_text().splitlines() if told.exists() else []
    return dict(json.loads(lines[-1])["records"]) if lines else {}


def _median(runs: list[dict[str, object]]) -> float | None:
    spent = [
        float(str(run["duration"]))
        for run in runs
        if run["status"] == "success" and run["iteration"]
    ]
    return statistics.median(spent) if spent else None
