"""Check new keys of an independent index for duplicates on other shards."""

from __future__ import annotations

from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import gather_watched
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import frame_of_payload
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks
from dgpuhash.distributed.partition.routing import nearest_shard
from dgpuhash.errors import ColumnError
from dgpuhash.frames import frames_of


def refuse_duplicates(client: Client, change: Change) -> None:
    """Raise ColumnError when two shards would store one unique key.

    The keys that a prepared change adds to each shard are compared with the keys of all others.

    Raises
    ------
    ColumnError
        When two shards would have one key; the message names it.
    IndexLost
        When a worker is lost.
    """
    workers = [shard.worker for shard in change.shards]
    futures = [
        client.submit(
            compare_keys,
            change,
            workers=[worker],
            allow_other_workers=False,
            pure=False,
            key=f"dgpuhash-unique-{change.transaction}-{part}",
        )
        for part, worker in enumerate(workers)
        if len(workers) > 1
    ]
    try:
        gather_watched(client, workers, futures)
    finally:
        for future in futures:
            future.release()


def compare_keys(change: Change) -> None:
    """Compare the new keys of one shard with the keys of all others.

    Runs as a Dask task on the shard's worker; no shard thread waits while its RPCs run.
    """
    worker = current_worker()
    shards = plugin_of(worker).shards
    here = nearest_shard(change.shards, worker.address)
    phase = {"uid": change.uid, "transaction": change.transaction}

    async def own() -> Any:
        return await plugin_of(worker).thread.run(shards.new_keys, **phase)

    keys = sync(worker.loop, own)
    names = list(change.encoder.names)
    like = change.meta[names]
    everything = frames_of(keys).xp.arange(len(keys))
    for _, piece in cut_into_chunks(keys, [everything], like)[0]:
        for part, shard in enumerate(change.shards):
            if part == here:
                continue
            (row,) = sync(
                worker.loop,
                call_handler,
                worker,
                shard.worker,
                "dgpuhash_known",
                {"keys": piece},
                **phase,
            )
            if row >= 0:
                key = frame_of_payload(piece, like).iloc[[row]].to_dict("records")[0]
                raise ColumnError(
                    f"the index on {names!r} is unique, and {key!r} is a key of rows on two "
                    f"workers; drop the duplicates, build with unique=False, or choose which row "
                    f"counts, such as conflict='first'"
                )
