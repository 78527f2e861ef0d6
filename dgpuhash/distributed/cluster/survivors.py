"""Broadcasts to workers some of which may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE, on_workers
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.errors import IndexLost

__all__ = ["all_answer", "on_those_there", "seen_through"]

Result = TypeVar("Result")

# Seconds in which workers finish a broadcast that failed.
LAST = 5.0


def all_answer(client: Client) -> bool:
    """Return whether all workers of the cluster answer within 2 s."""
    try:
        on_workers(client, workers_of(client), _answer, limit=2 * GRACE)
    except IndexLost:
        return False
    return True


def on_those_there(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    *args: Any,
    limit: float = GRACE,
) -> None:
    """Run `function` on the `workers` that are reachable, best effort.

    As `on_workers`, without results; a loss or the limit (seconds) is no error.
    """
    try:
        there = workers_of(client)
        reachable = [worker for worker in workers if worker in there]
        on_workers(client, reachable, function, *args, limit=limit)
    except IndexLost:
        # A lost worker holds nothing to be freed; the others have run `function`, or will.
        return


def seen_through(
    client: Client, workers: Sequence[str], function: Callable[..., Result], *args: Any
) -> list[Result]:
    """Run `function` on `workers`; after an error, wait until they have ended.

    As `on_workers`. After a failure or an interrupt, workers get `LAST` seconds to finish their
    calls, so that nothing is written after the caller removed it.
    """
    try:
        return on_workers(client, workers, function, *args)
    except BaseException:
        # Shard threads run their jobs in order: an answer means that `function` has ended.
        on_those_there(client, workers, _answer, limit=LAST)
        raise


def _answer(host: Any) -> None:
    """Do nothing: the result shows that the worker's shard thread answers."""
