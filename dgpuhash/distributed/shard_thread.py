"""The one thread of a worker that works on shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["ShardThread"]

Args = ParamSpec("Args")
Result = TypeVar("Result")


class ShardThread:
    """Runs work one piece after the other, off the event loop, in the order it was asked for.

    Shards are touched by this thread only, so they need no locks, and a change of an index falls
    between two requests, never into one.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="dgpuhash-shards")

    async def run(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """The result of ``work(*args, **kwargs)``."""
        future = self._executor.submit(work, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish the piece at hand and drop the others."""
        self._executor.shutdown(wait=False, cancel_futures=True)
