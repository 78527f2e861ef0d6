"""Look up a client's keys by Dask tasks, in key order."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import gather_watched
from dgpuhash.distributed.cluster.client import in_task_of
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import frame_of_payload
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.source import check_all_partitions, partitions_of
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.query.fetch import probe_shards, query_keys
from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.frames import (
    Lookup,
    LookupMixin,
    Query,
    frames_of,
    join_columns,
    lookup_rows,
    needed_columns,
)
from dgpuhash.frames.merge.keys import index_keys, key_values
from dgpuhash.tables.memory_errors import function_translates_memory_errors

# Keys up to this size travel inside the task.
SMALL_NBYTES = 1 << 20


class Lookups(LookupMixin):
    """Lookup methods at one epoch of a distributed index, run by tasks.

    Parameters
    ----------
    client : distributed.Client
    descriptor : Descriptor
    sparing : Sparing
    """

    def __init__(self, client: Client, descriptor: Descriptor, sparing: PruningOptions) -> None:
        self._client, self._descriptor, self._sparing = client, descriptor, sparing

    def _query(self, keys: Any) -> Query:
        check_all_partitions(keys)
        return Query.of(keys, self._descriptor.encoder, self._descriptor.meta)

    @function_translates_memory_errors
    def _look_up(self, asked: Any, *, keyed: bool, promote: str | None) -> Lookup:
        answers = self._answers(asked, _look_up, keyed, promote)
        if len(answers) == 1:
            return answers[0]
        frames = frames_of(asked)
        rows, first = [], 0
        for answer in answers:
            rows.append(answer.query_rows + first)
            first += len(answer.found)
        return Lookup(
            frames.concat([answer.frame for answer in answers]),
            frames.xp.concatenate(rows),
            frames.xp.concatenate([answer.found for answer in answers]),
        )

    @function_translates_memory_errors
    def _found(self, asked: Any) -> Any:
        answers = self._answers(asked, _are_stored)
        return answers[0] if len(answers) == 1 else frames_of(asked).xp.concatenate(answers)

    def _answers(self, asked: Any, task: Any, *options: Any) -> list[Any]:
        """Return the result of `task` for each batch of keys, in order."""
        client, descriptor = self._client, self._descriptor
        options = descriptor, self._sparing, *options
        if in_task_of(client):
            # Further tasks would wait for threads that tasks like this one hold. Unwrapped, since
            # the user's task may handle the error.
            return [task.__wrapped__(asked, *options)]
        names = list(join_columns(asked, descriptor.encoder))
        small = frames_of(asked).nbytes(asked) <= SMALL_NBYTES
        pieces = [asked] if small else partitions_of(client, asked, names, descriptor.workers)
        name = f"dgpuhash-lookup-{uuid.uuid4().hex}"
        futures = [
            client.submit(task, piece, *options, key=f"{name}-{number}", pure=False, priority=10)
            for number, piece in enumerate(pieces)
        ]
        return gather_watched(client, descriptor.workers, futures)


@raise_without_traceback()
def _look_up(
    asked: Any, descriptor: Descriptor, sparing: PruningOptions, keyed: bool, promote: str | None
) -> Lookup:  # fmt: skip
    meta, names = descriptor.meta, descriptor.encoder.names
    join_columns(asked, descriptor.encoder)
    moved = needed_columns(meta, descriptor.encoder, names)
    query_rows, found = _match(asked, descriptor, "inner", moved, sparing)
    stored, frames = frame_of_payload(found, meta[moved]), frames_of(asked)
    like = meta[list(names)]
    # Values decide what becomes of keys of two dtypes alone, and rows come without their keys.
    alike = descriptor.encoder.is_untyped or frames.dtypes(asked) == frames.dtypes(like)
    like = asked if alike else sample(like)
    keys = index_keys(key_values(asked, names), names, like, names, labelled=False)
    pairs = query_rows, frames.xp.arange(len(query_rows))
    return lookup_rows(asked, keys, stored, (None, pairs), keyed=keyed, promote=promote)


@raise_without_traceback()
def _are_stored(asked: Any, descriptor: Descriptor, sparing: PruningOptions) -> Any:
    rows, _ = _match(asked, descriptor, "semi", [], sparing)
    found = frames_of(asked).xp.zeros(len(asked), dtype=bool)
    found[rows] = True
    return found


def _match(
    asked: Any,
    descriptor: Descriptor,
    how: str,
    columns: Sequence[Hashable],
    sparing: PruningOptions,
) -> tuple[Any, Any]:
    keys = query_keys(asked, descriptor, descriptor.encoder.names)
    return probe_shards(current_worker(), keys, len(asked), descriptor, how, columns, sparing)
