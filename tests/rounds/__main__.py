"""Run rounds of faults, and write their outcomes as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from hosts import why_no_hosts

from rounds.faults import FAULTS
from rounds.play import Outcome, meant_for
from rounds.series import Setting, Strike, end_in_order, line, side_by_side

KINDS = ("right", "error", "late", "hang", "foreign", "wrong", "stuck", "crash")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/rounds", description=__doc__)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, help="default: all that can be here")
    parser.add_argument("--works", nargs="+", help="verbs; default: all that a fault is meant for")
    parser.add_argument("--rounds", type=int, default=20, help="of each fault; default: 20")
    any_seed = secrets.randbelow(10**6)
    parser.add_argument("--seed", type=int, default=any_seed, help="of the first round")
    parser.add_argument("--workers", type=int, default=3, help="of each cluster; default: 3")
    parser.add_argument("--gpus", type=int, default=0, help="of this host; default: CPU workers")
    parser.add_argument("--protocol", choices=("tcp", "ucxx"), default="tcp")
    parser.add_argument("--series", type=int, default=1, help="clusters side by side; default: 1")
    parser.add_argument("--at-once", type=int, default=1, help="rounds that one strike breaks into")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no round is begun")
    parser.add_argument("--silence", type=float, help="seconds until a stopped worker is given up")
    parser.add_argument("--json", type=Path, help="where the outcomes are written, one a line")
    given = parser.parse_args()
    end_in_order()
    print(f"seeds from {given.seed}", flush=True)
    groups = groups_of(given)
    outcomes: list[Outcome] = []
    try:
        for outcome in side_by_side(groups, given.series):
            print(line(outcome), flush=True)
            outcomes.append(outcome)
    finally:
        if given.json:
            lines = [json.dumps(asdict(outcome)) for outcome in outcomes]
            given.json.write_text("\n".join(lines) + "\n")
        if outcomes:
            print(table(outcomes).to_string(index=False))
        wanted = sum(len(seeds) for _, strikes in groups for _, seeds in strikes)
        if len(outcomes) < wanted:
            print(f"{wanted - len(outcomes)} of {wanted} rounds were not begun in time")
    return int(any(outcome.failed for outcome in outcomes))


def groups_of(given: argparse.Namespace) -> list[tuple[Setting, list[Strike]]]:
    """Return the requested strikes that this host can run, by setting."""
    end = time.monotonic() + given.seconds
    groups = []
    for needed in ("hosts", "gpus" if given.gpus else "cpus"):
        apart = needed == "hosts"
        kinds = [needed] if apart else [needed, None]
        faults = [
            name
            for name in given.faults or FAULTS
            if FAULTS[name].needs in kinds and meant_for(name, given.works)
        ]
        if faults and apart and (reason := why_no_hosts()) is not None:
            print(f"left out {', '.join(faults)}: {reason}", file=sys.stderr)
        elif faults:
            strikes = [
                (fault, seeds)
                for seeds in batched(range(given.seed, given.seed + given.rounds), given.at_once)
                for fault in faults
            ]
            # NCCL bears no two ranks on one GPU, and cannot see that where hosts have it in common.
            alone = apart and given.gpus > 0
            setting = Setting(
                workers=min(given.workers, given.gpus) if alone else given.workers,
                hosts=apart,
                gpus=given.gpus,
                protocol=given.protocol,
                works=given.works,
                silence=given.silence,
                end=end,
            )
            groups.append((setting, strikes))
    return groups


def batched(seeds: range, size: int) -> list[range]:
    """Return the seeds of rounds that are played together."""
    return [seeds[first : first + size] for first in range(0, len(seeds), size)]


def table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return, for each fault, the rounds of each outcome and their seconds."""
    rounds = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    rows = []
    for fault, some in rounds.groupby(pd.Categorical(rounds["fault"], FAULTS), observed=True):
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
