"""Rows of simulated verbs for many GPUs, one for each transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dgpuhash.bench.figure import rate, short
from dgpuhash.bench.model.forecast import Network
from dgpuhash.bench.model.simulation.cluster import Cluster
from dgpuhash.bench.model.simulation.exchanges import least_seconds
from dgpuhash.bench.model.simulation.verbs import VERBS, Costs, Outcome, moved_nbytes, simulate

# Bytes each second that a worker copies in host memory or between it and its GPU: an assumption.
COPIES = 20e9


def simulated(
    network: Network, costs: Costs, workers: Sequence[int], rows: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of workers, verb and transport.

    GPUs of one host exchange rows in each other's memory, ``"peer"``. Those of several use Dask's
    comm, ``"comm"``, or, where it has two levels, ``"two-level"``.

    Parameters
    ----------
    network : Network
    costs : Costs
    workers : sequence of int
    rows : int
        Of a worker.
    """
    for count in sorted(set(workers)):
        for verb in VERBS:
            if verb == "groupby" and not costs.reduce:
                continue
            for way in _ways(count, network.host):
                cluster = Cluster(network, count, COPIES)
                outcome = simulate(cluster, verb, way, costs, rows)
                yield _row(cluster, verb, way, rows, outcome)


def _ways(count: int, host: int) -> tuple[str, ...]:
    if count <= host:
        return ("peer",)
    return ("comm", "two-level") if host > 1 else ("comm",)


def _row(cluster: Cluster, verb: str, way: str, rows: int, outcome: Outcome) -> dict[str, Any]:
    count = len(cluster.ranks)
    links = least_seconds(cluster, moved_nbytes(verb, rows))
    ways = {"kernels": outcome.working, "messages": outcome.talking, "links": links}
    ways["copies"] = outcome.copying
    row = rate(
        rows * count / outcome.seconds,
        None,
        model=True,
        verb=verb,
        exchange=way,
        workers=count,
        hosts=len(cluster.layout.hosts),
        n=rows,
        rows=rows * count,
    )
    del row["correct"]
    return row | {
        "seconds": short(outcome.seconds),
        "working": short(1e3 * outcome.working),
        "links": short(1e3 * links),
        "talking": short(1e3 * outcome.talking),
        "copying": short(1e3 * outcome.copying),
        "bound": max(ways, key=lambda name: ways[name]),
        "messages": outcome.messages,
        "far_messages": outcome.far_messages,
        "most_messages": outcome.most_messages,
        "nvlink_bytes": round(outcome.nvlink),
        "nic_bytes": round(outcome.nic),
    }
