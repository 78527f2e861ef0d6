"""Run the queries of TPC-H with our merges and groupbys, and compare with DuckDB."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
from distributed import Client, LocalCluster

import dgpuhash
from suites.raising import no_other_engine, verb_runs
from suites.tpch.answers import difference, expected_of, first_rows, names_in, open_tables
from suites.tpch.data import Tables, generate, load, load_lazily
from suites.tpch.queries import QUERIES, Verbs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m suites.tpch", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="of the data; default: 0.01")
    parser.add_argument("--queries", type=numbers_of, help="as 3,5; default: all there are")
    parser.add_argument("--folder", type=Path, help="which keeps the tables; default: none")
    parser.add_argument(
        "--timeout", type=float, default=300, help="of a query in seconds; default: 300"
    )
    parser.add_argument(
        "--dask", action="store_true", help="on lazy frames of a local Dask cluster, not pandas'"
    )
    parser.add_argument(
        "--stand-in", action="store_true", help="merge and group with Dask, not with ours"
    )
    given = parser.parse_args()
    verbs = Verbs(stand_in, _grouped) if given.stand_in else Verbs(dgpuhash.merge, dgpuhash.groupby)
    with ExitStack() as stack:
        folder = given.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tables"
        if not folder.exists():
            generate(folder, given.scale)
        database = stack.enter_context(open_tables(folder))
        lazily = given.dask or given.stand_in
        if lazily:
            stack.enter_context(Client(stack.enter_context(_cluster())))
        if not given.stand_in:
            stack.enter_context(no_other_engine())
        print(f"{'query':>5}{'rows':>7}{'seconds':>9}  ok")
        wrong = []
        for number in given.queries or QUERIES:
            # What hangs says where its threads are, and ends the program.
            faulthandler.dump_traceback_later(given.timeout, exit=True)
            tables = load_lazily(folder) if lazily else load(folder, names_in(number))
            if not right(number, tables, verbs, database):
                wrong.append(number)
            faulthandler.cancel_dump_traceback_later()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory: {most:.1f} GiB")
    if wrong:
        print(f"not as DuckDB: {', '.join(map(str, wrong))}", file=sys.stderr)
    return int(bool(wrong))


def _cluster() -> LocalCluster:
    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        # Dask's own shuffles warn that they begin and end.
        silence_logs=logging.ERROR,
    )


def numbers_of(text: str) -> list[int]:
    """Return the numbers of queries in a list with commas."""
    numbers = [int(each) for each in text.split(",")]
    if missing := [n for n in numbers if n not in QUERIES]:
        raise argparse.ArgumentTypeError(f"no query {missing[0]}; there are {list(QUERIES)}")
    return numbers


def right(number: int, tables: Tables, verbs: Verbs, database: duckdb.DuckDBPyConnection) -> bool:
    """Print how a query went; return whether its answer is DuckDB's."""
    expected = expected_of(number, database)
    start = time.perf_counter()
    try:
        # Whatever the query does must not take another engine where those are told to raise.
        with verb_runs():
            answer = QUERIES[number](tables, verbs)
            answer = answer.compute() if hasattr(answer, "compute") else answer
        answer = first_rows(number, answer)
        seconds = time.perf_counter() - start
        reason, rows = difference(answer, expected), len(answer)
    except Exception as error:
        seconds = time.perf_counter() - start
        reason, rows = f"{type(error).__name__}: {error}", 0
    print(f"{number:>5}{rows:>7}{seconds:>9.2f}  {reason or 'yes'}", flush=True)
    return reason is None


def stand_in(
    left: dd.DataFrame,
    right: dd.DataFrame,
    how: str = "inner",
    validate: str | None = None,
    **options: Any,
) -> dd.DataFrame:
    """Merge as `dgpuhash.merge` does, with Dask's merge; nothing is validated."""
    if how == "semi":
        return dd.merge(left, right, how="leftsemi", **options)
    if how == "anti":
        keys = options.get("on") or options["right_on"]
        others = right[[keys] if isinstance(keys, str) else keys].drop_duplicates()
        merged = dd.merge(left, others, how="left", indicator=True, **options)
        return merged[merged["_merge"] == "left_only"][list(left.columns)]
    if how == "cross":
        ones = {"left_on": "left_one", "right_on": "right_one"}
        merged = dd.merge(left.assign(left_one=1), right.assign(right_one=1), **ones, **options)
        return merged.drop(columns=list(ones.values()))
    return dd.merge(left, right, how=how, **options)


def _grouped(frame: dd.DataFrame, by: Any) -> Any:
    """Group as `dgpuhash.groupby` does, with Dask's groupby."""
    return frame.groupby(by)


if __name__ == "__main__":
    sys.exit(main())
