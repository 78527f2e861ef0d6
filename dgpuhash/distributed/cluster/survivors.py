"""Phases on the workers that remain, when others may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE, on_workers
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.errors import IndexLost

__all__ = ["all_answer", "on_those_there", "seen_through"]

Result = TypeVar("Result")

# Seconds in which workers come to the end of a phase that is taken back.
LAST = 5.0


def all_answer(client: Client) -> bool:
    """Whether all workers of the cluster do what they are asked for, in a moment."""
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
    """As `on_workers`, on those of `workers` that are there, as far as they do it in time."""
    try:
        there = workers_of(client)
        reachable = [worker for worker in workers if worker in there]
        on_workers(client, reachable, function, *args, limit=limit)
    except IndexLost:
        # Whoever is lost holds nothing to be freed, and the others have done it, or will.
        return


def seen_through(
    client: Client, workers: Sequence[str], function: Callable[..., Result], *args: Any
) -> list[Result]:
    """As `on_workers`; when it fails, or is interrupted, workers have ended it, or had `LAST`.

    So nothing that they write comes after it was removed.
    """
    try:
        return on_workers(client, workers, function, *args)
    except BaseException:
        # Their threads work in turn.
        on_those_there(client, workers, _answer, limit=LAST)
        raise


def _answer(host: Any) -> None:
    """Runs on each worker."""
