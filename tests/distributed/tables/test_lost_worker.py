"""Workers that die within a call: it raises IndexLost in time, and no half of it is seen."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from clusters import cluster_of, until
from distributed import Client

from dgpuhash import Op
from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.errors import IndexLost

pytestmark = pytest.mark.cluster
KEYS = np.arange(3000)
OPS = np.resize(np.array([Op.FIND, Op.INSERT, Op.ERASE], "u1"), len(KEYS))
SECONDS = 60

MAKE = {
    "set": lambda: DistributedSet.from_keys(KEYS[::2], method="slab"),
    "map": lambda: DistributedMap.from_arrays(KEYS[::2], KEYS[::2] * 3, method="slab"),
    "multimap": lambda: DistributedMultiMap.from_arrays(KEYS[::2] // 2, KEYS[::2]),
}
EXECUTE = {
    "set": lambda table: table.execute(OPS, KEYS),
    "map": lambda table: table.execute(OPS, KEYS, KEYS),
    "multimap": lambda table: table.execute(OPS, KEYS, KEYS),
}
VERB, SHARD = "dgpuhash.distributed.pipeline.verb", "dgpuhash.distributed.shards.table_shard"
DRAFT = "dgpuhash.distributed.pipeline.room"
# Where a worker dies in a mixed batch, and whether the others have changed by then.
PLACES = {
    "before room is made": (VERB, "VerbExecution", "make_room", False),
    "serving rows": (SHARD, "TableShard", "serve", True),
    "returning answers": (VERB, "VerbExecution", "_result", True),
}


@pytest.fixture(scope="module")
def nannied() -> Iterator[Client]:
    with cluster_of(3, processes=True) as client:
        yield client


def content(table: Any) -> list[Any]:
    """Return the rows of a table, sorted."""
    columns = table.items()
    columns = columns if isinstance(columns, tuple) else (columns,)
    return sorted(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


def dies_in(client: Client, worker: str, module: str, owner: str, name: str) -> None:
    """Have a worker kill itself where it enters a method."""

    def patch() -> None:
        def die(*args: Any, **kwargs: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(getattr(importlib.import_module(module), owner), name, die)

    client.run(patch, workers=[worker])


def assert_lost(client: Client, table: Any, work: Any) -> None:
    """Assert that the call, and all that follow, raise IndexLost; wait for another worker."""
    victim, start = table.workers[1], time.monotonic()
    with pytest.raises(IndexLost, match=r"rebuild\(\)"):
        work()
    assert time.monotonic() - start < SECONDS
    until(lambda: victim not in client.nthreads())
    for verb in (lambda: len(table), lambda: table.contains(KEYS), table.items):
        with pytest.raises(IndexLost, match=r"rebuild\(\)"):
            verb()
    client.wait_for_workers(3, timeout=120)


# Sets are maps without values; multimaps work on copies of their shards.
@pytest.mark.parametrize(
    ("kind", "place"), [*product(["map", "multimap"], PLACES), ("set", "serving rows")]
)
def test_a_mixed_batch_is_lost_with_its_worker(nannied, tmp_path, kind, place):
    *there, changed = PLACES[place]
    with nannied.as_current(), MAKE[kind]() as table:
        before = content(table)
        table.save(tmp_path / "saved")
        dies_in(nannied, table.workers[1], *there)
        assert_lost(nannied, table, lambda: EXECUTE[kind](table))
        rebuilt = table.rebuild()
        # Copies of shards whose batch was not published are dropped.
        kept = not changed or (kind == "multimap" and place == "serving rows")
        assert rebuilt == (1,) if kept else 1 in rebuilt
        assert content(table) == before
        epoch = table.epoch
        EXECUTE[kind](table)
        assert table.epoch == epoch + 1
        assert content(table) != before


def test_lists_are_unchanged_where_a_worker_dies_before_they_are_published(nannied, tmp_path):
    with nannied.as_current(), MAKE["multimap"]() as table:
        before = content(table)
        table.save(tmp_path / "saved")
        dies_in(nannied, table.workers[1], DRAFT, "ShardDraft", "publish")
        assert_lost(nannied, table, lambda: EXECUTE["multimap"](table))
        assert table.rebuild() == (1,)
        assert content(table) == before


@pytest.mark.parametrize(
    ("kind", "verb"), [("set", "for_each"), ("map", "for_all"), ("multimap", "for_each")]
)
def test_functions_of_users_are_lost_with_their_worker(nannied, tmp_path, kind, verb):
    def rows(keys: Any, *_: Any) -> int:
        return len(keys)

    with nannied.as_current(), MAKE[kind]() as table:
        before = content(table)
        table.save(tmp_path / "saved")
        dies_in(nannied, table.workers[1], SHARD, "TableShard", "visit")
        given = (KEYS, rows) if verb == "for_each" else (rows,)
        assert_lost(nannied, table, lambda: getattr(table, verb)(*given))
        assert table.rebuild() == (1,)
        assert content(table) == before
        assert sum(getattr(table, verb)(*given)) == len(before)
