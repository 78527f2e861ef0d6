"""Figures of an index: one row for each shard."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
from distributed import Client

from dgpuhash.distributed.descriptor import Descriptor
from dgpuhash.distributed.phase import on_workers
from dgpuhash.distributed.plugin import ShardHost

__all__ = ["row_count", "shard_figures"]


def shard_figures(client: Client, descriptor: Descriptor) -> pd.DataFrame:
    """``part``, ``worker``, the fields of `FrameStats` and what was spared, for each shard."""
    return pd.DataFrame(on_workers(client, descriptor.workers, figures, *_identity(descriptor)))


def row_count(client: Client, descriptor: Descriptor) -> int:
    """Rows of the index, each counted once."""
    return sum(on_workers(client, descriptor.whole, rows, *_identity(descriptor)))


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


def rows(host: ShardHost, uid: str, epoch: int, parts: dict[str, tuple[int, str]]) -> int:
    _, incarnation = parts[host.worker.address]
    return len(host.shards.at(uid, epoch, incarnation))
