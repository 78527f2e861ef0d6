"""Tasks of a merge: its build, as a run, and probes of it."""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dask.sizeof import sizeof
from distributed import Client

from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import NAME, current_worker
from dgpuhash.distributed.cluster.rpc import call_handler, encode_call
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.events import topic_of
from dgpuhash.distributed.ingest.commit import (
    change_to,
    open_change,
    prepare_shards,
)
from dgpuhash.distributed.ingest.shuffle_tasks import shuffle_partition
from dgpuhash.distributed.merge.broadcast import all_held, are_few, merge_with_rows
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Descriptor, ShardAddress
from dgpuhash.distributed.partition.skew import NO_HEAVY
from dgpuhash.distributed.query.fetch import key_codes
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.runs.phases import RESULT_NBYTES, BufferedRows, RunTask, source
from dgpuhash.distributed.runs.run import Run, begin_run, current_run, lost_runs_again
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.shards.worker_memory import release_arrow
from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.distinct import DistinctPlan
from dgpuhash.frames.merge.keys import MergeError
from dgpuhash.frames.merge.partition import PartitionPlan

TOPIC = topic_of("merge")


@dataclass(frozen=True, slots=True)
class Opened:
    """A run whose shards accept build rows."""

    uid: str
    descriptor: CachedPickle[Descriptor]
    change: CachedPickle[Change]


@dataclass(frozen=True, slots=True)
class Built:
    """A sealed run, whose shards can be probed.

    Attributes
    ----------
    uid : str
        The run.
    key : Any
        The task that made this.
    descriptor : CachedPickle of Descriptor, optional
    marks : str
        Name of the marks of a merge that returns unmatched build rows; empty for none.
    since : int
        Epoch after which groups must have changed to be read.
    rows : DataFrame or None
        All rows of the build side, if they are few and no shard has them.
    columns : tuple of label or None
        The columns of the build side that are read; None for all.
    """

    uid: str
    key: Any
    descriptor: CachedPickle[Descriptor] | None = None
    marks: str = ""
    since: int = 0
    rows: Any = None
    columns: tuple[Hashable, ...] | None = None

    def __sizeof__(self) -> int:
        return RESULT_NBYTES + sizeof(self.rows)


