"""Functions called in the processes of a cluster, by a message of one frame there and one back.

Dask's own ways, ``Client.run_on_scheduler`` and ``run``, look at each function's signature, and
answer in three or four frames; over UCXX each of these is a message that an event loop waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client, Scheduler
from distributed.comm import CommClosedError
from distributed.core import Status, send_recv
from distributed.protocol import pickle

from dgpuhash.distributed.cluster.client import asking_the_scheduler

__all__ = ["ask_scheduler", "call_worker", "handlers_of", "on_scheduler", "posted"]

# Not one of the plugin's, which go with it.
OPERATION = "dgpuhash-call"

# Clients whose scheduler takes calls. Of each scheduler in this process the addresses of workers
# that do, with names that are new when one starts anew.
_clients: WeakSet[Client] = WeakSet()
_workers: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()


async def on_scheduler(client: Client, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args, dask_scheduler=…)`` on the event loop of the client's scheduler.

    Where that is the client's own, as with a `LocalCluster`, nothing travels.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        Of a module, so that it travels by name; perhaps a coroutine function.
    *args
        Which nobody changes from now on.

    Raises
    ------
    Exception
        What `function` raised.
    """
    here = _scheduler_here(client)
    if here is not None:
        found = function(*args, dask_scheduler=here)
        return await found if asyncio.iscoroutine(found) else found
    message = {"post": posted(function, *args)}
    answer = None
    if client in _clients:
        answer = await getattr(client.scheduler, OPERATION)(**message)
    if answer is None:
        # Nothing was ever called there, or the scheduler was started anew.
        await client.run_on_scheduler(take_calls, "dask_scheduler", asynchronous=True)
        _clients.add(client)
        answer = await getattr(client.scheduler, OPERATION)(**message)
    return pickle.loads(answer["post"])


def ask_scheduler(
    client: Client, function: Callable[..., Any], *args: Any, limit: float | None = None
) -> Any:
    """As `on_scheduler`, for threads that wait, by default for as long as it takes.

    Raises
    ------
    IndexLost
        When the scheduler is gone, or has not answered for `limit` seconds.
    """
    with asking_the_scheduler():
        return client.sync(on_scheduler, client, function, *args, callback_timeout=limit)


def handlers_of(client: Client) -> Any:
    """What Dask's own objects ask the client's scheduler through, without messages where they can.

    As ``client.scheduler``, it has an asynchronous method for each of the scheduler's handlers.
    """
    here = _scheduler_here(client)
    return client.scheduler if here is None else Handlers(here)


class Handlers:
    """Those of a scheduler on this event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(**message: Any) -> Any:
            found = self._scheduler.handlers[name](**message)
            return await found if asyncio.iscoroutine(found) else found

        return call


async def call_worker(scheduler: Any, address: str, post: bytes, more: bytes | None) -> Any:
    """What is `posted`, carried out on the event loop of a worker; called on the scheduler's.

    `more`: further arguments, pickled. Over the comms that the scheduler keeps, where Dask's own
    broadcast opens new ones.

    Raises
    ------
    Exception
        What the function raised, or that the worker cannot be reached.
    """
    worker = scheduler.workers.get(address)
    if worker is None:
        # Over a comm that is kept, one that was retired answers until it has ended.
        raise CommClosedError(f"{address} is not in the cluster")
    comm = await scheduler.rpc.connect(address)
    comm.name = "dgpuhash call"
    try:
        taking = _workers.setdefault(scheduler, {})
        if taking.get(address) != worker.server_id:
            begin = {"function": pickle.dumps(take_calls), "args": pickle.dumps(("dask_worker",))}
            ready = await send_recv(comm, op="run", **begin)
            if ready["status"] != "OK":
                raise RuntimeError(f"worker {address}: {ready.get('exception_text')}")
            taking[address] = worker.server_id
        answer = await send_recv(comm, op=OPERATION, post=post, more=more)
    finally:
        scheduler.rpc.reuse(address, comm)
    return pickle.loads(answer["post"])


def _scheduler_here(client: Client) -> Scheduler | None:
    """The client's scheduler, where it is there and has the same event loop."""
    found = getattr(client.cluster, "scheduler", None)
    if not isinstance(found, Scheduler) or found.status is not Status.running:
        return None
    same = found.loop is client.loop and found.address == client.scheduler.address
    return found if same else None


def posted(function: Callable[..., Any], *args: Any) -> bytes:
    """A call as it travels."""
    return bytes(pickle.dumps((function, args)))


def take_calls(named: str, dask_worker: Any) -> None:
    """Let a process do what is `posted`; Dask calls the scheduler ``dask_worker``, too.

    Functions get it under the name `named`.
    """

    async def answer(post: bytes, more: bytes | None = None) -> dict[str, bytes]:
        function, args = pickle.loads(post)
        if more is not None:
            args = (*args, *pickle.loads(more))
        result = function(*args, **{named: dask_worker})
        if asyncio.iscoroutine(result):
            result = await result
        return {"post": pickle.dumps(result)}

    dask_worker.handlers[OPERATION] = answer
