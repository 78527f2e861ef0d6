"""Where the partitions of a persisted frame lie."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Future

from dgpuhash.distributed.cluster.locality import Elsewhere, Needed
from dgpuhash.frames import frames_of

__all__ = ["Lying", "needed", "report"]

# Copies of keys, and a result with columns of both sides.
GROWTH = 2.0

_log = logging.getLogger("dgpuhash.bulk")


@dataclass(frozen=True, slots=True)
class Lying:
    """A partition among the data of a worker.

    Attributes
    ----------
    number : int
        Among all partitions.
    labels : tuple of one label
        Under which the worker has it.
    """

    number: int
    labels: tuple[Hashable]


def needed(partitions: Sequence[Any], meta: Any) -> Needed:
    """The partitions, for a phase of workers that have each, and frames like `meta`.

    Raises
    ------
    Elsewhere
        When they are not on workers.
    """
    if not partitions or not all(isinstance(each, Future) for each in partitions):
        raise Elsewhere("the frame is not persisted")
    if any(each.status != "finished" for each in partitions):
        raise Elsewhere("not all of its partitions are computed")
    # Dask's limits are those of the host's memory.
    growth = GROWTH if frames_of(meta).device == "cpu" else 0.0
    return Needed([each.key for each in partitions], by_rank, growth=growth)


def by_rank(
    workers: Sequence[str],
    labels: Sequence[Hashable],
    holders: Mapping[Hashable, Collection[str]],
) -> list[list[Lying]] | str:
    """The partitions that each of `workers` has, each once; or why a phase cannot have them."""
    ranks = {worker: rank for rank, worker in enumerate(workers)}
    found: list[list[Lying]] = [[] for _ in workers]
    for number, label in enumerate(labels):
        there = [ranks[holder] for holder in holders[label] if holder in ranks]
        if not there:
            return f"partition {number} is on no worker with a shard"
        found[min(there, key=lambda rank: len(found[rank]))].append(Lying(number, (label,)))
    return found


def report(what: str, refused: str = "") -> None:
    """Tell the log whether a phase did it, or why tasks have to."""
    _log.info("%s %s", what, f"by tasks: {refused}" if refused else "in one phase")
