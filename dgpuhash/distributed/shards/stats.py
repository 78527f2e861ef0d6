"""Statistics of an index, one row for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import FrameIndex, frames_of
from dgpuhash.frames.int_float_warning import IntFloatKey, has_non_integers

# Rows of a shard, and its bytes where they are known without a look at each row.
ShardSize = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class IndexSize:
    """Size of an index at one epoch.

    `rows` counts each row once; `nbytes` is the sum of all shards, None where that is unknown.
    """

    epoch: int
    rows: int
    nbytes: int | None

    @classmethod
    def of(cls, epoch: int, replicated: bool, shards: Sequence[ShardSize]) -> IndexSize:
        """Return the size of an index whose `shards` were `shard_size`."""
        rows, nbytes = [each for each, _ in shards], [each for _, each in shards]
        known = [each for each in nbytes if each is not None]
        whole = sum(known) if len(known) == len(nbytes) else None
        return cls(epoch, max(rows) if replicated else sum(rows), whole)


def shard_size(index: FrameIndex) -> ShardSize:
    """Return the rows of a shard, and its bytes or None."""
    frames = frames_of(index.meta)
    # The size of an object column is known only from each object.
    known = all(frames.is_typed(index.meta[label]) for label in index.meta)
    return len(index), index.nbytes if known else None


def shard_stats(client: Client, descriptor: Descriptor) -> pd.DataFrame:
    """Return a frame of statistics, with one row for each shard.

    Columns: ``part``, ``worker``, the fields of `FrameStats`, the bytes of the Bloom filter, and
    the rows that pruning left out.
    """
    return pd.DataFrame(
        run_on_workers(client, descriptor.workers, stats_on_worker, *_identity(descriptor))
    )


def row_count(client: Client, descriptor: Descriptor) -> int:
    """Return the rows of the index, each counted once."""
    return sum(run_on_workers(client, descriptor.whole, rows, *_identity(descriptor)))


def has_unique_keys(client: Client, descriptor: Descriptor) -> bool:
    """Return whether keys are unique, as far as each shard knows."""
    if descriptor.unique:
        return True
    replicated = descriptor.placement is Placement.REPLICATED
    if not (replicated or descriptor.owned or len(descriptor.shards) == 1):
        # Other shards may have rows of the same key.
        return False
    return all(run_on_workers(client, descriptor.whole, is_unique, *_identity(descriptor)))


def columns_to_warn_about(
    client: Client, descriptor: Descriptor, mixed: Sequence[IntFloatKey]
) -> tuple[IntFloatKey, ...]:
    """Return the key columns that a merge's partitions check or warn about.

    They compare integers with floats. Only the workers know whether the index's floats are all
    integers; they are asked only where `mixed` names columns.
    """
    if not mixed:
        return ()
    found = run_on_workers(
        client, descriptor.whole, fractions, *_identity(descriptor), tuple(mixed)
    )
    if not any(count for count, _ in found):
        return ()
    lossy = zip(*(told for _, told in found), strict=True)
    return tuple(each for each, told in zip(mixed, lossy, strict=True) if any(told))


def _identity(descriptor: Descriptor) -> tuple[str, int, dict[str, tuple[int, str]]]:
    parts = {
        shard.worker: (part, shard.incarnation) for part, shard in enumerate(descriptor.shards)
    }
    return descriptor.uid, descriptor.epoch, parts


def stats_on_worker(
    host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]
) -> dict[str, Any]:
    part, incarnation = parts[host.worker.address]
    shard = host.shards.at(uid, epoch, incarnation)
    return {
        "part": part,
        "worker": host.worker.address,
        **asdict(shard.index.stats()),
        "filter_nbytes": shard.sieve.nbytes,
        "absent_rows": shard.sieve.absent_rows,
        "repeated_rows": shard.sieve.repeated_rows,
    }


def fractions(
    host: ShardHost,
    uid: str,
    epoch: int,
    parts: dict[str, tuple[int, str]],
    mixed: Sequence[IntFloatKey],
) -> tuple[int, list[bool]]:
    """Return a shard's row count, and the columns that may need a warning."""
    _, incarnation = parts[host.worker.address]
    index = host.shards.at(uid, epoch, incarnation).index
    told = [
        each.floats_left or has_non_integers(index.frame([each.key])[each.key], each.integers)
        for each in mixed
    ]
    return len(index), told


def is_unique(host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]) -> bool:
    _, incarnation = parts[host.worker.address]
    return host.shards.at(uid, epoch, incarnation).index.is_unique


def rows(host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]) -> int:
    _, incarnation = parts[host.worker.address]
    return len(host.shards.at(uid, epoch, incarnation).index)
