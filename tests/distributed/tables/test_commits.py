"""Changes that an interrupt cuts: each is whole or absent, and the table can be used."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupting import Interrupted, events, raise_at, raise_on_signal

from dgpuhash import Op
from dgpuhash.distributed import (
    DistributedBloomFilter,
    DistributedCountMap,
    DistributedMap,
    DistributedMultiMap,
    DistributedSet,
)
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.distributed.tables import base
from dgpuhash.distributed.tables.base import Commits

KEYS = np.arange(3_000)
MORE = np.arange(2_000, 6_000)

# One operation a key, so that every order of them leaves the same content.
OPS = np.resize(np.array([Op.INSERT, Op.ERASE, Op.FIND], "u1"), len(MORE))

Contents = dict[int, Any]


def content(table: Any) -> Contents:
    """Return what a table holds, as a dictionary."""
    if isinstance(table, DistributedSet):
        (columns,) = [table.keys()]
        return dict.fromkeys(np.asarray(columns).tolist())
    keys, values = (np.asarray(column).tolist() for column in table.items())
    if isinstance(table, DistributedMultiMap):
        return dict(Counter(zip(keys, values, strict=True)))
    return dict(zip(keys, values, strict=True))


MAKE: dict[str, Callable[[], Any]] = {
    "map": lambda: DistributedMap.from_arrays(KEYS, KEYS),
    "multimap": lambda: DistributedMultiMap.from_arrays(KEYS // 2, KEYS),
    "set": lambda: DistributedSet.from_keys(KEYS),
    "count map": lambda: DistributedCountMap.from_keys(KEYS // 2),
    "slab map": lambda: DistributedMap.from_arrays(KEYS, KEYS, method="slab"),
    "slab set": lambda: DistributedSet.from_keys(KEYS, method="slab"),
}
CHANGES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "insert into a map": ("map", lambda table: table.insert(MORE, MORE * 2)),
    "combine in a map": ("map", lambda table: table.insert(MORE, MORE, combine="sum")),
    "upsert": ("map", lambda table: table.upsert(MORE, MORE * 2)),
    "erase from a map": ("map", lambda table: table.erase(MORE)),
    "clear a map": ("map", lambda table: table.clear()),
    "insert into a multimap": ("multimap", lambda table: table.insert(MORE, MORE)),
    "erase from a multimap": ("multimap", lambda table: table.erase(MORE // 3)),
    "insert into a set": ("set", lambda table: table.insert(MORE)),
    "erase from a set": ("set", lambda table: table.erase(MORE)),
    "count": ("count map", lambda table: table.insert(MORE)),
    "erase counts": ("count map", lambda table: table.erase(MORE // 3)),
    "execute on a map": ("slab map", lambda table: table.execute(OPS, MORE, MORE * 2)),
    "execute on a set": ("slab set", lambda table: table.execute(OPS, MORE)),
    "execute on a multimap": ("multimap", lambda table: table.execute(OPS, MORE, MORE)),
}


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers take their time for a change, and some more than others."""
    serve, late = TableShard.serve, random.Random(5)

    def served(self: TableShard, verb: Any, *rest: Any) -> Any:
        time.sleep(late.random() * 0.02 if verb.changes else 0)
        return serve(self, verb, *rest)

    monkeypatch.setattr(TableShard, "serve", served)


@pytest.mark.cluster
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_whole_or_absent(threads, monkeypatch, change):
    kind, work = CHANGES[change]
    with MAKE[kind]() as table:
        before = content(table)
        work(table)
        after = content(table)
    slowly(monkeypatch)
    moments, cut = random.Random(change), 0
    with raise_on_signal(KeyboardInterrupt) as during:
        for _ in range(6):
            with MAKE[kind]() as table:
                cut += during(lambda table=table: work(table), moments.random() * 0.03)
                assert content(table) in (before, after)
                work(table)
                assert len(table) == len(table.copy())
    assert cut


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["map", "multimap", "set"])
def test_functions_of_users_that_an_interrupt_cuts(threads, kind):
    """Functions that run go on; a later call sees each entry once."""

    def rows(keys: Any, *_: Any) -> int:
        time.sleep(0.01)
        return len(keys)

    moments, cut = random.Random(kind), 0
    with MAKE[kind]() as table, raise_on_signal(KeyboardInterrupt) as during:
        before = content(table)
        for verb, *given in (("for_each", KEYS, rows), ("for_all", rows)):
            call = getattr(table, verb)
            for _ in range(6):
                cut += during(lambda call=call, given=given: call(*given), moments.random() * 0.02)
                assert sum(call(*given)) == len(table)
            assert content(table) == before
    assert cut


@pytest.mark.cluster
def test_a_change_that_is_cut_at_any_line(threads):
    """Lines of the thread of the caller; those of workers go on."""
    with DistributedMap.from_arrays(KEYS, KEYS) as table:
        wanted, epoch = len(KEYS), table.epoch
        some = events("line", lambda: table.insert(KEYS, KEYS), 60)
        for number, event in enumerate(some):
            key = 10_000 + number
            raise_at(event, "line", lambda key=key: table.insert([key], [key]))
            wanted += bool(table.contains([key])[0])
            assert len(table) == wanted
        assert table.epoch >= epoch


@pytest.mark.cluster
@pytest.mark.parametrize("seconds", [0.001, 0.004, 0.01])
def test_filters_are_united_whole_or_not_at_all(threads, seconds):
    ours = DistributedBloomFilter.from_keys(KEYS, capacity=20_000, seed=3)
    others = DistributedBloomFilter.from_keys(MORE, capacity=20_000, seed=3)
    with ours, others, raise_on_signal(KeyboardInterrupt) as during:
        during(lambda: ours.__ior__(others), seconds)
        share = np.asarray(ours.contains(MORE[1_000:])).mean()
        assert share == 1 or share < 0.1
        during(lambda: ours.insert(MORE), seconds)
        ours.insert(MORE)
        assert np.asarray(ours.contains(MORE)).all()


def test_a_second_interrupt_leaves_the_commit_to_itself():
    commits, go_on, ended = Commits(), threading.Event(), []

    def commit() -> None:
        assert go_on.wait(30)
        ended.append(True)

    def strike(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        with pytest.raises(Interrupted) as raised:
            commits.run(commit)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(raised.value.__context__, Interrupted)
    assert not ended
    go_on.set()
    commits.finish()
    assert ended == [True]


def test_a_commit_that_fails_raises_its_error():
    def commit() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Commits().run(commit)


def test_an_interrupt_that_leaves_the_condition_locked(monkeypatch):
    """As one does between the instructions of `wait`; the commit could never tell its end."""
    begun, real = threading.Event(), base.wait

    def interrupted(futures):
        monkeypatch.setattr(base, "wait", real)
        assert begun.wait(20)
        futures[0]._condition.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Commits().run(begun.set)
