"""Scatter of the client's own arrays and frames to workers."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Sequence
from typing import Any

from distributed import Client, Future

from dgpuhash.distributed.cluster.broadcast import run_watched
from dgpuhash.distributed.cluster.locality import KEY_PREFIX
from dgpuhash.errors import OutOfMemoryError

__all__ = ["scatter_to_workers"]


def scatter_to_workers(
    client: Client, workers: Sequence[str], pieces: Sequence[Any]
) -> list[Future]:
    """Scatter the pieces to `workers`; return their futures, in order.

    Raises
    ------
    OutOfMemoryError
        When all these workers stay paused until Dask's timeout.
    IndexLost
        When one of these workers is lost.
    """

    name = f"{KEY_PREFIX}scattered-{uuid.uuid4().hex}"
    named = {f"{name}-{number}": piece for number, piece in enumerate(pieces)}

    def begin() -> Awaitable[dict[str, Future]]:
        return client.scatter(named, workers=list(workers), asynchronous=True)

    try:
        return list(run_watched(client, workers, begin).values())
    except TimeoutError as error:
        raise OutOfMemoryError(
            f"no worker of {list(workers)} takes rows ({error}): Dask pauses workers whose memory "
            "is nearly full; free some, or give them more (nothing was changed)"
        ) from error
