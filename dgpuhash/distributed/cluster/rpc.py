"""Remote calls of the scheduler and between workers, over Dask's comms."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client, Scheduler

from dgpuhash import config
from dgpuhash.distributed.cluster.client import sync_with_scheduler, translate_scheduler_errors
from dgpuhash.distributed.cluster.dask_internals import (
    CommClosedError,
    Status,
    clean_exception,
    pickle,
    rpc_handlers,
    send_recv,
)
from dgpuhash.distributed.cluster.serialization import from_message, to_message
from dgpuhash.errors import IndexLost

# Not a handler of the plugin's, which is removed with it.
OPERATION = "dgpuhash-call"

# Clients whose scheduler has the handler. For each scheduler in this process, the workers that have
# it: their server ids, which are new after a restart, by address.
_clients: WeakSet[Client] = WeakSet()
_workers: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()


async def call_scheduler_async(client: Client, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args, dask_scheduler=…)`` on the scheduler's event loop.

    Where that is the client's own loop, as with a `LocalCluster`, nothing is serialized.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        Defined in a module: it is pickled by name. May be a coroutine function.
    *args
        Not changed by the caller from now on.

    Raises
    ------
    Exception
        The error that `function` raised.
    """
    here = _scheduler_here(client)
    if here is not None:
        found = function(*args, dask_scheduler=here)
        return await found if asyncio.iscoroutine(found) else found
    message = {"post": encode_call(function, *args)}
    answer = None
    if client in _clients:
        answer = await getattr(client.scheduler, OPERATION)(**message)
    if answer is None:
        # The scheduler has no handler yet, or was restarted.
        await client.run_on_scheduler(install_call_handler, "dask_scheduler", asynchronous=True)
        _clients.add(client)
        answer = await getattr(client.scheduler, OPERATION)(**message)
    return pickle.loads(answer["post"])


def call_scheduler(
    client: Client, function: Callable[..., Any], *args: Any, limit: float | None = None
) -> Any:
    """Run `function` on the scheduler and wait for its result.

    As `call_scheduler_async`, for threads; without `limit` (seconds), the wait has no end.

    Raises
    ------
    IndexLost
        When the scheduler is gone, or has not answered for `limit` seconds.
    """
    with translate_scheduler_errors():
        return sync_with_scheduler(
            client, call_scheduler_async, client, function, *args, limit=limit
        )


def rpc_of_scheduler(client: Client) -> Any:
    """Return an RPC object for the scheduler's handlers.

    As ``client.scheduler``, it has an asynchronous method for each handler; a scheduler on the
    client's event loop is called without messages.
    """
    here = _scheduler_here(client)
    return client.scheduler if here is None else LocalSchedulerRPC(here)


