"""Run the queries of TPC-H with our merges and groupbys, and compare with DuckDB.

On GPUs also their time, beside cudf-polars' own runner of the same queries.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
from distributed import Client, LocalCluster

import dgpuhash
from dgpuhash import backend
from dgpuhash.bench.refresh.tables import generate
from dgpuhash.bench.workers.cluster import most_workers, start
from suites.raising import no_other_engine, verb_runs
from suites.tpch import pdsh, standing
from suites.tpch.answers import names_in, open_tables
from suites.tpch.data import Tables, read_lazily, read_now
from suites.tpch.libraries import CUDF, EXACT, FLOATS, Library
from suites.tpch.queries import QUERIES, Verbs
from suites.tpch.running import Outcome, outcomes, table_of

# Whether indexes stand in the passes over the queries.
_STANDING = {None: [False], "only": [True], "also": [False, True]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m suites.tpch", description=__doc__)
    add = parser.add_argument
    add("--scale", type=float, default=0.01, help="of the data; default: 0.01")
    add("--queries", type=numbers_of, help="as 3,5; default: all there are")
    add("--folder", type=Path, help="which keeps the tables; default: none")
    add("--parts", type=int, default=4, help="files of a table; default: 4")
    add("--timeout", type=float, default=300, help="of a query that hangs; default: 300 s")
    add("--limit", type=float, default=120, help="of a run, which is given up; default: 120 s")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: on cuDF frames")
    add("--floats", action="store_true", help="pandas frames hold prices and days as cuDF's do")
    add("--dask", action="store_true", help="on lazy frames of a local Dask cluster")
    add("--workers", type=int, help="of the cluster; default: 2, or one a GPU")
    add("--protocol", help="of Dask's comm between GPUs; default: ucxx")
    add("--stand-in", action="store_true", help="merge and group with Dask, not with ours")
    stands = {"choices": list(filter(None, _STANDING)), "nargs": "?", "const": "only"}
    add("--standing", **stands, help="on indexes of dimension tables that stand before; also: too")
    add("--repeat", type=int, default=0, help="runs that count, after one that does not")
    add("--compare", action="store_true", help="with cudf-polars' runner, on the same files")
    add("--frontend", choices=pdsh.FRONTENDS, help="of that; default: spmd, or dask for several")
    add("--json", type=Path, help="file that gets a line for each query")
    add("--traces", action="store_true", help="print where each error came from")
    given = parser.parse_args()
    if given.stand_in and (given.standing or given.device == "cuda"):
        parser.error("--stand-in is Dask's own merge of pandas frames: leave out the other option")
    if given.compare and not given.repeat:
        parser.error("--compare takes times: give --repeat 3")
    return given


def main() -> int:
    given = _arguments()
    faulthandler.enable()
    # cudf-polars' runner sets it, too: without, each worker's first read takes seconds more.
    os.environ.setdefault("KVIKIO_COMPAT_MODE", "on")
    queries, lazily = given.queries or list(QUERIES), given.dask or given.stand_in
    library = CUDF if given.device == "cuda" else FLOATS if given.floats else EXACT
    used = backend.get(given.device)
    workers = 1
    if lazily:
        workers = given.workers or (most_workers(used) if given.device == "cuda" else 2)
    with ExitStack() as stack:
        folder = given.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tables"
        if not folder.exists():
            _say(f"generating tables of scale {given.scale:g}")
            generate(folder, given.scale, given.parts)
        database = stack.enter_context(open_tables(folder))
        frontend = given.frontend or ("dask" if workers > 1 else "spmd")
        peer: dict[int, float] = {}
        if given.compare:
            _say(f"pdsh {frontend} on {workers} GPUs")
            # It comes first: later, the memory of the GPUs is ours.
            peer = pdsh.seconds_of(
                folder, queries, frontend=frontend, repeats=given.repeat, workers=workers,
                timeout=given.timeout,
            )  # fmt: skip
        if lazily and given.device == "cuda":
            stack.enter_context(start(used, workers, protocol=given.protocol))
        elif lazily:
            stack.enter_context(Client(stack.enter_context(_cluster(workers))))
        elif given.device == "cuda":
            _take_pool()
        guarded: Any = nullcontext
        if library is not CUDF and not given.stand_in:
            stack.enter_context(no_other_engine())
            guarded = verb_runs
        reading = partial(read_lazily if lazily else read_now, folder, library=library)
        # `timeout` ends programs so, and what is known by then is told.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
        wrong = []
        for stands in _STANDING[given.standing]:
            indexes: dict[str, Any] = {}
            if stands:
                _say("building the standing indexes")
                named = set().union(*map(names_in, queries))
                indexes = stack.enter_context(standing.built(reading(named), lazily=lazily))
            what = {"device": given.device, "workers": workers, "dask": lazily, "standing": stands}
            what |= {"scale": given.scale, "repeats": given.repeat, "frontend": frontend}
            made = outcomes(
                queries, partial(_tables, reading, library, indexes), _verbs(given), database,
                repeats=given.repeat, timeout=given.timeout, limit=given.limit, guarded=guarded,
                peer=peer, traces=given.traces,
            )  # fmt: skip
            wrong += [each.query for each in _told(made, given, what) if each.reason is not None]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory: {most:.1f} GiB")
    if wrong:
        print(f"not as DuckDB: {', '.join(map(str, wrong))}", file=sys.stderr)
    return int(bool(wrong))


def _told(
    made: Iterable[Outcome], given: argparse.Namespace, what: dict[str, Any]
) -> list[Outcome]:
    """Return outcomes: a line of the file each as they come, and a table at the end."""
    found: list[Outcome] = []
    try:
        for outcome in made:
            found.append(outcome)
            if given.json:
                with given.json.open("a") as lines:
                    lines.write(f"{json.dumps(outcome.record(**what))}\n")
    finally:
        if what["standing"]:
            print("with standing indexes of dimension tables:")
        print(table_of(found, compared=given.compare), flush=True)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tables(reading: Any, library: Library, indexes: Mapping[str, Any], number: int) -> Tables:
    names = names_in(number)
    return Tables(reading(names), library, standing.of_query(indexes, names))


def _verbs(given: argparse.Namespace) -> Verbs:
    """Return the verbs; those that are timed neither validate nor sort, as their peer does not."""
    if given.stand_in:
        return Verbs(stand_in, _grouped)
    if given.repeat:
        return Verbs(_unvalidated, partial(dgpuhash.groupby, sort=False))
    return Verbs(standing.merge, dgpuhash.groupby)


def _unvalidated(left: Any, right: Any, *, validate: Any = None, **options: Any) -> Any:
    return standing.merge(left, right, **options)


def _cluster(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        # Dask's own shuffles warn that they begin and end.
        silence_logs=logging.ERROR,
    )


def _take_pool() -> None:
    """Have cuDF and CuPy allocate from one pool of half the GPU's memory, as workers do."""
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.reinitialize(pool_allocator=True)
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def numbers_of(text: str) -> list[int]:
    """Return the numbers of queries in a list with commas."""
    numbers = [int(each) for each in text.split(",")]
    if missing := [n for n in numbers if n not in QUERIES]:
        raise argparse.ArgumentTypeError(f"no query {missing[0]}; there are {list(QUERIES)}")
    return numbers


def stand_in(
    left: dd.DataFrame,
    right: dd.DataFrame,
    how: str = "inner",
    validate: str | None = None,
    build: str = "auto",
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
