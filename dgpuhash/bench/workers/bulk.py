"""Timed and checked inserts and lookups of a DistributedMap on arrays.

The arrays lie on the workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np

from dgpuhash import backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.workers.cluster import Workers
from dgpuhash.bench.workers.workload import Workload
from dgpuhash.distributed import DistributedMap

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
    workers: Workers, load: Workload, keys: Any, values: Any
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


def _array(workers: Workers, load: Workload, futures: Sequence[Any]) -> da.Array:
    name = f"bulk-{futures[0].key}"
    graph = {(name, rank): future for rank, future in enumerate(futures)}
    meta = backend.get(workers.device).xp.zeros(0, _INT)
    return da.Array(graph, name, ((load.rows,) * load.workers,), dtype=_INT, meta=meta)
