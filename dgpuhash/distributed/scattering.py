"""Arrays and frames of the client's own on their way to workers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from distributed import Client, Future

from dgpuhash.distributed.phase import attended
from dgpuhash.errors import OutOfMemoryError

__all__ = ["scattered"]


def scattered(client: Client, workers: Sequence[str], pieces: Sequence[Any]) -> list[Future]:
    """The pieces on the workers.

    Raises
    ------
    OutOfMemoryError
        When none of these takes any in Dask's own time, since all are paused.
    IndexLost
        When one of these is lost.
    """

    def begin() -> Awaitable[list[Future]]:
        return client.scatter(list(pieces), workers=list(workers), hash=False, asynchronous=True)

    try:
        return attended(client, workers, begin)
    except TimeoutError as error:
        raise OutOfMemoryError(
            f"no worker of {list(workers)} takes rows ({error}): Dask pauses workers whose memory "
            "is nearly full; free some, or give them more (nothing was changed)"
        ) from error
