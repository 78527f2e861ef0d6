"""Find the Dask client of a call, and ask its scheduler for the workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import dask.base
from distributed import Client, Future, get_client, get_worker, rejoin, secede

from dgpuhash import config
from dgpuhash.distributed.cluster.dask_internals import CommClosedError, client_on, known_clients
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost, UnsupportedError

Result = TypeVar("Result")


def client_of(client: Client | None) -> Client:
    """Return `client`; for None the current client, which in a task is the worker's.

    Raises
    ------
    UnsupportedError
        When there is no client, or it is an asynchronous one.
    ClosedError
        When the client was closed, by its user or because it lost the scheduler.
    """
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise UnsupportedError(
                "no Dask client; make one with distributed.Client(), or pass client="
            ) from None
    if not isinstance(client, Client):
        raise UnsupportedError(
            f"client={client!r} is not a Dask client; pass distributed.Client(address)"
        )
    if client.status in {"closing", "closed"}:
        raise ClosedError(
            f"the Dask {client!r} is closed; pass another one (the indexes that it made live on "
            "with their cluster: DistributedIndex.open(name, client))"
        )
    _check_thread(client)
    return client


# Clients of the tasks of workers beside which others have made theirs.
_of_workers: WeakKeyDictionary[Any, Client] = WeakKeyDictionary()
_making = threading.Lock()


def task_client() -> Client:
    """Return the client of this task's worker, which lives as long as the worker.

    Where a program has its client in the worker's process, Dask gives that to tasks: once the
    program closes it, a call that is under way has no end. Raises as `current_worker` and
    `client_of`.
    """
    worker, client = current_worker(), client_of(None)
    if client.loop is worker.loop:
        return client
    with _making:
        own = _of_workers.get(worker)
        if own is None or own.status in {"closing", "closed"}:
            own = _of_workers[worker] = client_on(worker)
    return own


def computing_client() -> Client:
    """Return the client with which Dask computes in this thread.

    Raises
    ------
    UnsupportedError
        When Dask computes with a scheduler of its own, and as for `client_of`.
    ClosedError
        As for `client_of`.
    """
    try:
        client = getattr(dask.base.get_scheduler(), "__self__", None)
    except RuntimeError:
        # The configuration names a cluster, and there is none, or its client is asynchronous.
        client = None
    if not isinstance(client, Client):
        raise UnsupportedError(
            "Dask computes without a cluster here; make one with distributed.Client(), and leave "
            "scheduler= out of Dask's configuration"
        )
    return client_of(client)


# In a forked process: the clients of its parent.
_parents: WeakSet[Client] = WeakSet()
os.register_at_fork(after_in_child=lambda: _parents.update(known_clients()))


def is_from_parent_process(client: Client) -> bool:
    """Return whether the client belongs to the process this was forked from.

    Its event loop does not run in this process then.
    """
    return bool(_parents) and client in _parents


def _check_thread(client: Client) -> None:
    """Raise UnsupportedError in a thread where waiting for the event loop would deadlock."""
    if is_from_parent_process(client):
        raise UnsupportedError(
            "this process was forked from the one that made the Dask client, whose event loop is "
            "not here; make one here with distributed.Client(address), and open the index with "
            "DistributedIndex.open(name, client) or make the table anew"
        )
    if client.asynchronous:
        raise UnsupportedError(
            "calls on indexes and tables block until the cluster answers, which an asynchronous "
            "client does not allow; use a "
            "distributed.Client() without asynchronous=True, off its event loop"
        )


@contextmanager
def translate_scheduler_errors() -> Iterator[None]:
    """Turn comm errors in a block into IndexLost: the scheduler is gone.

    Raises
    ------
    IndexLost
        Instead of Dask's errors about a broken comm, a closed comm pool, or no scheduler.
    """
    try:
        yield
    except DgpuhashError:
        raise
    except (OSError, RuntimeError, AttributeError) as error:
        # A client that gave up reconnecting has None as its scheduler.
        if isinstance(error, AttributeError) and error.obj is not None:
            raise
        raise IndexLost(
            f"the scheduler of the cluster is gone or makes no progress ({error}); start a "
            f"cluster, "
            "and build the index, or make the table, again, or load it with load(url) where it was "
            "saved"
        ) from error


# Seconds between two checks that a client has its scheduler.
POLL_SECONDS = 1.0

# Clients without their scheduler, and since when: the first time that a call has seen it.
_parted: WeakKeyDictionary[Client, float] = WeakKeyDictionary()
# The last ping of each client's scheduler, the time of the last check, and the seconds of silence.
_pings: WeakKeyDictionary[Client, tuple[concurrent.futures.Future[Any], float, float]] = (
    WeakKeyDictionary()
)


def check_connected(client: Client) -> None:
    """Raise CommClosedError when a client's scheduler is away or silent for ``liveness.timeout``.

    Dask's clients try for half a minute to connect again, at each call anew, and wait without end
    for a scheduler whose process stands still. Threads call this every second while they wait.
    """
    loop: Any = client.loop
    now, limit = time.monotonic(), config.seconds("liveness.timeout")
    if client.status == "running" and loop.asyncio_loop.is_running():
        _parted.pop(client, None)
        ping, checked, silence = _pings.get(client, (None, now, 0.0))
        if ping is None or ping.done():
            echo = asyncio.run_coroutine_threadsafe(client.scheduler.echo(), loop.asyncio_loop)
            _pings[client] = echo, now, 0.0
            return
        # A process that stood still itself, as one that is stopped by a terminal, has not waited.
        silence += min(now - checked, 2 * POLL_SECONDS)
        _pings[client] = ping, now, silence
        if silence > limit:
            raise CommClosedError(f"it is connected, and has not answered for {limit:.0f} s")
        return
    since = _parted.setdefault(client, now)
    ended = client.status in {"closing", "closed"} or not loop.asyncio_loop.is_running()
    if ended or now - since > limit:
        raise CommClosedError("the client has lost the connection to it")


def sync_with_scheduler(
    client: Client,
    begin: Callable[..., Awaitable[Result]],
    *args: Any,
    limit: float | None = None,
) -> Result:
    """Run a coroutine that calls the scheduler on the client's event loop; return its result.

    As ``client.sync``, but the wait ends as `check_connected` says, or after `limit` seconds. The
    coroutine is not cancelled: UCXX does not bear that.

    Raises
    ------
    OSError
        When the scheduler is gone, or the limit is over.
    """

    async def ask() -> Result:
        return await begin(*args)

    loop: Any = client.loop
    told = asyncio.run_coroutine_threadsafe(ask(), loop.asyncio_loop)
    end = math.inf if limit is None else time.monotonic() + limit
    while not concurrent.futures.wait([told], min(POLL_SECONDS, limit or POLL_SECONDS)).done:
        check_connected(client)
        if time.monotonic() >= end:
            raise TimeoutError(f"it has not answered for {limit:.0f} s")
    return told.result()


def workers_of(client: Client) -> list[str]:
    """Return the addresses of the cluster's current workers, sorted.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        return sorted(sync_with_scheduler(client, client.scheduler.ncores))


