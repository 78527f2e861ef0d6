"""A request of one worker to the shards of another, over the cluster's own comms."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, TypeVar

from distributed.core import clean_exception, send_recv

from dgpuhash.distributed.cluster.payload import loaded, unloaded
from dgpuhash.errors import IndexLost

__all__ = ["REMEDY", "begun", "request"]

REMEDY = "call index.rebuild(), or DistributedIndex.load(url) where the index was saved"

Result = TypeVar("Result")

# Seconds. A shard may be busy for any time while its worker's event loop answers pings; only a
# worker that answers none for LIMIT is given up. A comm to a dead process breaks at once.
CONNECT = 2.0
PATIENCE = 2.0
LIMIT = 20.0


async def request(
    worker: Any, address: str, operation: str, objects: Mapping[str, Any], **message: Any
) -> list[Any]:
    """The answers of the handler `operation` of the worker at `address`.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks.
    address : str
        The worker that is asked.
    operation : str
        The name of a handler of `ShardHost`.
    objects : mapping
        Arguments of the handler that Dask serialises: frames, arrays, tuples of arrays. Over UCXX
        they go from device memory to device memory.
    **message
        Small arguments that msgpack knows.

    Raises
    ------
    IndexLost
        When the worker is gone or answers no longer.
    DgpuhashError
        What the handler raised.
    """
    if address == worker.address:
        # Below what prepares answers for the comm: objects and errors stay as they are.
        handler = worker.handlers[operation].__wrapped__
        answer = await handler(**objects, **message)
        return [unloaded(thing) for thing in answer]
    message |= {name: loaded(thing) for name, thing in objects.items()}
    task = begun(_round_trip(worker, address, operation, message))
    try:
        while not (await asyncio.wait({task}, timeout=PATIENCE))[0]:
            ping = begun(_round_trip(worker, address, "dgpuhash_ping", {}))
            await asyncio.wait_for(asyncio.shield(ping), LIMIT)
        response = task.result()
    except (TimeoutError, OSError) as error:
        raise IndexLost(
            f"worker {address}, which owns a shard of the index, is gone "
            f"({str(error) or 'it does not answer'}); {REMEDY}"
        ) from error
    if response is None:
        # What Dask answers for an operation that a worker without this plugin does not know.
        raise IndexLost(
            f"worker {address}, which owned a shard of the index, is ending or new; {REMEDY}"
        )
    if response["status"] != "OK":
        _, raised, _ = clean_exception(**response)
        assert raised is not None
        raise raised
    return response["answer"]


def begun(work: Awaitable[Result]) -> asyncio.Future[Result]:
    """`work` as a future that nobody need wait for, or look at its error.

    So messages go on when whoever sent them is cancelled: UCXX 0.52 crashes when a receive is.
    Where Python can, it begins at once, not with the event loop's next turn.
    """
    task = _started(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _started(work: Awaitable[Result]) -> asyncio.Future[Result]:
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
            if not _taken_for_an_end(error, operation):
                raise
        finally:
            worker.rpc.reuse(address, comm)


def _taken_for_an_end(error: Exception, operation: str) -> bool:
    """Whether `error` says that no handler got the message, and the comm is good for the next one.

    Dask puts a comm back into the pool also when it could not load, for want of memory, say, the
    data that came over it (dask/distributed#7060). The other side still waits to be told that they
    came, and answers whatever comes next that it is not that.
    """
    text = repr(error)
    return "AssertionError" in text and operation in text


async def _connect(worker: Any, address: str) -> Any:
    """A comm to `address`; a worker that the scheduler no longer knows is not waited for.

    Dask cancels its first try after a fifth of its time, and UCXX 0.52 then writes to memory that
    is no longer its own. So that try may last as long as anybody waits.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT
    trying = begun(worker.rpc.connect(address, timeout=5 * LIMIT))
    try:
        while not (await asyncio.wait({trying}, timeout=CONNECT))[0]:
            there = await asyncio.wait_for(asyncio.shield(begun(worker.scheduler.ncores())), LIMIT)
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
    """A connection that nobody waits for is the next one's."""
    if not late.cancelled() and late.exception() is None:
        worker.rpc.reuse(address, late.result())
