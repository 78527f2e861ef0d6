"""Claims of a client on what phases have left among the workers' data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from distributed import Client, Future

__all__ = ["claim"]


def claim(
    client: Client, who_has: Mapping[Any, list[str]], nbytes: Mapping[Any, int]
) -> dict[Hashable, Future]:
    """Tell the scheduler that workers have these keys, as Dask's own scatter does.

    Returns the futures that keep them there.
    """
    if not who_has:
        return {}

    async def tell() -> dict[Hashable, Future]:
        futures: dict[Hashable, Future] = {key: Future(key, client) for key in who_has}
        await client.scheduler.update_data(who_has=who_has, nbytes=nbytes, client=client.id)
        for key in who_has:
            client.futures[key].finish()
        return futures

    futures: dict[Hashable, Future] = client.sync(tell)
    return futures
