"""Run a table verb on one rank, from stored arguments to stored results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dgpuhash import backend as backends
from dgpuhash.distributed.cluster.device_thread import Progress
from dgpuhash.distributed.cluster.locality import LocalInputs, TaskOutput
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.pipeline.bulk_insert import Offer
from dgpuhash.distributed.pipeline.merge import matched_rows
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.distributed.shards.table_store import (
    TableShardSize,
    VerbRequest,
    VerbResult,
    answer_name,
    answer_of,
    at,
    stored,
)
from dgpuhash.errors import IndexLost
from dgpuhash.tables.memory_errors import function_translates_memory_errors


def run_verb(
    host: ShardHost, collective: Collective, order: VerbRequest, given: LocalInputs
) -> TaskOutput[VerbResult]:
    """Run this rank's share of `order`, and return its outcome.

    Before a change all ranks tell each other whether they can carry it out; a failure after a shard
    was written to breaks the table.
    """
    start = time.perf_counter()
    hosted = at(host, order.uid, order.epoch)
    part = hosted.part
    asking, refused = None, None
    part.written = False
    rows = sum(chunk.rows for chunk in given.own)
    if part.mode.independent and not order.verb.changes:
        # All ranks serve all rows.
        rows = sum(chunk.rows for chunks in given.dealt for chunk in chunks)
    progress = Progress(order.uid, order.verb.method_verb, "exchange and serve rows", rows)
    try:
        asking = _asking(host, part, order.verb, given, progress)
    except Exception as error:
        refused = error
    quiet = collective.with_quiet_loop(part.table.device)
    with host.thread.telling(progress), quiet, part.side.ended():
        piece_rows, slice_rows = order.piece_rows or table_store.PIECE_ROWS, table_store.SLICE_ROWS
        offers: list[Offer | None] = [None]
        if order.verb.changes:
            offer = None if asking is None else asking.offer(collective, piece_rows)
            taking_part = collective.gather(
                (refused is None, _has_room(part, order.verb, given), offer)
            )
            if not all(ready for ready, *_ in taking_part):
                return TaskOutput(VerbResult([], refused=refused), {})
            offers = [offer for *_, offer in taking_part]
            if not all(enough for _, enough, _ in taking_part):
                # A shard copies its content each time it grows: on four H200s new shards took
                # 2**27 pairs of each rank in 70 ms at once, and in 170 ms in four slices.
                slice_rows = table_store.PIECE_ROWS
            if order.verb.name == "execute" and asking is not None:
                ready, refused = asking.make_room(collective, piece_rows, slice_rows)
                if not ready:
                    return TaskOutput(VerbResult([], refused=refused), {})
        if refused is not None:
            raise refused
        assert asking is not None
        try:
            answers = asking.go(collective, piece_rows, slice_rows, offers)
            if asking.refused is not None:
                return TaskOutput(VerbResult([], refused=asking.refused), {})
            absent_rows = 0 if order.verb.changes else asking.absent_rows
            backend = backends.get(part.table.device)
            if order.verb.matching:
                lists = part.has_list_answers(order.verb)
                answers = matched_rows(backend, given.own, answers, lists=lists)
            backend.synchronize()
            part.seconds = time.perf_counter() - start
        except BaseException as error:
            if part.written:
                hosted.broken = f"{type(error).__name__}: {error}"
            raise
    hosted.epoch += order.verb.changes
    answer = answer_of(order.verb.name, given.token)
    data = _kept(order, answer, given.own, answers)
    held = TableShardSize.by(part) if order.verb.changes else None
    result = VerbResult(stored(data), answer, None, absent_rows, asking.results, held)
    return TaskOutput(result, data)


@function_translates_memory_errors
def _asking(
    host: ShardHost, part: TableShard, verb: Verb, given: LocalInputs, progress: Progress
) -> VerbExecution:
    """Read this rank's arrays, and return the execution of the verb."""
    try:
        columns = given.things
    except KeyError as error:
        raise IndexLost(
            f"chunk {error} has left worker {host.worker.address}; call it again"
        ) from error
    return VerbExecution(part, verb, given.dealt, given.rank, columns, progress.advance)


def _has_room(part: TableShard, verb: Verb, given: LocalInputs) -> bool:
    """Return whether a shard can store its share of rows without growing.

    All keys count as new.
    """
    if not verb.stores:
        return True
    rows = sum(chunk.rows for chunks in given.dealt for chunk in chunks)
    return part.has_room(-(-rows // len(given.dealt)))


def _kept(
    order: VerbRequest, answer: str, chunks: Sequence[Chunk], answers: list[list[Any]]
) -> dict[tuple[str, int], Any]:
    """Return the results under the labels of the worker's data."""
    return {
        (answer_name(answer, column), chunk.number): _on_host(array) if order.hosted else array
        for chunk, arrays in zip(chunks, answers, strict=True)
        for column, array in enumerate(arrays)
    }


def _on_host(array: Any) -> Any:
    return backends.get(None, array).to_host(array)