class LocalSchedulerRPC:
    """Handlers of a scheduler on this event loop, called without messages."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(**message: Any) -> Any:
            found = rpc_handlers(self._scheduler)[name](**message)
            return await found if asyncio.iscoroutine(found) else found

        return call


async def call_worker(scheduler: Any, address: str, post: bytes, more: bytes | None) -> Any:
    """Run an `encode_call` call on a worker's event loop; return its result.

    Runs on the scheduler, over its pooled comms; Dask's own broadcast opens new ones.

    Parameters
    ----------
    post : bytes
        As `encode_call` returns it.
    more : bytes or None
        Further arguments, pickled.

    Raises
    ------
    Exception
        The error that the function raised, or that the worker cannot be reached.
    """
    worker = scheduler.workers.get(address)
    if worker is None:
        # A retired worker still answers over a pooled comm until its process ends.
        raise CommClosedError(f"{address} is not in the cluster")
    comm = await scheduler.rpc.connect(address)
    comm.name = "dgpuhash call"
    try:
        taking = _workers.setdefault(scheduler, {})
        if taking.get(address) != worker.server_id:
            begin = {
                "function": pickle.dumps(install_call_handler),
                "args": pickle.dumps(("dask_worker",)),
            }
            ready = await send_recv(comm, op="run", **begin)
            if ready["status"] != "OK":
                raise RuntimeError(f"worker {address}: {ready.get('exception_text')}")
            taking[address] = worker.server_id
        answer = await send_recv(comm, op=OPERATION, post=post, more=more)
    finally:
        scheduler.rpc.reuse(address, comm)
    return pickle.loads(answer["post"])


def _scheduler_here(client: Client) -> Scheduler | None:
    """Return the client's scheduler if it runs on the client's event loop."""
    found = getattr(client.cluster, "scheduler", None)
    if not isinstance(found, Scheduler) or found.status is not Status.running:
        return None
    same = found.loop is client.loop and found.address == client.scheduler.address
    return found if same else None


def encode_call(function: Callable[..., Any], *args: Any) -> bytes:
    """Return a call as bytes: its pickled function and arguments."""
    return bytes(pickle.dumps((function, args)))


def install_call_handler(named: str, dask_worker: Any) -> None:
    """Install the handler for `encode_call` calls in this process.

    Functions get the process as the keyword argument `named`. Dask passes the scheduler, too, as
    ``dask_worker``.
    """

    async def answer(post: bytes, more: bytes | None = None) -> dict[str, bytes]:
        function, args = pickle.loads(post)
        if more is not None:
            args = (*args, *pickle.loads(more))
        result = function(*args, **{named: dask_worker})
        if asyncio.iscoroutine(result):
            result = await result
        return {"post": pickle.dumps(result)}

    rpc_handlers(dask_worker)[OPERATION] = answer


REMEDY = "call rebuild() of the index, or load it where it was saved"

Result = TypeVar("Result")

# A shard may be busy for any time while its worker's event loop answers heartbeats; only a worker
# that answers none for as long as this setting says counts as lost. A comm to a dead process breaks
# at once.
TIMEOUT = "liveness.timeout"
# Seconds between two checks that a worker is still there to which no connection stands yet.
CONNECT_SECONDS = 2.0


async def call_handler(
    worker: Any, address: str, operation: str, objects: Mapping[str, Any], **message: Any
) -> list[Any]:
    """Call the handler `operation` of the worker at `address`.

    Returns the list of objects that the handler answers.

    Parameters
    ----------
    worker : distributed.Worker
        The calling worker.
    address : str
        The called worker.
    operation : str
        The name of a handler of `ShardHost`.
    objects : mapping
        Arguments of the handler that Dask serializes: frames, arrays, tuples of arrays. Over UCXX
        they go from device memory to device memory.
    **message
        Small arguments of types that msgpack supports.

    Raises
    ------
    IndexLost
        When the worker is gone or no longer answers.
    DgpuhashError
        The error that the handler raised.
    """
    if address == worker.address:
        # The unwrapped handler: its objects and errors are not serialized.
        handler = rpc_handlers(worker)[operation].__wrapped__
        answer = await handler(**objects, **message)
        return [from_message(thing) for thing in answer]
    message |= {name: to_message(thing) for name, thing in objects.items()}
    task = fire_and_forget(_round_trip(worker, address, operation, message))
    try:
        while not (await asyncio.wait({task}, timeout=config.seconds("liveness.heartbeat")))[0]:
            ping = fire_and_forget(_round_trip(worker, address, "dgpuhash_ping", {}))
            await asyncio.wait_for(asyncio.shield(ping), config.seconds(TIMEOUT))
        response = task.result()
    except (TimeoutError, OSError) as error:
        raise IndexLost(
            f"worker {address}, which owns a shard, is gone "
            f"({str(error) or 'it does not answer'}); {REMEDY}"
        ) from error
    if response is None:
        # Dask's answer for an operation that a worker without this plugin does not know.
        raise IndexLost(f"worker {address}, which owned a shard, is ending or new; {REMEDY}")
    if response["status"] != "OK":
        _, raised, _ = clean_exception(**response)
        assert raised is not None
        raise raised
    return response["answer"]


def fire_and_forget(work: Awaitable[Result]) -> asyncio.Future[Result]:
    """Start `work` and return a future that need not be awaited.

    An error that is not read is not logged. So messages are sent to their end when their sender is
    cancelled: UCXX 0.52 crashes when a receive is cancelled. From Python 3.12 on, a coroutine
    starts at once, not with the event loop's next turn.
    """
    task = _start(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _start(work: Awaitable[Result]) -> asyncio.Future[Result]:
    if sys.version_info >= (3, 12) and asyncio.iscoroutine(work):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.ensure_future(work)


async def _round_trip(worker: Any, address: str, operation: str, message: dict[str, Any]) -> Any:
    while True:
        comm = await _connect(worker, address)
        comm.name = operation
        try:
            return await send_recv(comm, op=operation, **message)
        except Exception as error:
            if not _is_stale_comm(error, operation):
                raise
        finally:
            worker.rpc.reuse(address, comm)


def _is_stale_comm(error: Exception, operation: str) -> bool:
    """Return whether `error` means a stale comm, over which no handler ran.

    The caller then retries over it. Dask also returns a comm to the pool when it could not load the
    data that arrived over it, say for want of memory (dask/distributed#7060). The other side still
    waits for the acknowledgement of that data, and refuses the next message.
    """
    text = repr(error)
    return "AssertionError" in text and operation in text


async def _connect(worker: Any, address: str) -> Any:
    """Return a comm to `address`; give up when the scheduler lost that worker.

    Dask cancels its first attempt after a fifth of the timeout, and UCXX 0.52 then writes to memory
    that is no longer its own. So the timeout is such that this attempt may last as long as a
    worker may be silent.
    """
    loop = asyncio.get_running_loop()
    limit = config.seconds(TIMEOUT)
    end = loop.time() + limit
    trying = fire_and_forget(worker.rpc.connect(address, timeout=5 * limit))
    try:
        while not (await asyncio.wait({trying}, timeout=CONNECT_SECONDS))[0]:
            there = await asyncio.wait_for(
                asyncio.shield(fire_and_forget(worker.scheduler.ncores())), limit
            )
            if address not in there or loop.time() > end:
                raise TimeoutError("no connection to it")
        return trying.result()
    except ValueError as error:
        raise IndexLost(
            f"worker {address} of the index is of another cluster ({error}); compute the merge "
            "with the client that the index was opened with"
        ) from error
    finally:
        if not trying.done():
            trying.add_done_callback(partial(_give_back, worker, address))


def _give_back(worker: Any, address: str, late: asyncio.Future[Any]) -> None:
    """Return a late comm to the pool, because its requester has stopped waiting."""
    if not late.cancelled() and late.exception() is None:
        worker.rpc.reuse(address, late.result())
