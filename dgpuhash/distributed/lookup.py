"""Keys that a client has: asked for by tasks, answered in the order of the keys."""

from __future__ import annotations

import uuid
from typing import Any

from distributed import Client

from dgpuhash.distributed.clients import in_task_of
from dgpuhash.distributed.descriptor import Descriptor
from dgpuhash.distributed.phase import watched
from dgpuhash.distributed.probe import lookup_partition
from dgpuhash.distributed.source import partitions_of
from dgpuhash.frames import Lookup, frames_of, join_columns, keys_frame

__all__ = ["look_up"]

# Keys up to this size travel inside the task.
SMALL_NBYTES = 1 << 20


def look_up(client: Client, descriptor: Descriptor, keys: Any) -> Lookup:
    """As `FrameIndex.lookup`, for an index on the workers."""
    asked = keys_frame(keys, descriptor.encoder, descriptor.meta)
    if in_task_of(client):
        # Tasks of its own would wait for the threads that tasks like this one hold.
        return lookup_partition(asked, descriptor)
    names = list(join_columns(asked, descriptor.encoder))
    frames = frames_of(asked)
    small = frames.nbytes(asked) <= SMALL_NBYTES
    pieces = [asked] if small else partitions_of(client, asked, names)
    name = f"dgpuhash-lookup-{uuid.uuid4().hex}"
    futures = [
        client.submit(
            lookup_partition, piece, descriptor, key=f"{name}-{number}", pure=False, priority=10
        )
        for number, piece in enumerate(pieces)
    ]
    answers = watched(client, descriptor.workers, futures)
    if len(answers) == 1:
        return answers[0]
    rows, first = [], 0
    for answer in answers:
        rows.append(answer.query_rows + first)
        first += len(answer.found)
    return Lookup(
        frames.concat([answer.frame for answer in answers]),
        frames.xp.concatenate(rows),
        frames.xp.concatenate([answer.found for answer in answers]),
    )
