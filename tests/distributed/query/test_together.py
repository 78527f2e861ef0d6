"""Coalesced calls, each with its own answer or the error."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from clusters import until
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash.distributed.query.task_batching import Coalescer
from dgpuhash.errors import OutOfMemoryError

THREADS, AT_ONCE = 8, 2


def doubled(things: Sequence[int]) -> Iterator[int]:
    for thing in things:
        yield 2 * thing


def call(
    together, thing, work=doubled, *,
    kind=0, nbytes=1, most_nbytes=100, at_once=AT_ONCE, more=lambda: False,
):  # fmt: skip
    return together.call(
        work, thing, kind=kind, nbytes=nbytes, most_nbytes=most_nbytes, at_once=at_once, more=more
    )


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=20), st.integers(1, 12))
def test_each_call_gets_its_answer(calls, most_nbytes):
    together, batches = Coalescer(), []

    def work(things):
        batches.append(things)
        for kind, nbytes, number in things:
            yield kind, nbytes, number, len(things)

    def one(number):
        kind, nbytes = calls[number]
        thing = (kind, nbytes, number)
        return call(together, thing, work, kind=kind, nbytes=nbytes, most_nbytes=most_nbytes)

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(one, range(len(calls))))
    assert [answer[:3] for answer in answers] == [
        (*each, number) for number, each in enumerate(calls)
    ]
    assert sorted(number for batch in batches for *_, number in batch) == list(range(len(calls)))
    for batch in batches:
        assert len({kind for kind, _, _ in batch}) == 1
        assert len(batch) == 1 or sum(nbytes for _, nbytes, _ in batch) <= most_nbytes


@pytest.mark.parametrize("at_once", [1, AT_ONCE])
def test_calls_that_come_in_the_meantime_share_a_batch(at_once):
    together, begun, go_on = Coalescer(), threading.Semaphore(0), threading.Event()
    sizes = []

    def slow(things):
        sizes.append(len(things))
        begun.release()
        assert go_on.wait(30)
        yield from things

    with ThreadPoolExecutor(THREADS) as pool:
        first = []
        for number in range(at_once):
            first.append(pool.submit(call, together, number, slow, at_once=at_once))
            assert begun.acquire(timeout=30)
        later = [pool.submit(call, together, number, slow, at_once=at_once) for number in range(5)]
        until(lambda: len(together._waiting) == len(later), pause=0)
        go_on.set()
        assert [each.result() for each in [*first, *later]] == [*range(at_once), *range(5)]
    assert sizes == [1] * at_once + [5]


def test_a_batch_waits_for_calls_that_are_about_to_come(monkeypatch):
    monkeypatch.setattr("dgpuhash.distributed.query.task_batching.PAUSE", 30)
    together, sizes, come = Coalescer(), [], threading.Barrier(3)

    def work(things):
        sizes.append(len(things))
        yield from things

    def one(number):
        come.wait()
        return call(together, number, work, more=lambda: len(together._waiting) < come.parties)

    with ThreadPoolExecutor(come.parties) as pool:
        assert list(pool.map(one, range(come.parties))) == [0, 1, 2]
    assert sizes == [3]


def test_an_error_is_raised_in_each_call_without_an_answer(monkeypatch):
    monkeypatch.setattr("dgpuhash.distributed.query.task_batching.PAUSE", 30)
    together, come = Coalescer(), threading.Barrier(3)

    def broken(things):
        yield things[0]
        raise ValueError("broken")

    def one(number):
        come.wait()
        return call(together, number, broken, more=lambda: len(together._waiting) < come.parties)

    with ThreadPoolExecutor(come.parties) as pool:
        futures = [pool.submit(one, number) for number in range(come.parties)]
        errors = [future.exception() for future in futures]
    assert sorted(str(error) for error in errors) == ["None", "broken", "broken"]
    assert call(together, 4) == 8


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_a_batch_that_runs_out_of_memory_is_tried_one_by_one(monkeypatch, error):
    monkeypatch.setattr("dgpuhash.distributed.query.task_batching.PAUSE", 30)
    together, come, sizes = Coalescer(), threading.Barrier(4), []

    def hungry(things):
        sizes.append(len(things))
        if len(things) > 1 or things[0] == 2:
            raise error("too much")
        yield from things

    def one(number):
        come.wait()
        return call(together, number, hungry, more=lambda: len(together._waiting) < come.parties)

    with ThreadPoolExecutor(come.parties) as pool:
        futures = [pool.submit(one, number) for number in range(come.parties)]
        assert [futures[number].result() for number in (0, 1, 3)] == [0, 1, 3]
        with pytest.raises(error):
            futures[2].result()
    assert sizes == [4, 1, 1, 1, 1]


def test_a_call_that_is_broken_off_stands_in_nobodys_way():
    together = Coalescer()

    def stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(together, 1, more=stop)
    assert call(together, 2) == 4
