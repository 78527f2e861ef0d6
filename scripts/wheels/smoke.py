"""What an installed dgpuhash must do, outside of its source: ``python smoke.py [tables]``.

With the word ``tables`` only what takes no cluster, for machines that are emulated.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import dgpuhash

RECORD = np.dtype([("high", "u8"), ("low", "u8")])


def installed() -> None:
    """The package is not that of a checkout, and has its kernels and extension."""
    folder = Path(dgpuhash.__file__).parent
    assert "site-packages" in folder.parts, folder
    assert (folder / "kernels" / "core" / "platform.cuh").is_file()
    assert (folder / "py.typed").is_file()
    assert Path(dgpuhash.get_include()).is_dir()


def tables() -> None:
    """Each noun agrees with a dictionary."""
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 2**62, 50_000)
    keys[:1000] = keys[1000:2000]
    values = rng.random(len(keys))
    kept = dict(zip(keys.tolist(), values.tolist(), strict=True))
    table = dgpuhash.HashMap.from_arrays(keys, values, keep="last")
    assert len(table) == len(kept)
    found, there = table.find(np.append(keys, -1), default=0.0)
    assert there[:-1].all() and not there[-1]
    assert found[:-1].tolist() == [kept[key] for key in keys.tolist()]
    assert table.erase(keys[:10]).all()
    assert len(pickle.loads(pickle.dumps(table))) == len(kept) - 10
    counted = dgpuhash.CountMap.from_keys(keys)
    assert counted.count(keys[:1])[0] == 2
    assert len(dgpuhash.HashSet.from_keys(keys)) == len(kept)
    lists = dgpuhash.MultiMap.from_arrays(keys, np.arange(len(keys)))
    assert len(lists) == len(keys)
    with tempfile.TemporaryDirectory() as folder:
        counted.save(f"{folder}/counts.dgph")
        assert len(dgpuhash.load(f"{folder}/counts.dgph")) == len(kept)


def wide_keys() -> None:
    """Keys of 16 bytes are swapped whole, by several threads."""
    rng = np.random.default_rng(6)
    keys = np.empty(200_000, RECORD)
    keys["high"] = rng.integers(0, 50, len(keys))
    keys["low"] = rng.integers(0, 2000, len(keys))
    kept, counts = np.unique(keys, return_counts=True)
    table = dgpuhash.CountMap(RECORD)
    table.insert(keys)
    assert len(table) == len(kept)
    assert table.count(kept).tolist() == counts.tolist()
    assert table.erase(kept[::2]).all()
    assert len(table) == len(kept) - len(kept[::2])


def frames() -> None:
    """Merges and groups are pandas'."""
    rng = np.random.default_rng(7)
    left = pd.DataFrame({"k": rng.integers(0, 900, 5000), "x": rng.random(5000)})
    right = pd.DataFrame({"k": rng.integers(0, 1000, 2000), "name": rng.choice(["a", "b"], 2000)})
    for how in ("inner", "left", "outer"):
        pd.testing.assert_frame_equal(
            dgpuhash.merge(left, right, how=how, on="k"), left.merge(right, how=how, on="k")
        )
    pd.testing.assert_frame_equal(
        dgpuhash.groupby(left, "k").agg({"x": ["sum", "max", "count"]}),
        left.groupby("k").agg({"x": ["sum", "max", "count"]}),
    )


def clusters() -> None:
    """An index on worker processes answers merges and lookups."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    planes = pd.DataFrame({"k": np.arange(3000) % 800, "v": np.arange(3000)})
    flights = pd.DataFrame({"k": np.arange(2000) % 900, "x": np.arange(2000) / 4})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        source = dd.from_pandas(planes, npartitions=4)
        with dgpuhash.DistributedIndex.build(source, on="k", client=client) as index:
            assert len(index.workers) == 2
            merged = index.merge(flights).compute()
            assert len(merged) == len(flights.merge(planes, on="k"))
            assert len(index.lookup([5, 6])) == 8
        lazy = dd.from_pandas(flights, npartitions=3).dgpuhash.groupby("k")["x"].sum()
        sums = lazy.compute().sort_index()
        pd.testing.assert_series_equal(sums, flights.groupby("k")["x"].sum())


def commands() -> None:
    """Both commands are there, and work on files."""
    programs = Path(sys.executable).parent

    def says(*words: str, folder: str = ".") -> str:
        done = subprocess.run(
            [programs / words[0], *words[1:]], capture_output=True, text=True, cwd=folder
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert dgpuhash.__version__ in says("dgpuhash", "--version")
    assert dgpuhash.__version__ in says("dask", "dgpuhash", "--version")
    assert "dgpuhash" in says("dgpuhash", "info")
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame({"k": [1, 2, 1], "v": [3, 4, 5]}).to_parquet(f"{folder}/rows.parquet")
        grouped = "groupby rows.parquet --by k --agg total=sum(v) -o sums.parquet"
        says("dgpuhash", *grouped.split(), folder=folder)
        sums = pd.read_parquet(f"{folder}/sums.parquet").set_index("k")["total"]
        assert sums.to_dict() == {1: 8, 2: 4}


CHECKS = (installed, tables, wide_keys, frames, clusters, commands)


def main() -> None:
    """Run the checks, and tell the seconds of each."""
    emulated = sys.argv[1:] == ["tables"]
    for check in CHECKS:
        if emulated and check in (clusters, commands):
            continue
        began = time.perf_counter()
        check()
        print(f"{check.__name__:10} {time.perf_counter() - began:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