def worker_ids(client: Client) -> dict[str, str]:
    """Return a name for each worker process, by the worker's address.

    A worker that is restarted under the same address has a new name.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        run = partial(client.run_on_scheduler, _processes, asynchronous=True)
        found: dict[str, str] = sync_with_scheduler(client, run)
    return found


def _processes(dask_scheduler: Any) -> dict[str, str]:
    return {worker.address: worker.server_id for worker in dask_scheduler.workers.values()}


def unpaused_workers(client: Client, workers: Sequence[str]) -> list[str]:
    """Return the `workers` that Dask has not paused; all if it paused all.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        run = partial(client.run_on_scheduler, _running, asynchronous=True)
        running: set[str] = sync_with_scheduler(client, run)
    return [worker for worker in workers if worker in running] or list(workers)


def _running(dask_scheduler: Any) -> set[str]:
    return {worker.address for worker in dask_scheduler.running}


def holders_of(client: Client, futures: Iterable[Future]) -> dict[Any, Sequence[str]]:
    """Return the addresses of the workers that have each future's result, by its key.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        ask = partial(client.scheduler.who_has, keys=[future.key for future in futures])
        return dict(sync_with_scheduler(client, ask))


def in_task_of(client: Client) -> bool:
    """Return whether this runs in a task on a worker of the client's cluster."""
    try:
        worker = get_worker()
    except ValueError:
        return False
    return bool(worker.scheduler.address == client.scheduler.address)


def check_same_cluster(client: Client, futures: Iterable[Future], name: str) -> None:
    """Raise UnsupportedError when another cluster holds the `futures`.

    `name` is the noun that the message uses for the data of the futures.
    """
    others = {future.client for future in futures} - {client}
    if any(other.status in {"closing", "closed"} for other in others):
        raise UnsupportedError(
            f"the client that made the {name} is closed, so they may be gone; make them again "
            f"with an open client"
        )
    if any(_cluster_of(other) != _cluster_of(client) for other in others):
        raise UnsupportedError(
            f"the {name} are on another cluster; with the client that made them, bring them here "
            f"by "
            f"client.compute({name}).result(), or make them with a client of this cluster"
        )


def _cluster_of(client: Client) -> str:
    """Return the scheduler's id: it may have several addresses."""
    return str(identity_of(client)["id"])


def identity_of(client: Client, n_workers: int = 1) -> dict[str, Any]:
    """Return the scheduler's identity, with that of `n_workers` workers or all (-1).

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        identity = partial(client.scheduler.identity, n_workers=n_workers)
        return dict(sync_with_scheduler(client, identity))


@contextmanager
def seceding(client: Client) -> Iterator[None]:
    """Secede from the worker's thread pool in a block that waits for tasks.

    Outside a task, the block runs as it is.

    Raises
    ------
    UnsupportedError
        On the client's event loop.
    """
    _check_thread(client)
    if not in_task_of(client):
        yield
        return
    try:
        secede()
    except KeyError:
        # The task has seceded before, perhaps in a worker_client() block.
        yield
        return
    try:
        yield
    finally:
        rejoin()
