"""The Dask client that an index works through."""

from __future__ import annotations

from distributed import Client, get_client, get_worker

from dgpuhash.errors import UnsupportedError

__all__ = ["client_of", "in_task_of"]


def client_of(client: Client | None) -> Client:
    """`client`, or the current one; in a task, that of its worker.

    Raises
    ------
    UnsupportedError
        When there is none, or it is one whose calls are awaited.
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
    if client.asynchronous:
        raise UnsupportedError(
            "an index waits for its cluster, which an asynchronous client cannot; use a "
            "distributed.Client() without asynchronous=True, off its event loop"
        )
    return client


def in_task_of(client: Client) -> bool:
    """Whether this is a task on a worker of the client's cluster."""
    try:
        worker = get_worker()
    except ValueError:
        return False
    return bool(worker.scheduler.address == client.scheduler.address)
