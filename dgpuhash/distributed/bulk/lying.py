"""Where the partitions of a persisted frame lie."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from dgpuhash.distributed.clients import asking_the_scheduler
from dgpuhash.distributed.plugin import ShardHost
from dgpuhash.distributed.worker_data import kept

__all__ = ["Lying", "by_rank", "here", "report"]

_log = logging.getLogger("dgpuhash.bulk")


@dataclass(frozen=True, slots=True)
class Lying:
    """A partition among the data of a worker.

    Attributes
    ----------
    number : int
        Among all partitions.
    key : label
        Under which the worker has it.
    """

    number: int
    key: Hashable


def by_rank(
    client: Client, workers: Sequence[str], partitions: Sequence[Any]
) -> list[list[Lying]] | str:
    """The partitions that each of `workers` has, each once; or why a phase cannot have them."""
    if not partitions or not all(isinstance(each, Future) for each in partitions):
        return "the frame is not persisted"
    if any(each.status != "finished" for each in partitions):
        return "not all of its partitions are computed"
    with asking_the_scheduler():
        holders = client.who_has(list(partitions))
    ranks = {worker: rank for rank, worker in enumerate(workers)}
    found: list[list[Lying]] = [[] for _ in workers]
    for number, future in enumerate(partitions):
        there = [ranks[holder] for holder in holders.get(future.key, ()) if holder in ranks]
        if not there:
            return f"partition {number} is on no worker with a shard"
        found[min(there, key=lambda rank: len(found[rank]))].append(Lying(number, future.key))
    return found


def here(host: ShardHost, lying: Sequence[Lying]) -> tuple[list[Any], str]:
    """The partitions, on the worker that has them; and why there are none, or nothing."""
    try:
        return kept(host.worker, [one.key for one in lying]), ""
    except KeyError as error:
        return [], f"partition {error} has left its worker"


def report(what: str, refused: str = "") -> None:
    """Tell the log whether a phase did it, or why tasks have to."""
    _log.info("%s %s", what, f"by tasks: {refused}" if refused else "in one phase")
