"""Figures of an index: one row for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import on_workers
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import FrameIndex, frames_of
from dgpuhash.frames.fractions import Mixed, are_no

__all__ = ["Held", "Measure", "measured", "row_count", "shard_figures", "told_of_fractions"]

# Of a shard its rows, and its bytes where they are known without a look at each row.
Measure = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class Held:
    """What an index has at one epoch: its rows, each counted once, and the bytes of all shards."""

    epoch: int
    rows: int
    nbytes: int | None

    @classmethod
    def of(cls, epoch: int, replicated: bool, shards: Sequence[Measure]) -> Held:
        """The same, where shards were `measured` so."""
        rows, nbytes = [each for each, _ in shards], [each for _, each in shards]
        known = [each for each in nbytes if each is not None]
        whole = sum(known) if len(known) == len(nbytes) else None
        return cls(epoch, max(rows) if replicated else sum(rows), whole)


def measured(index: FrameIndex) -> Measure:
    """The rows of a shard, and its bytes."""
    frames = frames_of(index.meta)
    # Bytes of objects are those of each of them.
    known = all(frames.is_typed(index.meta[label]) for label in index.meta)
    return len(index), index.nbytes if known else None


def shard_figures(client: Client, descriptor: Descriptor) -> pd.DataFrame:
    """``part``, ``worker``, the fields of `FrameStats` and what was spared, for each shard."""
    return pd.DataFrame(on_workers(client, descriptor.workers, figures, *_identity(descriptor)))


def row_count(client: Client, descriptor: Descriptor) -> int:
    """Rows of the index, each counted once."""
    return sum(on_workers(client, descriptor.whole, rows, *_identity(descriptor)))


def told_of_fractions(
    client: Client, descriptor: Descriptor, mixed: Sequence[Mixed]
) -> tuple[Mixed, ...]:
    """Those key columns of a merge of which each partition is to warn, or is to look itself.

    Whether floats of the index are integers is known by its workers; they are asked only where
    integers meet them.
    """
    if not mixed:
        return ()
    found = on_workers(client, descriptor.whole, fractions, *_identity(descriptor), tuple(mixed))
    if not any(count for count, _ in found):
        return ()
    lossy = zip(*(told for _, told in found), strict=True)
    return tuple(each for each, told in zip(mixed, lossy, strict=True) if any(told))


def _identity(descriptor: Descriptor) -> tuple[str, int, dict[str, tuple[int, str]]]:
    parts = {
        shard.worker: (part, shard.incarnation) for part, shard in enumerate(descriptor.shards)
    }
    return descriptor.uid, descriptor.epoch, parts


def figures(
    host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]
) -> dict[str, Any]:
    part, incarnation = parts[host.worker.address]
    stats = host.shards.at(uid, epoch, incarnation).stats()
    shard = host.shards.standing(uid)
    assert shard is not None
    return {
        "part": part,
        "worker": host.worker.address,
        **asdict(stats),
        "filter_nbytes": shard.sieve.nbytes,
        "absent_rows": shard.sieve.absent_rows,
        "repeated_rows": shard.sieve.repeated_rows,
    }


def fractions(
    host: ShardHost,
    uid: str,
    epoch: int,
    parts: dict[str, tuple[int, str]],
    mixed: Sequence[Mixed],
) -> tuple[int, list[bool]]:
    """The rows of a shard, and of which columns there may be something to warn."""
    _, incarnation = parts[host.worker.address]
    index = host.shards.at(uid, epoch, incarnation)
    told = [
        each.floats_left or are_no(index.frame([each.key])[each.key], each.integers)
        for each in mixed
    ]
    return len(index), told


def rows(host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]) -> int:
    _, incarnation = parts[host.worker.address]
    return len(host.shards.at(uid, epoch, incarnation))
