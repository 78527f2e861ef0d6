"""Draw frames, merge and group them, and compare each answer with pandas, Dask and plain Python.

``python -m suites.generated --cases 10000``; case 17 of seed 3 is always the same: ``--seed 3
--only 17`` repeats it. A failure is shown with code that shows it.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import re
import sys
import time
import warnings
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Any

import dask
from distributed import Client, LocalCluster

from suites.generated import enabled, groupbys, merges, tables

# How many of a hundred cases are of each kind.
SHARES = {
    "merge": 56, "groupby": 34, "merge on Dask": 3, "groupby on Dask": 3, "standing groups": 2,
    "enabled": 2,
}  # fmt: skip

# The share of merges and groupbys on one device that are of polars and PyArrow frames.
_OF_TABLES = 0.15


def draw(kind: str, random: Random) -> Any:
    """Return a case of a kind."""
    if kind == "enabled":
        return enabled.draw_program(random)
    if kind.startswith("merge"):
        case: Any = merges.draw_merge(random)
    else:
        case = groupbys.draw_groupby(random, {"groupby": 3, "groupby on Dask": 1}.get(kind, 4))
    # Last, so that all others stay as they are without it.
    if kind in ("merge", "groupby") and random.random() < _OF_TABLES:
        return tables.of_tables(case, random)
    return case


def failure(kind: str, case: Any, client: Client) -> str:
    """Return what is wrong with a case, empty for nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "enabled":
                return enabled.failure(case)
            if isinstance(case, tables.OfTables):
                return tables.failure(case)
            cluster = None if kind in ("merge", "groupby") else client
            with case.lazily.placed():
                if kind.startswith("merge"):
                    return merges.failure(case, cluster)
                return groupbys.failure(case, cluster, standing=kind.startswith("standing"))
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def smallest(kind: str, case: Any, reason: str, client: Client, seconds: float) -> tuple[Any, str]:
    """Return the smallest case found in some seconds that fails for the same reason."""
    sign, end = signature(reason), time.perf_counter() + seconds
    found = True
    while found:
        found = False
        for fewer in case.fewer():
            if time.perf_counter() > end:
                break
            if signature(again := failure(kind, fewer, client)) == sign:
                case, reason, found = fewer, again, True
                break
    return case, reason


def signature(reason: str) -> str:
    """Return a reason without the values and numbers that are of one case alone."""
    reason = re.sub(r"cut (\('\w+', '\w+'\)|\w+): ", "", reason)
    return re.sub(r"'[^']*'|\d+|\(.*", "", reason)[:70]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m suites.generated", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="default: 10,000")
    parser.add_argument("--seed", type=int, default=0, help="of all cases; default: 0")
    parser.add_argument("--only", type=int, help="number of the one case to run")
    parser.add_argument("--kind", choices=SHARES, help="of all cases; default: drawn")
    parser.add_argument("--show", type=int, default=3, help="failures of a sort to show")
    parser.add_argument("--shrink", type=float, default=5, help="seconds for each failure shown")
    parser.add_argument(
        "--timeout", type=float, default=120, help="of a case in seconds; default: 120"
    )
    given = parser.parse_args()
    numbers = range(given.cases) if given.only is None else [given.only]
    failed: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    with ExitStack() as stack:
        # Labels and texts are compared as they are.
        stack.enter_context(dask.config.set({"dataframe.convert-string": False}))
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None,
            memory_limit=0, silence_logs=logging.CRITICAL,
        )  # fmt: skip
        stack.enter_context(cluster)
        client = stack.enter_context(Client(cluster))
        start = time.perf_counter()
        for done, number in enumerate(numbers, start=1):
            random = Random(f"{given.seed} {number}")
            kind = given.kind or random.choices(list(SHARES), list(SHARES.values()))[0]
            # What hangs says where its threads are, and ends the program.
            faulthandler.dump_traceback_later(given.timeout, exit=True)
            before = time.perf_counter()
            case = draw(kind, random)
            reason = failure(kind, case, client)
            taken[kind] += time.perf_counter() - before
            if reason:
                sort = f"{kind}: {signature(reason)}"
                failed[sort] += 1
                if failed[sort] <= given.show:
                    case, reason = smallest(kind, case, reason, client, given.shrink)
                    print(f"# {number} {kind}: {reason}\n{case}\n", flush=True)
            faulthandler.cancel_dump_traceback_later()
            if done % 1000 == 0:
                seconds = time.perf_counter() - start
                print(f"# {done:,} cases, {failed.total()} failed, {seconds:.0f} s", flush=True)
        seconds = time.perf_counter() - start
    rate = len(numbers) / seconds
    print(f"# {len(numbers):,} cases, {failed.total()} failed, {rate:.0f} a second")
    for kind, spent in taken.items():
        print(f"# {kind}: {spent:.1f} s")
    for sort, count in failed.most_common():
        print(f"# {count:>6}  {sort}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
