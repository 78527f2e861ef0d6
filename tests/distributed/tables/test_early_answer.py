"""Answers that are constructed while workers still work."""

from __future__ import annotations

import time

import dask.array as da
import numpy as np
import pytest
from clusters import until
from distributed import Client, futures_of

from dgpuhash.distributed import DistributedMap, DistributedMultiMap
from dgpuhash.distributed.cluster import broadcast
from dgpuhash.distributed.pipeline import verb
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.distributed.tables import batch
from dgpuhash.distributed.tables.batch import EarlyAnswer
from dgpuhash.errors import ShapeError

pytestmark = pytest.mark.cluster


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[EarlyAnswer]:
    """Record all early answers, with slow workers."""
    found: list[EarlyAnswer] = []
    make = EarlyAnswer.make
    monkeypatch.setattr(broadcast, "QUICK_SECONDS", 0)
    monkeypatch.setattr(EarlyAnswer, "make", lambda self: (found.append(self), make(self))[1])
    serve = TableShard.serve

    def slowly(*args):
        time.sleep(0.05)
        return serve(*args)

    monkeypatch.setattr(TableShard, "serve", slowly)
    return found


def rows_of(stop: int) -> da.Array:
    return da.arange(stop, chunks=40).persist()


def kept_by(client: Client) -> set:
    """Return the labels of the data that workers hold."""
    return {label for held in client.has_what().values() for label in held}


def names(seen: EarlyAnswer) -> list[str]:
    return [array.name for _, array in seen._made]


def test_they_are_what_workers_keep(threads: Client, made: list[EarlyAnswer]):
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys * keys, client=threads) as squares:
        made.clear()
        values, found = squares.find(keys + 20, default=-1)
        assert [values.name, found.name] == names(made[-1])
        np.testing.assert_array_equal(found.compute(), np.arange(20, 120) < 100)
        expected = np.where(np.arange(20, 120) < 100, np.arange(20, 120) ** 2, -1)
        np.testing.assert_array_equal(values.compute(), expected)
        fresh = squares.insert(keys + 90, keys)
        assert [fresh.name] == names(made[-1])
        np.testing.assert_array_equal(fresh.compute(), np.arange(90, 190) >= 100)
        assert squares.count(keys).sum().compute() == 100
        assert len(squares) == 190


def test_they_live_as_long_as_the_answers(threads: Client, made: list[EarlyAnswer]):
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys, client=threads) as table:
        found = table.contains(keys)
        (name,) = names(made[-1])
        labels = [future.key for future in futures_of(found)]
        assert labels == [(name, number) for number in range(3)]
        made.clear()
        assert bool(found.all().compute())
        del found
        until(lambda: not {*labels} & kept_by(threads))


def test_rows_of_bytes_are_made_afterwards(threads: Client, made: list[EarlyAnswer]):
    """Their shapes are not those of numbers on a GPU, and lists have any."""
    keys = rows_of(90)
    with DistributedMultiMap.from_arrays(keys % 30, keys, client=threads) as lists:
        made.clear()
        values, offsets = lists.find(rows_of(30))
        assert made and not names(made[-1])
        assert len(values.compute()) == 90 and len(offsets.compute()) == 31
    text = np.array([f"{n:09}" for n in range(100)], "S9")
    asked = da.from_array(text, chunks=40).persist()
    with DistributedMap("int64", "S9", client=threads) as table:
        table.insert(rows_of(100), asked)
        values, found = table.find(rows_of(100))
        assert bool(found.all().compute()) and (values.compute() == text).all()


@pytest.mark.parametrize("fails", ["at once", "halfway"])
def test_what_fails_is_made_again(
    threads: Client, made: list[EarlyAnswer], monkeypatch: pytest.MonkeyPatch, fails: str
):
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys, client=threads) as table:
        calls: list[str] = []
        array_of = batch.array_of

        def failing(kept, *args):
            calls.append(kept.name)
            if len(calls) == (1 if fails == "at once" else 2):
                raise MemoryError
            return array_of(kept, *args)

        monkeypatch.setattr(batch, "array_of", failing)
        values, found = table.find(keys)
        assert len(calls) == (3 if fails == "at once" else 4)
        assert bool(found.all().compute())
        np.testing.assert_array_equal(values.compute(), np.arange(100))


def test_each_attempt_has_names_of_its_own(threads: Client, made: list[EarlyAnswer]):
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys, client=threads) as table:
        held = table._holding.use
        assert held is not None
        held.group.close(threads)
        made.clear()
        found = table.contains(keys)
        assert bool(found.all().compute())
        # The first attempt may have failed before the client begins its answer.
        assert made[0] is made[-1] and found.name == names(made[-1])[0]


def test_an_error_leaves_nothing(
    threads: Client, made: list[EarlyAnswer], monkeypatch: pytest.MonkeyPatch
):
    """Also while somebody holds it, and with it what its frames hold."""
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys, client=threads) as table:
        futures: set = set()
        forget = EarlyAnswer.forget

        def noted(self):
            futures.update(future.key for kept, _ in self._made for future in kept.futures)
            forget(self)

        def refuse(*args):
            time.sleep(0.05)
            raise ShapeError("none of these is here")

        monkeypatch.setattr(EarlyAnswer, "forget", noted)
        monkeypatch.setattr(verb, "_asking", refuse)
        with pytest.raises(ShapeError, match="none of these") as raised:
            table.contains(keys)
        until(lambda: not futures & set(threads.futures))
        assert futures and not futures & kept_by(threads)
        assert raised.value.__traceback__ is not None


def test_an_interrupt_meanwhile_is_the_callers(
    threads: Client, made: list[EarlyAnswer], monkeypatch: pytest.MonkeyPatch
):
    keys = rows_of(100)
    with DistributedMap.from_arrays(keys, keys, client=threads) as table:

        def interrupted(self):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(EarlyAnswer, "make", interrupted)
            with pytest.raises(KeyboardInterrupt):
                table.contains(keys)
        assert bool(table.contains(keys).all().compute())
