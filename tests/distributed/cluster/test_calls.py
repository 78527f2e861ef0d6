"""Calls in the processes of a cluster: results, errors and targets."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest
from distributed import Client
from distributed.protocol import pickle

from dgpuhash.distributed.cluster.rpc import (
    OPERATION,
    call_scheduler,
    call_worker,
    encode_call,
    rpc_of_scheduler,
)

pytestmark = pytest.mark.cluster


def added(first: int, second: int, dask_scheduler: Any) -> tuple[int, str]:
    return first + second, dask_scheduler.address


def same(thing: object, dask_scheduler: Any) -> object:
    return thing


class Unpicklable:
    def __reduce__(self) -> NoReturn:
        raise TypeError("no pickle of it")


async def later(dask_scheduler: Any) -> str:
    await asyncio.sleep(0)
    return "later"


def fail(dask_scheduler: Any) -> None:
    raise ValueError("no")


def forget(dask_scheduler: Any) -> None:
    """Remove the handler of a scheduler, as after its restart."""
    dask_scheduler.handlers.pop(OPERATION, None)


async def on_worker(address: str, given: str, more: str, dask_scheduler: Any) -> str:
    post = encode_call(told, given), pickle.dumps((more,))
    try:
        return str(await call_worker(dask_scheduler, address, *post))
    except OSError as error:
        return f"no: {error}"


def told(given: str, more: str, dask_worker: Any) -> str:
    return f"{given} {more} {dask_worker.address}"


def test_what_the_scheduler_gives_and_raises(asking: Client) -> None:
    assert call_scheduler(asking, added, 1, 2) == (3, asking.scheduler.address)
    assert call_scheduler(asking, later) == "later"
    with pytest.raises(ValueError, match="no"):
        call_scheduler(asking, fail)


def test_a_scheduler_that_never_took_calls(asking: Client) -> None:
    call_scheduler(asking, later)
    call_scheduler(asking, forget)
    assert call_scheduler(asking, later) == "later"


def test_handlers_of_the_scheduler(asking: Client) -> None:
    assert asking.sync(rpc_of_scheduler(asking).ncores) == asking.ncores()
    assert "workers" in asking.sync(rpc_of_scheduler(asking).identity)


def test_only_a_scheduler_on_the_same_event_loop_is_called_at_once(threads: Client) -> None:
    thing = Unpicklable()
    assert call_scheduler(threads, same, thing) is thing
    with (
        Client(threads.scheduler.address, set_as_default=False) as other,
        pytest.raises(TypeError, match="pickle"),
    ):
        call_scheduler(other, same, thing)


def test_a_worker_and_one_that_is_not_there(client: Client) -> None:
    worker, *_ = client.nthreads()
    for _ in range(2):
        assert call_scheduler(client, on_worker, worker, "a", "b") == f"a b {worker}"
    nobody = "tcp://127.0.0.1:1"
    assert (
        call_scheduler(client, on_worker, nobody, "a", "b") == f"no: {nobody} is not in the cluster"
    )
