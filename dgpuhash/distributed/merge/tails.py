"""Tasks for the stored rows of a hash range: all of them, or the unmatched ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dask.sizeof import sizeof

from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import CachedPickle, chunk_nbytes, frame_of_payload
from dgpuhash.distributed.merge.tasks import Built, ProbeReceipt, ProbeTask
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.query.fetch import ResultLimit
from dgpuhash.distributed.runs.phases import source
from dgpuhash.distributed.runs.run import begin_anew
from dgpuhash.frames import frames_of
from dgpuhash.frames.merge.distinct import DistinctPlan

RANGES = "use more hash ranges (npartitions=), or workers with more memory"


def tail(sealed: Built, probe: ProbeTask, number: int, ranges: int, *receipts: ProbeReceipt) -> Any:
    """Return the unmatched build rows of a hash range."""
    with source(sealed, "merge"):
        if any(each.uid != sealed.uid for each in receipts):
            # They marked rows of a run that is over, and all puts have begun another since.
            begin_anew(task_client(), sealed.key)
        asking = probe.probe(sealed)
        assert asking.plan is not None
        return asking.plan.tail(_unmatched_rows(asking.descriptor, asking.marks, number, ranges))


def stored_rows(
    built: Built, plan: CachedPickle[DistinctPlan] | None, number: int, ranges: int
) -> Any:
    """Return the stored rows of a hash range in their original form.

    Rows that are few have no owners: all of them are the first hash range's.
    """
    with source(built, "merge"):
        if built.rows is not None:
            assert plan is not None
            return plan.opened().restore(built.rows.iloc[:0] if number else built.rows)
        assert built.descriptor is not None
        descriptor = built.descriptor.opened()
        rows = _unmatched_rows(descriptor, "", number, ranges, built.since, built.columns)
        return rows[list(descriptor.meta)] if plan is None else plan.opened().restore(rows)


def _unmatched_rows(
    descriptor: Descriptor, marks: str, number: int, ranges: int, since: int = 0,
    columns: Sequence[Hashable] | None = None,
) -> Any:  # fmt: skip
    """Return the unmarked rows of a hash range.

    It is the same one whenever a partition is computed, whichever workers there are then. Rows of
    copies are in ranges of positions.
    """
    shards, others = descriptor.shards, None
    limit = ResultLimit(current_worker(), 0, RANGES)
    if descriptor.placement is Placement.REPLICATED:
        part = number % len(shards)
        if marks:
            others = _marks_of_copies(descriptor, marks, part)
        pages = _pages(descriptor, marks, part, number, ranges, limit, others=others)
    elif len(shards) == ranges and (descriptor.owned or not marks):
        pages = _pages(descriptor, marks, number, 0, 1, limit, since=since, columns=columns)
    else:
        by_key = descriptor.placement is Placement.DISTRIBUTED
        pages = []
        for part in range(len(shards)) if by_key else [number]:
            where = (number, ranges) if by_key else (0, 1)
            pages += _pages(descriptor, marks, part, *where, limit, by_key=by_key)
    found = pages[0] if len(pages) == 1 else frames_of(descriptor.meta).concat(pages)
    return found.reset_index(drop=True)


def _pages(
    descriptor: Descriptor, marks: str, part: int, number: int, numbers: int,
    limit: ResultLimit, *, others: Any = None, by_key: bool = False, since: int = 0,
    columns: Sequence[Hashable] | None = None,
) -> list[Any]:  # fmt: skip
    """Return the unmarked rows of a range in one shard, page by page."""
    worker, shard = current_worker(), descriptor.shards[part]
    size = chunk_nbytes(frames_of(descriptor.meta).device)
    pages: list[Any] = []
    skip = 0
    while skip is not None:
        rows, skip, left = sync(
            worker.loop, call_handler, worker, shard.worker, "dgpuhash_unmatched",
            {"others": others}, uid=descriptor.uid, epoch=descriptor.epoch,
            incarnation=shard.incarnation, marks=marks, part=number, parts=numbers, skip=skip,
            nbytes=size, by_key=by_key, since=since, columns=columns,
        )  # fmt: skip
        if not pages:
            limit.expect(len(rows) + left, sizeof(rows) / max(1, len(rows)))
        like = descriptor.stored if columns is None else descriptor.stored[list(columns)]
        pages.append(frame_of_payload(rows, like))
    return pages


def _marks_of_copies(descriptor: Descriptor, join: str, but: int) -> Any:
    """Return the union of the marks of all copies but one."""
    worker, found = current_worker(), None
    for part, shard in enumerate(descriptor.shards):
        if part != but:
            marks = sync(
                worker.loop, call_handler, worker, shard.worker, "dgpuhash_marks", {},
                uid=descriptor.uid, epoch=descriptor.epoch, incarnation=shard.incarnation,
                marks=join,
            )[0]  # fmt: skip
            found = marks if found is None else found | marks
    return found
