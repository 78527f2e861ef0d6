"""What the ends of all transports between workers share: calls that wait for the event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from dgpuhash.distributed.exchange.collective import STALL, Collective, Transfer
from dgpuhash.distributed.exchange.membership import Membership

__all__ = ["WorkerEnd"]


class WorkerEnd(Collective):
    """An end of a group of workers.

    Parameters
    ----------
    membership : Membership
    limit : float
        Seconds without any progress after which it gives up.
    """

    def __init__(self, membership: Membership, limit: float = STALL) -> None:
        self.rank, self.size = membership.rank, membership.size
        self.membership = membership
        self._limit = limit
        self._gathered = 0

    async def receive(self, **message: Any) -> list[Any]:
        """Answer a message of another rank, on the event loop."""
        return await self.membership.receive(**message)

    def connect(self) -> None:
        """Make ready what carries the columns; all ranks do so at the same time.

        Raises
        ------
        UnsupportedError
            On all ranks, when one of them cannot.
        """
        return

    def release(self) -> None:
        """Free what is carried with; this rank makes no more calls."""
        return

    def watch(self) -> None:
        """Begin to watch over the others; all ends are there."""
        self.membership.loop.call_soon_threadsafe(self.membership.watch)

    def gather(self, value: Any) -> list[Any]:
        number, self._gathered = self._gathered, self._gathered + 1
        return self._result(self._begin(self.membership.gather("value", number, value)))

    def abort(self, reason: str) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.abort, reason)

    def close(self) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.leave)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return self.membership.run(work)

    def _result(self, work: Future[Any]) -> Any:
        """What `work` on the event loop gives, unless nothing moves for too long."""
        seen = self.membership.progress
        while True:
            try:
                return work.result(self._limit)
            except TimeoutError:
                if work.done():
                    raise
            if self.membership.progress == seen:
                self.abort(self._stalled())
            seen = self.membership.progress

    def _stalled(self) -> str:
        return (
            f"rank {self.rank} has waited for {self._limit:.0f} s, and nothing came; all ranks "
            "must make the same calls"
        )


class Pending(Transfer):
    """A transfer that the event loop works on."""

    def __init__(self, end: WorkerEnd, work: Future[Any]) -> None:
        self._end, self._work = end, work

    def wait(self) -> Any:
        return self._end._result(self._work)
