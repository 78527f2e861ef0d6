"""Run functions on the surviving workers, best effort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE_SECONDS, run_on_workers
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.errors import IndexLost

Result = TypeVar("Result")

# Seconds in which workers finish a broadcast that failed.
DRAIN_SECONDS = 5.0


def all_workers_respond(client: Client) -> bool:
    """Return whether all workers of the cluster answer within 2 s."""
    try:
        run_on_workers(client, workers_of(client), _answer, limit=2 * GRACE_SECONDS)
    except IndexLost:
        return False
    return True


def run_best_effort(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    *args: Any,
    limit: float = GRACE_SECONDS,
) -> None:
    """Run `function` on the `workers` that are reachable, best effort.

    As `run_on_workers`, without results; a loss or the limit (seconds) is no error.
    """
    try:
        there = workers_of(client)
        reachable = [worker for worker in workers if worker in there]
        run_on_workers(client, reachable, function, *args, limit=limit)
    except IndexLost:
        # A lost worker holds nothing to be freed; the others have run `function`, or will.
        return


def run_to_end(
    client: Client, workers: Sequence[str], function: Callable[..., Result], *args: Any
) -> list[Result]:
    """Run `function` on `workers`; after an error, wait until they have ended.

    As `run_on_workers`. After a failure or an interrupt, workers get `DRAIN_SECONDS` seconds to
    finish their calls, so that nothing is written after the caller removed it.
    """
    try:
        return run_on_workers(client, workers, function, *args)
    except BaseException:
        # Shard threads run their jobs in order: an answer means that `function` has ended.
        run_best_effort(client, workers, _answer, limit=DRAIN_SECONDS)
        raise


def _answer(host: Any) -> None:
    """Do nothing: the result shows that the worker's shard thread answers."""
