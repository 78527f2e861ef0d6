"""Merge with a side larger than the memory of its workers, and with ones that are too large.

``python -m suites.spill.merge`` builds 3 GiB on two workers of 1 GiB, for each join. It checks
counts and sums, that no worker was ended and that no file is left, and prints what it took.
"""

from __future__ import annotations

import argparse
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import dgpuhash
from dgpuhash.errors import OutOfMemoryError

MIB = 1 << 20
# Characters of the text of each row, which begins with its number.
DIGITS, TIMES = 12, 23
ROW_NBYTES = 4 * 8 + DIGITS * TIMES + 8


def key_of(number: Any) -> Any:
    """Return the key of a row: an odd multiple, so that two of them differ."""
    return (number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def stored(part: int, rows: int) -> pd.DataFrame:
    """Return a partition of the side that is stored."""
    numbers = np.arange(part * rows, (part + 1) * rows)
    text = pd.Series(numbers, dtype="int64").astype("str").str.zfill(DIGITS).str.repeat(TIMES)
    columns = {"k": key_of(numbers), "number": numbers.astype(float), "half": numbers / 2}
    return pd.DataFrame(columns | {"text": text})


def numbers_asked(part: int, rows: int, total: int) -> Any:
    """Return the numbers that a partition asks for: a half of them is not there."""
    return np.random.default_rng(part).integers(0, 2 * total, rows)


def asking(part: int, rows: int, total: int) -> pd.DataFrame:
    """Return a partition of the side that asks."""
    numbers = numbers_asked(part, rows, total)
    return pd.DataFrame({"k": key_of(numbers), "x": numbers})


def keys_alone(part: int, rows: int) -> pd.DataFrame:
    """Return a partition of keys."""
    return pd.DataFrame({"k": key_of(np.arange(part * rows, (part + 1) * rows))})


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return counts and sums of a partition of the result, once its rows are checked."""
    found = frame[frame["text"].notna()]
    numbers = found["number"].to_numpy()
    assert (found["k"].to_numpy() == key_of(numbers.astype(np.int64))).all()
    assert (found["half"].to_numpy() * 2 == numbers).all()
    assert (found["text"].str.slice(0, DIGITS).astype("int64").to_numpy() == numbers).all()
    assert (found["text"].str.len() == DIGITS * TIMES).all()
    sums = {"rows": len(frame), "found": len(found), "sum": int(numbers.sum())}
    return pd.DataFrame(sums | {"asked": int(frame["x"].fillna(0).sum())}, index=[0])


def wanted(how: str, parts: int, rows: int, total: int) -> dict[str, int]:
    """Return the counts and sums of a merge, by NumPy."""
    numbers = np.concatenate([numbers_asked(part, rows, total) for part in range(parts)])
    there = numbers[numbers < total]
    found, number, count = len(there), int(there.sum()), len(numbers)
    if how == "inner":
        return {"rows": found, "found": found, "sum": number, "asked": number}
    asked = int(numbers.sum())
    if how == "left":
        return {"rows": count, "found": found, "sum": number, "asked": asked}
    others = np.setdiff1d(np.arange(total), there)
    return {
        "rows": count + len(others),
        "found": found + len(others),
        "sum": number + int(others.sum()),
        "asked": asked,
    }


class Watch:
    """What processes take of memory and of the disk, while it is looked at."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.rss = self.spilled = self.files = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.05):
            self.look()

    def look(self) -> int:
        """Look once; return the number of files that are open."""
        sizes: dict[int, int] = {}
        for pid in self._pids:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.rss = max(self.rss, pages * mmap.PAGESIZE)
            for each in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    name = str(each.readlink())
                    if "dask-scratch" in name and name.endswith("(deleted)"):
                        about = each.stat()
                        sizes[about.st_ino] = about.st_size
                except OSError:
                    continue
        self.spilled = max(self.spilled, sum(sizes.values()))
        return len(sizes)

    def stop(self) -> None:
        """End the looks."""
        self._end.set()
        self._thread.join()


@contextmanager
def watched(client: Client, what: str) -> Iterator[None]:
    """Run a block; print what it took, and check that it left nothing and ended no worker."""
    pids = list(client.run(os.getpid).values())
    watch, start = Watch(pids), time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        watch.stop()
        assert list(client.run(os.getpid).values()) == pids, "a worker was ended"
        end = time.monotonic() + 30
        while watch.look():
            assert time.monotonic() < end, "a file is left"
            time.sleep(0.1)
    print(
        f"{what:>24}: {seconds:6.1f} s, peak of a worker {watch.rss / MIB:6.0f} MiB, "
        f"{watch.spilled / MIB:6.0f} MiB in files",
        flush=True,
    )


def refused(client: Client, what: str, merged: Any) -> None:
    """Check that a merge is refused for its memory."""
    with watched(client, what):
        try:
            merged.compute()
        except OutOfMemoryError as error:
            print(f"{'':>24}  {error}")
        else:
            raise AssertionError("it was not refused")


def main() -> None:
    """Run the merges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=3, help="size of the stored side")
    parser.add_argument("--mib", type=int, default=64, help="size of its partitions")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the other side")
    parser.add_argument("--memory", default="1GiB", help="memory of each of the two workers")
    parser.add_argument("--only", default="inner,left,outer,keys,result")
    parser.add_argument("--ranges", type=int, default=64, help="hash ranges of the outer merge")
    given = parser.parse_args()
    rows = given.mib * MIB // ROW_NBYTES
    parts = int(given.gib * 1024 / given.mib)
    total = parts * rows
    settings = {"dataframe.convert-string": False, "temporary-directory": "/tmp"}
    with (
        dask.config.set(settings),
        LocalCluster(2, threads_per_worker=1, memory_limit=given.memory, dashboard_address=":0",
                     preload=["dgpuhash.distributed"]) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.wait_for_workers(2)
        right = dd.from_map(stored, range(parts), rows=rows, meta=stored(0, 1).iloc[:0])
        asks = 16
        some = given.rows // asks
        options = {"rows": some, "total": total}
        left = dd.from_map(asking, range(asks), **options, meta=asking(0, 1, 1).iloc[:0])
        print(f"{total:,} rows of {ROW_NBYTES} bytes are stored, {given.rows:,} ask")
        for how in ("inner", "left", "outer"):
            if how not in given.only.split(","):
                continue
            merged = dgpuhash.merge(left, right, how, on="k", npartitions=given.ranges)
            meta = pd.DataFrame({"rows": [0], "found": [0], "sum": [0], "asked": [0]}).iloc[:0]
            with watched(client, how):
                found = merged.map_partitions(summary, meta=meta).sum().compute()
            assert found.to_dict() == wanted(how, asks, some, total), (how, found)
        if "keys" in given.only:
            many = dd.from_map(keys_alone, range(32), rows=8 * MIB, meta=keys_alone(0, 1)[:0])
            refused(client, "keys beyond", dgpuhash.merge(left, many, on="k"))
        if "result" in given.only:
            same = dd.from_map(lambda part: pd.DataFrame({"k": np.zeros(1000, "int64"), "v": part}),
                               range(100), meta={"k": "int64", "v": "int64"})  # fmt: skip
            refused(client, "result beyond", dgpuhash.merge(same, same, on="k"))


if __name__ == "__main__":
    main()
