"""Steps of a bulk verb, timed one after the other.

A distributed map exchanges some rows while others are inserted or found. Here all rows of a worker
are one slice, and each step waits until all workers have finished the step before. GPUs insert new
keys range by range in a bulk insert and then need no answers; here they take the steps of any other
insert.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.workers.bulk import LOAD
from dgpuhash.bench.workers.cluster import Workers
from dgpuhash.bench.workers.workload import Workload
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


def bulk_steps(workers: Workers, load: Workload, repeats: int) -> dict[str, dict[str, float]]:
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
