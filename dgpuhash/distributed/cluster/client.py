"""Dask clients: lookup, checks, and the workers that they reach."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import dask.base
from distributed import Client, Future, get_client, get_worker, rejoin, secede

from dgpuhash.distributed.cluster.dask_internals import client_on, known_clients
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost, UnsupportedError

__all__ = [
    "check_same_cluster",
    "client_of",
    "computing_client",
    "in_task_of",
    "is_from_parent_process",
    "seceding",
    "task_client",
    "translate_scheduler_errors",
    "unpaused_workers",
    "worker_ids",
    "workers_of",
]


def client_of(client: Client | None) -> Client:
    """Return `client` or, if None, the current one (in a task, the worker's).

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
            f"client={client!r} is no Dask client; pass distributed.Client(address)"
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
    """Raise UnsupportedError where waiting for the event loop would not end."""
    if is_from_parent_process(client):
        raise UnsupportedError(
            "this process was forked from the one that made the Dask client, whose event loop is "
            "not here; make one here with distributed.Client(address), and open the index with "
            "DistributedIndex.open(name, client) or make the table anew"
        )
    if client.asynchronous:
        raise UnsupportedError(
            "indexes and tables wait for their cluster, which an asynchronous client cannot; use a "
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
            f"the scheduler of the cluster is gone ({error}); start a cluster, and build the "
            "index, or make the table, again, or load it with load(url) where it was saved"
        ) from error


def workers_of(client: Client) -> list[str]:
    """Return the addresses of the cluster's current workers, sorted.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        return sorted(client.nthreads())


def worker_ids(client: Client) -> dict[str, str]:
    """Return a name for each worker process, by the worker's address.

    A worker that is restarted under the same address has a new name.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with translate_scheduler_errors():
        found: dict[str, str] = client.run_on_scheduler(_processes)
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
        running = client.run_on_scheduler(_running)
    return [worker for worker in workers if worker in running] or list(workers)


def _running(dask_scheduler: Any) -> set[str]:
    return {worker.address for worker in dask_scheduler.running}


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
            f"the client that made the {name} is closed, so that they may be gone; make them again "
            "with a client that is not"
        )
    if any(_cluster_of(other) != _cluster_of(client) for other in others):
        raise UnsupportedError(
            f"another cluster holds the {name}; bring them here with {name}.compute(), or make "
            "them with a client of this cluster"
        )


def _cluster_of(client: Client) -> str:
    """Return the scheduler's id: it may have several addresses."""
    return str(client.scheduler_info(n_workers=1)["id"])


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
