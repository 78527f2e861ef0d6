"""Translation of errors that mean that a worker with a shard is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from distributed import Client

from dgpuhash.distributed.cluster.client import translate_scheduler_errors
from dgpuhash.distributed.cluster.dask_internals import CommClosedError
from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.distributed.shards import table_store
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost


@contextmanager
def translated_losses(client: Client, workers: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Turn errors of a block into IndexLost, if a worker is lost.

    Dask raises errors of many kinds then.
    """
    generation = client.generation
    try:
        yield
    except DgpuhashError as error:
        if not isinstance(error, IndexLost):
            raise
        _check_client(client, error)
        raise IndexLost(str(error).replace(REMEDY, table_store.REMEDY)) from error
    except Exception as error:
        _check_client(client, error)
        with translate_scheduler_errors():
            there = client.nthreads()
        # A restart of the cluster cancels futures before the workers leave.
        staying = set(there) if client.generation == generation else set()
        gone = sorted(set(workers()) - staying)
        if gone or isinstance(error, CommClosedError):
            raise IndexLost(
                f"workers {gone} with shards of the table are gone; {table_store.REMEDY}"
            ) from error
        raise


def _check_client(client: Client, error: Exception) -> None:
    """Raise ClosedError if the client was closed, which led to `error`."""
    if client.status in {"closing", "closed"}:
        raise ClosedError(
            "the Dask client was closed meanwhile, and nobody else knows the shards of its tables; "
            "make them again with another client, or load a save"
        ) from error
