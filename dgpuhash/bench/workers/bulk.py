"""Time and check inserts and lookups of a DistributedMap on arrays.

The arrays lie on the workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from dgpuhash import backend
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.bench.workers.workload import Workload
from dgpuhash.distributed import DistributedMap
from dgpuhash.distributed.cluster.locality import InputSpec, LocalInputs
from dgpuhash.distributed.collective.base import Collective, Outgoing, Received, Transfer
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.distributed.tables.batch import chunks_by_worker
from dgpuhash.frames.keys.seeds import draw_owner_seed
from dgpuhash.spec import TableSpec
from dgpuhash.tables.stores.method import table_spec
from dgpuhash.typing import Device

_INT = np.dtype(np.int64)
#: Load factor of the table with all pairs.
LOAD = 0.8


@dataclass(frozen=True, slots=True)
class VerbSeconds:
    """Seconds of one verb.

    Attributes
    ----------
    seconds : float
        Until the client knew that the verb was done.
    worker_seconds : float
        Of these, the seconds that the slowest worker was working.
    """

    seconds: float
    worker_seconds: float


def time_bulk_verbs(
    workers: BenchWorkers, load: Workload, keys: Any, values: Any
) -> dict[str, VerbSeconds]:
    """Insert each worker's pairs into a DistributedMap, then look up keys.

    The map has room for all pairs; as many keys are looked up as were inserted.

    Parameters
    ----------
    workers : Workers
    load : Workload
    keys, values : sequence of Future
        `Workload.keys` and `Workload.values` of each worker.

    Returns
    -------
    dict of Bulk
        For ``bulk insert``, which returns which keys were new, and ``bulk find``, whose answers
        return to the worker that asked, in the order of its keys.

    Raises
    ------
    DgpuhashError
        When an answer is wrong.
    """
    rows = load.workers * load.rows
    made = {}
    with DistributedMap(
        _INT, _INT, rows, client=workers.client, workers=workers.addresses,
        device=workers.device, **load.method.options(LOAD),
    ) as table:  # fmt: skip
        # The first call allocates the shards.
        require(len(table) == 0, "a new table has keys", verb="bulk insert")
        pairs = [_array(workers, load, futures) for futures in (keys, values)]
        start = time.perf_counter()
        fresh = table.insert(*pairs)
        made["bulk insert"] = _took(table, start)
        require(len(table) == rows, "rows were lost", verb="bulk insert")
        require(bool(fresh.all().compute()), "a new key was not told", verb="bulk insert")
        del fresh
        asked = _array(workers, load, workers.made(load.asked_keys))
        start = time.perf_counter()
        values, found = table.find(asked)
        made["bulk find"] = _took(table, start)
        answers = zip(
            *(workers.client.compute(each.to_delayed().tolist()) for each in (values, found)),
            strict=True,
        )
        checks = [
            workers.client.submit(load.check_values, workers.device, rank, *answer, pure=False)
            for rank, answer in enumerate(answers)
        ]
        require(all(workers.client.gather(checks)), "an answer was wrong", verb="bulk find")
    return made


def _took(table: DistributedMap, start: float) -> VerbSeconds:
    seconds = time.perf_counter() - start
    return VerbSeconds(seconds, float(table.stats()["seconds"].max()))


def _array(workers: BenchWorkers, load: Workload, futures: Sequence[Any]) -> da.Array:
    name = f"bulk-{futures[0].key}"
    graph = {(name, rank): future for rank, future in enumerate(futures)}
    meta = backend.get(workers.device).xp.zeros(0, _INT)
    return da.Array(graph, name, ((load.rows,) * load.workers,), dtype=_INT, meta=meta)


def bulk_steps(workers: BenchWorkers, load: Workload, repeats: int) -> dict[str, dict[str, float]]:
    """Return the slowest worker's seconds of each step of the bulk verbs.

    The verbs are ``bulk insert`` and ``bulk find``. ``partition``: order rows by their owner;
    ``exchange``; ``insert`` or ``lookup`` of the received rows; ``answers``: send them back and
    restore the order of the rows. A single worker has the third step only. The seconds are those of
    the run whose sum is the median.

    Raises
    ------
    DgpuhashError
        When an answer is wrong.
    """
    columns = [workers.made(make) for make in (load.keys, load.values, load.asked_keys)]
    labels = [future.key for futures in columns for future in futures]
    needed = InputSpec(labels, partial(chunks_by_worker, [load.rows] * len(workers.addresses)))
    given = {"max_load": None, "method": "auto", **load.method.options(LOAD)}
    options = {name: given.pop(name) for name in ("max_load", "method")}
    spec = table_spec("map", _INT, _INT, seed=None, settings=given, **options)
    group = form_group(workers.client, workers.addresses)
    try:
        runs = [
            group.run(
                workers.client, run_steps, spec, draw_owner_seed(), workers.device, load.rows,
                needed=needed,
            )
            for _ in range(repeats + 1)
        ][1:]  # fmt: skip
    finally:
        group.close(workers.client)
    made = {}
    for verb in runs[0][0]:
        slowest = [
            {step: max(rank[verb][step] for rank in run) for step in run[0][verb]} for run in runs
        ]
        slowest.sort(key=lambda steps: sum(steps.values()))
        made[verb] = slowest[len(slowest) // 2]
    return made


def run_steps(
    host: ShardHost,
    collective: Collective,
    spec: TableSpec,
    owner_seed: int,
    device: Device,
    rows: int,
    given: LocalInputs,
) -> dict[str, dict[str, float]]:
    """Run the steps of one rank on its columns and return their seconds.

    The columns are those of `given`.
    """
    ((keys, values, asked),) = given.things
    part = TableShard(spec, math.ceil(rows + 6 * math.sqrt(rows)), device, owner_seed)
    chunks = [[Chunk(each, (), each * rows, rows)] for each in range(collective.size)]
    made = {}
    for verb, work, columns in (("insert", "insert", [keys, values]), ("find", "lookup", [asked])):
        end = TimedCollective(collective, backend.get(device), work)
        with end.with_quiet_loop(device):
            asking = VerbExecution(part, Verb(verb), chunks, given.rank, [columns])
            end.begin()
            ((*_, told),) = asking.go(end, rows, rows)
            end.lap()
        require(told.all(), "an answer was wrong", verb=f"bulk {verb}", step=work)
        made[f"bulk {verb}"] = end.seconds
    return made


class TimedCollective(Collective):
    """Collective with a barrier and a clock after each step.

    It wraps the collective of a rank; all ranks start their clocks together.

    Attributes
    ----------
    seconds : dict
        Of each step; `work` is the step between received rows and sent answers.
    """

    def __init__(self, end: Collective, used: Backend, work: str) -> None:
        self.rank: int = end.rank
        self.size: int = end.size
        self.seconds: dict[str, float] = dict.fromkeys(
            ("partition", "exchange", work, "answers"), 0.0
        )
        self._end, self._backend = end, used
        # A second lap of ``answers`` puts the received answers in row order.
        self._steps = iter([*self.seconds, "answers"] if self.size > 1 else [work])
        self._since = 0.0

    def begin(self) -> None:
        """Wait for all ranks and start the clock."""
        self.gather(None)
        self._since = time.perf_counter()

    def lap(self) -> None:
        """End the current step and start the clock of the next one."""
        self._backend.synchronize()
        self.seconds[next(self._steps)] += time.perf_counter() - self._since
        self.begin()

    def gather(self, value: Any) -> list[Any]:
        return self._end.gather(value)

    def abort(self, reason: str) -> None:
        self._end.abort(reason)

    def close(self) -> None:
        self._end.close()

    def with_quiet_loop(self, device: Device) -> AbstractContextManager[None]:
        return self._end.with_quiet_loop(device)

    def _carry(self, outgoing: Outgoing) -> Transfer:
        self.lap()
        return _TimedTransfer(self, self._end._carry(outgoing))


class _TimedTransfer(Transfer):
    """Transfer that ends a step when all rows are received."""

    def __init__(self, end: TimedCollective, transfer: Transfer) -> None:
        self._end, self._transfer = end, transfer

    def wait(self) -> Received:
        came = self._transfer.wait()
        self._end.lap()
        return came
