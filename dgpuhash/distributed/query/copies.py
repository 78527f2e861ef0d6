"""A merge with an index of which each worker has a copy, in one phase: nobody asks another one."""

from __future__ import annotations

from typing import Any

from dgpuhash import backend
from dgpuhash.distributed.cluster.locality import Given, Made
from dgpuhash.distributed.cluster.serialization import Sealed
from dgpuhash.distributed.collective.rest import resting
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.query.share import Share, matches_of, merged
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import FrameIndex, frames_of

__all__ = ["merge_here", "merge_with"]


def merge_here(host: ShardHost, seal: Sealed[Probe], given: Given) -> Made[Share]:
    """Runs on each worker."""
    probe = seal.opened()
    descriptor = probe.descriptor
    try:
        lefts = given.things
    except KeyError as error:
        return Made(Share(f"partition {error} has left its worker"), {})
    shard = descriptor.shards[given.rank]
    index = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation)
    made = {}
    with resting(host.worker.loop.asyncio_loop, frames_of(descriptor.meta).device):
        for one, (left,) in zip(given.own, lefts, strict=True):
            made[merged(given, one)] = merge_with(index, probe, left)
        backend.get(frames_of(descriptor.meta).device).synchronize()
    return Made(Share(), made)


def merge_with(index: FrameIndex, probe: Probe, left: Any) -> Any:
    """The merge of a partition with an index that has all rows."""
    asking = probe.asking(left)
    rows, found = matches_of(index, asking.keys, probe.how, probe.moved, named=False)
    whole = rows is None or (index.one_row_per_key and len(rows) == len(left))
    return probe.put_together(asking, rows, found, whole=whole)
