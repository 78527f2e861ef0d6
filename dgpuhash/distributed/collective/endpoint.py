"""Base of the collectives' endpoints on workers, driven by the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from dgpuhash.distributed.collective.base import STALL, Collective, Transfer, aborted_error
from dgpuhash.distributed.collective.membership import LoopFuture, Membership
from dgpuhash.distributed.collective.shared_memory import SharedAllgather
from dgpuhash.distributed.collective.two_level.relay import Relay
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost, UnsupportedError
from dgpuhash.typing import Device

# Seconds that the event loop sleeps between two rounds of its work.
SLEEP = 3e-4


@contextmanager
def throttle_loop(loop: asyncio.AbstractEventLoop, device: Device) -> Iterator[None]:
    """Make `loop` sleep between its rounds while this block works on a GPU.

    The block is of another thread. The event loop of a worker on UCXX never sleeps, and each call
    that releases the GIL waits for it, for about 25 us. Messages that the loop carries are delayed
    by the sleeps.
    """
    if device == "cpu":
        yield
        return
    rest = LoopThrottle(loop)
    loop.call_soon_threadsafe(rest.go_on)
    try:
        yield
    finally:
        rest.over.set()


class LoopThrottle:
    """Sleeps of an event loop, one after each round of its other work.

    Attributes
    ----------
    over : threading.Event
        Ends the current sleep, and prevents further ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.over: threading.Event = threading.Event()

    def go_on(self) -> None:
        """Sleep once, and schedule the next sleep."""
        if not self.over.wait(SLEEP):
            self._loop.call_soon(self.go_on)


# Seconds of busy polling, and of each sleep between polls after that.
RESTLESS, NAP = 5e-4, 50e-6