@dataclass(frozen=True, slots=True)
class BuildTask(RunTask):
    """Common arguments of a build's tasks.

    Attributes
    ----------
    plan : PartitionPlan
        Of any merge that stores these rows.
    ranges : int
        Number of hash ranges, and the largest number of shards.
    seeds : KeySeeds
        Seeds of the key hash: a hash range has the same rows whenever it is computed.
    unique : str
        Message of the error when a key has two rows; empty if keys may repeat.
    partitions : int
        Number of partitions of the build side.
    held_nbytes : int
        Largest size in bytes of a build side that goes whole to the probes, and not to owners.
    """

    verb: ClassVar[str] = "merge"
    copies: ClassVar[int] = 3
    plan: PartitionPlan | DistinctPlan
    ranges: int
    seeds: KeySeeds
    unique: str
    partitions: int
    held_nbytes: int

    def opening(
        self, uid: str, there: Sequence[ShardAddress], packed: CachedPickle[BuildTask]
    ) -> tuple[Run, Sequence[Any]]:
        descriptor = Descriptor(
            uid=uid,
            name=f"merge-{uid}",
            epoch=1,
            shards=tuple(there[: self.ranges]),
            encoder=replace(self.plan.encoder(), seeds=self.seeds),
            meta=self.plan.stored_meta,
            unique=True if self.unique else None,
            device=frames_of(self.plan.stored_meta).device,
        )
        change = replace(change_to(descriptor, "build"), partitions=self.partitions, spills=True)
        distinct = isinstance(self.plan, DistinctPlan)
        if distinct:
            # Rows of a key stay together.
            change = replace(change, heavy=NO_HEAVY)
        opened = Opened(uid, CachedPickle.of(descriptor), CachedPickle.of(change))
        workers = tuple(change.workers)
        # Where no partition probes, each hash range is read by itself.
        homes = workers if distinct and len(workers) == self.ranges else ()
        run = Run(uid, workers, encode_call(free_shard, uid), opened, stays=True, homes=homes)
        return run, (open_change, change)

    def sink(self, frame: Any, number: int) -> tuple[BufferedRows, Any]:
        return BufferedRows(number, self.plan.stored(frame)), None

    def are_few(self, rows: Any) -> bool:
        return are_few(rows, self.held_nbytes // self.partitions)

    def sender(
        self, opened: Opened, buffered: BufferedRows, codes: Any, frame: Any
    ) -> Callable[[], Receipt]:
        number = buffered.partition
        return functools.partial(shuffle_partition, buffered.rows, opened.change, number, number)

    def finalize(self, client: Client, key: Any, opened: Opened, receipts: list[Receipt]) -> Built:
        try:
            heavy = prepare_shards(client, opened.change.opened(), receipts)
        except ColumnError:
            if not self.unique:
                raise
            raise MergeError(
                f"{self.unique}; drop the duplicates (drop_duplicates), or leave validate= out"
            ) from None
        descriptor = replace(opened.descriptor.opened(), heavy=heavy)
        self.log_strategy("shuffle", opened.uid, sum(sum(each.rows) for each in receipts))
        return Built(opened.uid, key, CachedPickle.of(descriptor))

    def finalize_buffered(self, key: Any, buffered: Sequence[BufferedRows]) -> Built:
        rows = all_held(buffered, self.plan.stored_meta)
        made = Built(uuid.uuid4().hex, key)
        begin_run(task_client(), key, Run(made.uid, (), b"", made, stays=True))
        self.log_strategy("broadcast", made.uid, len(rows))
        return replace(made, rows=rows)

    def log_strategy(self, kind: str, run: str, rows: int) -> None:
        """Log the strategy of a merge once its build side is there."""
        if isinstance(self.plan, PartitionPlan):
            current_worker().log_event(TOPIC, {"run": run, "strategy": kind, "rows": rows})


def free_shard(uid: str, dask_worker: Any) -> None:
    host = dask_worker.plugins.get(NAME)
    if host is not None:
        host.shards.drop(uid)


def open_marks(descriptor: CachedPickle[Descriptor], key: Any) -> Built:
    """Start marking matched rows of a standing index."""
    with raise_without_traceback():
        client = task_client()
        found = current_run(client, key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        run, index = uuid.uuid4().hex, descriptor.opened()
        sealed = Built(run, key, descriptor, run)
        free = encode_call(free_marks, index.uid, run)
        made = Run(run, tuple(dict.fromkeys(index.workers)), free, sealed, restarts=False)
        return begin_run(client, key, made)  # type: ignore[no-any-return]


def free_marks(uid: str, marks: str, dask_worker: Any) -> None:
    host = dask_worker.plugins.get(NAME)
    if host is not None:
        host.shards.unmark(uid, marks)


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """Arguments of a probe task.

    Attributes
    ----------
    plan : CachedPickle of PartitionPlan or Probe
        Of a standing index: its probe.
    token : str
        Name of the merge.
    tailed : bool
        Whether rows are marked, for tails that follow.
    """

    __name__: ClassVar[str] = "dgpuhash-merge"

    plan: CachedPickle[PartitionPlan | Probe]
    token: str
    tailed: bool

    def __call__(self, frame: Any, sealed: Built, *checks: Built) -> Any:
        del checks
        with source(sealed, "merge"):
            try:
                if sealed.rows is not None:
                    plan = self.plan.opened()
                    assert isinstance(plan, PartitionPlan)
                    return merge_with_rows(frame, sealed.rows, plan)
                return self.probe(sealed).merged(frame, self)
            finally:
                release_arrow()

    def probe(self, sealed: Built) -> Probe:
        """Return the run's probe, shared by tasks to serve several at once."""
        marks = (sealed.marks or self.token) if self.tailed else ""
        assert sealed.descriptor is not None
        return _probe(self.plan, sealed.descriptor, marks)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "dgpuhash-merge", self.token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProbeTask) and other.token == self.token

    def __hash__(self) -> int:
        return hash(self.token)


@functools.lru_cache(maxsize=16)
def _probe(
    plan: CachedPickle[PartitionPlan | Probe], descriptor: CachedPickle[Descriptor], marks: str
) -> Probe:
    known = plan.opened()
    if isinstance(known, Probe):
        return replace(known, marks=marks)
    return Probe.by_plan(descriptor.opened(), known, marks)


@dataclass(frozen=True, slots=True)
class ProbeReceipt:
    """Confirmation that a partition marked its matches, with a digest of its keys."""

    partition: int
    uid: str
    digest: str


def confirm(
    frame: Any, merged: Any, sealed: Built, probe: ProbeTask, partition: int
) -> ProbeReceipt:
    """Return the receipt of a partition after its merge.

    Raises
    ------
    UnsupportedError
        When the partition had other keys in an earlier run of its task.
    """
    with raise_without_traceback(), lost_runs_again(sealed.key, sealed.uid):
        asking = probe.probe(sealed)
        keys = asking.asking(frame).keys
        codes = key_codes(keys, asking.descriptor).codes
        host = codes.get() if hasattr(codes, "get") else codes
        digest = hashlib.blake2b(host.tobytes(), digest_size=16).hexdigest()
        first = asking.descriptor.shards[0]
        worker = current_worker()
        known = sync(
            worker.loop, call_handler, worker, first.worker, "dgpuhash_digest", {},
            uid=asking.descriptor.uid, epoch=asking.descriptor.epoch,
            incarnation=first.incarnation, marks=asking.marks, partition=partition, digest=digest,
        )[0]  # fmt: skip
        if known != digest:
            raise UnsupportedError(
                f"partition {partition} of the frame that is merged had other keys when its task "
                f"ran again, so the unmatched rows cannot be determined; make the frame "
                "deterministic (a seed for random numbers, an order for what is read), or "
                "persist() it first"
            )
        return ProbeReceipt(partition, sealed.uid, digest)
