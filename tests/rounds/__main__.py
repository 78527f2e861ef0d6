"""Plays rounds, and writes what came of them as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from hosts import Hosts, why_no_hosts

from rounds.cluster import Cluster
from rounds.faults import FAULTS
from rounds.play import Outcome, play

KINDS = ("right", "error", "late", "hang", "foreign", "wrong", "stuck")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/rounds", description=__doc__)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--rounds", type=int, default=20, help="of each fault; default: 20")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; default: 0")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where the outcomes are written, one a line")
    given = parser.parse_args()
    # Dask speaks of every worker that is lost, and of rows that travel inside tasks.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    outcomes: list[Outcome] = []
    for needs_hosts in (False, True):
        faults = [name for name in given.faults if FAULTS[name].needs_hosts == needs_hosts]
        if faults and needs_hosts and (reason := why_no_hosts()) is not None:
            print(f"left out {', '.join(faults)}: {reason}", file=sys.stderr)
        elif faults:
            outcomes += series(faults, given, needs_hosts)
    if given.json:
        lines = [json.dumps(asdict(outcome)) for outcome in outcomes]
        given.json.write_text("\n".join(lines) + "\n")
    print(table(outcomes).to_string(index=False))
    return int(any(outcome.failed for outcome in outcomes))


def series(faults: Sequence[str], given: argparse.Namespace, needs_hosts: bool) -> list[Outcome]:
    """The rounds of some faults, on one cluster."""
    hosts = Hosts(given.workers, bandwidth="1gbit", delay="1ms") if needs_hosts else None
    found = []
    with tempfile.TemporaryDirectory(prefix="rounds-") as folder:
        cluster = Cluster(Path(folder), given.workers, hosts)
        try:
            for fault in faults:
                for seed in range(given.seed, given.seed + given.rounds):
                    found.append(play(cluster, fault, seed))
                    print(line(found[-1]), flush=True)
        finally:
            cluster.close()
            if hosts is not None:
                hosts.close()
    return found


def line(outcome: Outcome) -> str:
    """An outcome for people."""
    what = f"{outcome.fault:9} {outcome.work:7} {outcome.seed:3} at {outcome.moment:24}"
    message = outcome.message if outcome.failed else outcome.message[:120]
    return f"{what} {outcome.kind:7} {outcome.seconds:5.1f} s  {message}"


def table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """For each fault the number of rounds of each kind of outcome, and seconds to it."""
    rounds = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    rows = []
    for fault, some in rounds.groupby("fault", sort=False):
        counts = some["kind"].value_counts()
        seconds = some["seconds"]
        rows.append(
            {"fault": fault, "rounds": len(some)}
            | {kind: int(counts.get(kind, 0)) for kind in KINDS}
            | {"median s": round(seconds.median(), 1), "longest s": round(seconds.max(), 1)}
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    sys.exit(main())