class Endpoint(Collective):
    """Endpoint of a group of workers.

    Parameters
    ----------
    membership : Membership
    limit : float
        Seconds without progress after which it aborts the group.
    """

    def __init__(self, membership: Membership, limit: float = STALL) -> None:
        self.rank: int = membership.rank
        self.size: int = membership.size
        self.membership = membership
        self._limit = limit
        self._gathered = 0
        self._mailbox: SharedAllgather | None = None

    @property
    def needs_loop(self) -> bool:
        """Whether exchanges of this transport depend on the event loop."""
        return True

    async def receive(self, **message: Any) -> list[Any]:
        """Answer a message of another rank, on the event loop."""
        return await self.membership.receive(**message)

    def connect(self) -> None:
        """Set up the transport; all ranks do so at the same time.

        Raises
        ------
        UnsupportedError
            On all ranks, when one of them cannot.
        """
        return

    def release(self) -> None:
        """Free what the transport holds; this rank makes no more calls."""
        return

    def watch(self) -> None:
        """Start to monitor the other ranks, once all endpoints exist."""
        self.membership.loop.call_soon_threadsafe(self.membership.watch)

    def share_memory(self) -> None:
        """Set up `gather` over shared memory, where the hosts have it.

        All ranks call it at the same time. On four H200s a `gather` took 2 to 4 ms by messages over
        UCXX.
        """
        path: Path | None = None
        ranks, layout = tuple(range(self.size)), self.membership.layout
        if layout is not None:
            ranks = layout.hosts[layout.host_numbers[self.rank]]
        try:
            if self.rank == ranks[0]:
                with suppress(OSError, UnsupportedError):
                    path = SharedAllgather.create(self.membership.name, len(ranks))
            mailbox, found = None, self.gather(path)[ranks[0]]
            if found is not None:
                with suppress(OSError):
                    mailbox = SharedAllgather(found, ranks.index(self.rank), len(ranks))
            if all(self.gather(mailbox is not None)):
                self._mailbox = mailbox
        finally:
            if path is not None:
                path.unlink()

    def gather(self, value: Any) -> list[Any]:
        if self.size == 1:
            # Through an event loop on UCXX this took 2.2 ms.
            if self.membership.broken is not None:
                raise self.membership.broken
            return [value]
        number, self._gathered = self._gathered, self._gathered + 1
        if self.membership.layout is not None:
            return self._gather_by_hosts(Relay(self.membership), number, value)
        found = self._share(number, value)
        if found is not None:
            return found
        return self._result(self._begin(self.membership.gather("value", number, value)))

    def _gather_by_hosts(self, relay: Relay, number: int, value: Any) -> list[Any]:
        if self._mailbox is None:
            return self._result(self._begin(relay.gather("value", number, value)))
        near = self._share(2 * number, value)
        if near is None:
            values = self._result(self._begin(relay.within("value", number, value)))
        else:
            values = dict(zip(relay.near, near, strict=True))
        far = {}
        if relay.gateways:
            far = self._result(self._begin(relay.between("value", number, values)))
        parts = self._share(2 * number + 1, far)
        if parts is None:
            parts = self._result(self._begin(relay.spread("value", number, far)))
        return relay.merged([values, *parts])

    def _share(self, number: int, value: Any) -> list[Any] | None:
        """Return the values of the ranks that share memory, or None.

        None if they share none, or one of the values was too large.
        """
        if self._mailbox is None:
            return None
        self._mailbox.put(number, value)
        with self.membership.call():
            self._wait_for(self._mailbox, number)
        return self._mailbox.values(number)

    def _wait_for(self, mailbox: SharedAllgather, number: int) -> None:
        began = time.monotonic()
        while not mailbox.there(number):
            if self.membership.broken is not None:
                raise self.membership.broken
            waited = time.monotonic() - began
            if waited > RESTLESS:
                time.sleep(NAP)
            if waited > self._limit:
                self.abort(self._stall_text())
                time.sleep(NAP)

    def with_quiet_loop(self, device: Device) -> AbstractContextManager[None]:
        return nullcontext() if self.needs_loop else throttle_loop(self.membership.loop, device)

    def agreed(self, value: Any, trouble: str) -> list[Any]:
        """Return the values of all ranks, unless one of them reports trouble.

        The values are in the order of ranks.

        Raises
        ------
        UnsupportedError
            On all ranks, when one reports trouble.
        """
        found = self.gather((value, trouble))
        if troubles := [f"rank {rank}: {each}" for rank, (_, each) in enumerate(found) if each]:
            raise UnsupportedError("; ".join(troubles))
        return [value for value, _ in found]

    def abort(self, reason: str) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.abort, reason)

    def fail(self, trouble: str) -> DgpuhashError:
        """Abort the group as its transport failed, and return the error.

        A group that was aborted before keeps its first error.
        """
        tell = partial(self.membership.abort, trouble, carrier=True)
        self.membership.loop.call_soon_threadsafe(tell)
        return self.membership.broken or aborted_error(trouble, carrier=True)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """Wrap transport calls in a block; their errors abort the group."""
        try:
            yield
        except (IndexLost, ClosedError):
            raise
        except RuntimeError as error:
            raise self.fail(f"rank {self.rank} could not go on: {error}") from error

    def close(self) -> None:
        self.membership.loop.call_soon_threadsafe(self.membership.leave)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> LoopFuture:
        return self.membership.run(work)

    def _result(self, work: LoopFuture) -> Any:
        """Return the result of `work`, and abort the group if it stalls."""
        membership = self.membership
        seen, moved = membership.pace.progress, time.monotonic()
        with membership.call():
            while not work.over(given_up=membership.broken is not None):
                if membership.pace.progress != seen:
                    seen, moved = membership.pace.progress, time.monotonic()
                elif time.monotonic() - moved > self._limit:
                    self.abort(self._stall_text())
        return work.outcome(membership.broken or aborted_error("the worker ended"))

    def _stall_text(self) -> str:
        return (
            f"rank {self.rank} has waited for {self._limit:.0f} s, and nothing came; all ranks "
            "must make the same calls"
        )


class LoopTransfer(Transfer):
    """Transfer that a coroutine on the event loop carries out."""

    def __init__(self, end: Endpoint, work: LoopFuture) -> None:
        self._end, self._work = end, work

    def wait(self) -> Any:
        return self._end._result(self._work)
