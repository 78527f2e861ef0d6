"""A merge with an index of which each worker has a copy, in one phase: nobody asks another one."""

from __future__ import annotations

import sys

from dgpuhash.distributed.bulk.lying import Lying, here
from dgpuhash.distributed.bulk.share import Share
from dgpuhash.distributed.exchange.rest import resting
from dgpuhash.distributed.plugin import ShardHost
from dgpuhash.distributed.probe import Probe
from dgpuhash.distributed.sealed import Sealed
from dgpuhash.distributed.worker_data import keep
from dgpuhash.frames import frames_of

__all__ = ["merge_here"]


def merge_here(host: ShardHost, seal: Sealed[Probe], lying: list[list[Lying]], name: str) -> Share:
    """Runs on each worker."""
    probe = seal.opened()
    descriptor = probe.descriptor
    rank = descriptor.workers.index(host.worker.address)
    mine, shard = lying[rank], descriptor.shards[rank]
    lefts, refused = here(host, mine)
    if refused:
        return Share(refused=refused)
    made = {}
    with resting(host.worker.loop.asyncio_loop, frames_of(descriptor.meta).device):
        for one, left in zip(mine, lefts, strict=True):
            asking = probe.asking(left)
            rows, found, _ = host.shards.match(
                descriptor.uid,
                descriptor.epoch,
                shard.incarnation,
                asking.keys,
                probe.how,
                probe.moved,
                0,
                sys.maxsize,
            )
            made[name, one.number] = probe.put_together(asking, rows, found)
    keep(host.worker, made)
    return Share([frames_of(frame).nbytes(frame) for frame in made.values()])
