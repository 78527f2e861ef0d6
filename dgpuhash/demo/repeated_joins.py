"""Time repeated joins with one index against Dask's merge."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, wait

from dgpuhash.demo.reference import ResultMismatch
from dgpuhash.demo.report import DemoReport
from dgpuhash.distributed import DistributedIndex

# A prime: its multiples modulo the number of rows are a permutation, unless it divides that number.
_STEP = 1_000_003
# Keeps sums small enough to be exact.
_MODULUS = 1 << 20


@dataclass(frozen=True)
class RepeatedJoins:
    """Generated rows, and batches of other rows that are joined with them.

    The batches are joined one after the other.

    Attributes
    ----------
    rows : int
        Stored rows, each with a key of its own.
    batch_rows : int
        Rows of each batch; about every other one has a partner.
    times : int
        Number of batches.
    partitions : int
        Partitions of the stored rows; batches have half as many.

    Examples
    --------
    >>> RepeatedJoins(rows=8, partitions=2).stored()["k"].compute().tolist()
    [0, 3, 6, 1, 4, 7, 2, 5]
    >>> batch = RepeatedJoins(rows=8, batch_rows=6, partitions=2).batch(0).compute()
    >>> list(batch), len(batch)
    (['k', 'x'], 6)
    """

    rows: int = 10_000_000
    batch_rows: int = 1_000_000
    times: int = 5
    partitions: int = 8

    def stored(self) -> Any:
        """Return the stored rows as a lazy Dask DataFrame."""
        return self._frame(_build_rows, self.rows, self.partitions)

    def batch(self, number: int) -> Any:
        """Return batch `number` as a lazy Dask DataFrame."""
        parts = max(1, self.partitions // 2)
        return self._frame(_probe_rows, self.batch_rows, parts, seed=number)

    def run(self, client: Client, report: DemoReport, *, on_gpus: bool = False) -> pd.DataFrame:
        """Join all batches with an index and with Dask's merge; return seconds.

        Raises
        ------
        ResultMismatch
            When the two joins have different rows.
        """
        stored = self._persist(client, self.stored(), on_gpus)
        batches = [
            self._persist(client, self.batch(number), on_gpus) for number in range(self.times)
        ]
        asked, many = self.times * self.batch_rows, f"join {self.times} batches"
        with report.phase(f"index {self.rows:,} generated rows, once", self.rows):
            start = time.perf_counter()
            index = DistributedIndex.build(stored, on="k", unique=True, client=client)
            built = time.perf_counter() - start
        with index, report.phase(f"  {many} with the index", asked, self.times) as advance:
            ours, joins = [], []
            for batch in batches:
                start = time.perf_counter()
                ours.append(_summary(index.merge(batch)))
                joins.append(time.perf_counter() - start)
                advance(1)
        with report.phase(f"  {many} by Dask's own merge", asked, self.times) as advance:
            theirs, merges = [], []
            for batch in batches:
                start = time.perf_counter()
                theirs.append(_summary(batch.merge(stored, on="k")))
                merges.append(time.perf_counter() - start)
                advance(1)
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if not one.equals(other):
                raise ResultMismatch(
                    f"batch {number}: the index and Dask's merge differ\n{one}\n{other}"
                )
        return pd.DataFrame(
            {
                "seconds": ["standing index", "Dask's own merge"],
                "build": [built, np.nan],
                "first batch": [joins[0], merges[0]],
                "others, each": [np.mean(joins[1:] or joins), np.mean(merges[1:] or merges)],
                f"in all, {self.times} times": [built + sum(joins), sum(merges)],
            }
        )

    def _frame(self, make: Any, length: int, partitions: int, **options: int) -> Any:
        edges = [length * part // partitions for part in range(partitions + 1)]
        meta = make(0, 0, rows=self.rows, **options)
        return dd.from_map(make, edges[:-1], edges[1:], meta=meta, rows=self.rows, **options)

    def _persist(self, client: Client, frame: Any, on_gpus: bool) -> Any:
        if on_gpus:
            frame = frame.to_backend("cudf")
        frame = client.persist(frame)
        wait(frame)
        return frame


def _build_rows(start: int, stop: int, rows: int) -> pd.DataFrame:
    keys = np.arange(start, stop) * _STEP % rows
    return pd.DataFrame({"k": keys, "v": keys * 7 % 1000, "w": keys / 8})


def _probe_rows(start: int, stop: int, rows: int, seed: int) -> pd.DataFrame:
    keys = np.random.default_rng([seed, start]).integers(0, 2 * rows, stop - start)
    return pd.DataFrame({"k": keys, "x": np.arange(start, stop)})


def _summary(joined: Any) -> pd.Series:
    """Return a join's row count, and sums that identify its rows."""
    meta = pd.DataFrame({"rows": [0], "pairs": [0], "others": [0]})
    return joined.map_partitions(_sums, meta=meta).compute().sum()


def _sums(part: Any) -> Any:
    pairs = (part["k"] * 31 + part["x"] * 17 + part["v"]) % _MODULUS
    whole = (part["w"] * 8).astype("int64") - part["k"]
    found = {"rows": [len(part)], "pairs": [int(pairs.sum())], "others": [int(abs(whole).sum())]}
    return pd.DataFrame(found, dtype="int64")
