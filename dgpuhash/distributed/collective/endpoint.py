"""What the ends of all transports between workers share: calls that wait for the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from dgpuhash.distributed.collective.base import STALL, Collective, Transfer, given_up
from dgpuhash.distributed.collective.membership import Membership, Work
from dgpuhash.distributed.collective.shared_memory import Mailbox
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost, UnsupportedError

__all__ = ["WorkerEnd", "resting"]

# Seconds that the event loop sleeps between two rounds of what it has to do.
SLEEP = 3e-4


@contextmanager
def resting(loop: asyncio.AbstractEventLoop, device: str) -> Iterator[None]:
    """A block of another thread, of work on a GPU, in which `loop` takes naps.

    That of a worker on UCXX never rests, and each call that gives Python's lock away waits for it,
    for about 25 us. What it carries waits for the naps.
    """
    if device == "cpu":
        yield
        return
    rest = Rest(loop)
    loop.call_soon_threadsafe(rest.go_on)
    try:
        yield
    finally:
        rest.over.set()


class Rest:
    """Naps of an event loop, one after each round of what else it has to do.

    Attributes
    ----------
    over : threading.Event
        Ends the nap, and the naps.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.over = threading.Event()

    def go_on(self) -> None:
        """Take a nap, and later the next."""
        if not self.over.wait(SLEEP):
            self._loop.call_soon(self.go_on)


# Seconds of looking without a rest, before it takes naps of so many seconds.
RESTLESS, NAP = 5e-4, 50e-6


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
        self._mailbox: Mailbox | None = None

    @property
    def needs_loop(self) -> bool:
        """Whether the event loop carries columns of GPUs, or much else of an exchange."""
        return True

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

    def share_memory(self) -> None:
        """Let `gather` use memory that all ranks share; they do so at the same time, where it is.

        On four H200s it took 2 to 4 ms by messages over UCXX.
        """
        path: Path | None = None
        try:
            if self.rank == 0:
                with suppress(OSError, UnsupportedError):
                    path = Mailbox.create(self.membership.name, self.size)
            mailbox, found = None, self.gather(path)[0]
            if found is not None:
                with suppress(OSError):
                    mailbox = Mailbox(found, self.rank, self.size)
            if all(self.gather(mailbox is not None)):
                self._mailbox = mailbox
        finally:
            if path is not None:
                path.unlink()

    def gather(self, value: Any) -> list[Any]:
        if self.size == 1:
            # Over an event loop on UCXX it took 2.2 ms.
            if self.membership.broken is not None:
                raise self.membership.broken
            return [value]
        number, self._gathered = self._gathered, self._gathered + 1
        if self._mailbox is not None:
            self._mailbox.put(number, value)
            with self.membership.call():
                self._wait_for(self._mailbox, number)
            found = self._mailbox.values(number)
            if found is not None:
                return found
        return self._result(self._begin(self.membership.gather("value", number, value)))

    def _wait_for(self, mailbox: Mailbox, number: int) -> None:
        began = time.monotonic()
        while not mailbox.there(number):
            if self.membership.broken is not None:
                raise self.membership.broken
            waited = time.monotonic() - began
            if waited > RESTLESS:
                time.sleep(NAP)
            if waited > self._limit:
                self.abort(self._stalled())
                time.sleep(NAP)

    def undisturbed(self, device: str) -> AbstractContextManager[None]:
        return nullcontext() if self.needs_loop else resting(self.membership.loop, device)

    def agreed(self, value: Any, trouble: str) -> list[Any]:
        """The values that all ranks gave, in the order of ranks.

        Raises
        ------
        UnsupportedError
            On all ranks, when one has trouble.
        """
        found = self.gather((value, trouble))
        if troubles := [f"rank {rank}: {each}" for rank, (_, each) in enumerate(found) if each]:
            raise UnsupportedError("; ".join(troubles))
        return [value for value, _ in found]

    def abort(self, reason: str) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.abort, reason)

    def fail(self, trouble: str) -> DgpuhashError:
        """End the group, unless it has, as what carries its columns failed; the error to raise."""
        tell = partial(self.membership.abort, trouble, carrier=True)
        self.membership.loop.call_soon_threadsafe(tell)
        return self.membership.broken or given_up(trouble, carrier=True)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """A block of calls of what carries the columns, whose errors end the group."""
        try:
            yield
        except (IndexLost, ClosedError):
            raise
        except RuntimeError as error:
            raise self.fail(f"rank {self.rank} could not go on: {error}") from error

    def close(self) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.leave)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Work:
        return self.membership.run(work)

    def _result(self, work: Work) -> Any:
        """What `work` on the event loop gives, unless nothing moves for too long."""
        membership = self.membership
        seen, moved = membership.pace.progress, time.monotonic()
        with membership.call():
            while not work.over(given_up=membership.broken is not None):
                if membership.pace.progress != seen:
                    seen, moved = membership.pace.progress, time.monotonic()
                elif time.monotonic() - moved > self._limit:
                    self.abort(self._stalled())
        return work.outcome(membership.broken or given_up("the worker ended"))

    def _stalled(self) -> str:
        return (
            f"rank {self.rank} has waited for {self._limit:.0f} s, and nothing came; all ranks "
            "must make the same calls"
        )


class Pending(Transfer):
    """A transfer that the event loop works on."""

    def __init__(self, end: WorkerEnd, work: Work) -> None:
        self._end, self._work = end, work

    def wait(self) -> Any:
        return self._end._result(self._work)
