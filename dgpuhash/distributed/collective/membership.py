"""Messages between the workers of a group, and detection of lost ones."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from typing import Any, Protocol

from dgpuhash.distributed.cluster.liveness import Watchdog
from dgpuhash.distributed.cluster.rpc import call_handler, fire_and_forget
from dgpuhash.distributed.collective.base import aborted_error, closed_error
from dgpuhash.distributed.collective.two_level.layout import HostLayout
from dgpuhash.errors import ClosedError, DgpuhashError


@dataclass(slots=True)
class Progress:
    """Phase and call that a rank has reached; all ranks go through the same ones.

    Attributes
    ----------
    begun, ended : int
        Phases that were begun and ended.
    calls : int
        Calls that waited for other ranks.
    waiting : bool
        Whether the rank is in such a call.
    asked, taken : int
        Messages sent and not answered yet; messages received and not answered yet.
    progress : int
        Messages that were received, or answered by others.
    """

    begun: int = 0
    ended: int = 0
    calls: int = 0
    waiting: bool = False
    asked: int = 0
    taken: int = 0
    progress: int = 0

    def stands(self, phase: int) -> bool:
        """Return whether the rank waits in `phase`, or has finished it.

        Examples
        --------
        >>> Progress(begun=2, ended=1).stands(2), Progress(begun=2, ended=1, waiting=True).stands(2)
        (False, True)
        >>> Progress(begun=2, ended=2).stands(2), Progress(begun=1, ended=1).stands(2)
        (True, False)
        """
        return self.ended >= phase or (self.begun >= phase and self.waiting)


# Seconds between two checks whether a task has ended without a wake-up.
LOOK = 1.0


class LoopFuture:
    """Result of a coroutine on an event loop, for a thread that waits for it.

    The end is also found by polling: a process that ran out of memory may be unable to wake the
    waiting thread.

    Attributes
    ----------
    told : Future
        Its result, for the waiting thread.
    task : Task, optional
        The task on the event loop, once it was started.
    """

    told: Future[Any]
    task: asyncio.Task[Any] | None = None
    _ended = False

    def over(self, given_up: bool) -> bool:
        """Wait at most `LOOK` seconds, and return whether there is an outcome.

        Parameters
        ----------
        given_up : bool
            Whether the group has ended, so that the wait must end, too.
        """
        with suppress(TimeoutError, CancelledError):
            self.told.exception(LOOK)
        # A task that ends just now gets one more check to set `told`.
        before, self._ended = self._ended, given_up or (self.task is not None and self.task.done())
        return self.told.done() or (before and self._ended)

    def outcome(self, error: BaseException) -> Any:
        """Return the result or raise its error; raise `error` if neither exists."""
        if self.told.done():
            return self.told.result()
        if self.task is not None and self.task.done() and not self.task.cancelled():
            return self.task.result()
        raise error


OPERATION = "dgpuhash_collective"
# Seconds to wait for the other ranks to acknowledge an abort.
ABORT_SECONDS = 2.0
# Seconds between two checks of the next rank, and of all ranks while this one waits.
WATCH = 0.5
ALL_RANKS_SECONDS = 2.0
# Ranks that check all others: with all of them, checks alone would keep 1,024 ranks busy.
WATCHERS = 2
# Kinds of message that `Progress` does not count.
QUIET = {"abort", "watch"}


@dataclass(frozen=True, slots=True)
class Post:
    """Message with a pickled value, and columns of rows.

    Attributes
    ----------
    packed : bytes
    columns : sequence of array
        Empty for no rows.
    """

    packed: bytes
    columns: Sequence[Any] = ()

    @classmethod
    def of(cls, value: Any, columns: Sequence[Any] = ()) -> Post:
        """Return a post with this value."""
        return cls(pickle.dumps(value), columns)

    @property
    def value(self) -> Any:
        """The value, as a new object each time."""
        return pickle.loads(self.packed)


class MessageHandler(Protocol):
    """Handler of the messages that belong to a transport."""

    async def take(self, kind: str, source: int, payload: Any, **message: Any) -> list[Any]:
        """Answer a message of another rank."""


class Membership:
    """Messages between the ranks of a group, and detection of lost ranks.

    Messages go over Dask's comm. Each rank monitors the next one: so a rank that dies is noticed by
    a living one, unless all died, and that one notifies all others. Messages in flight are never
    cancelled, since UCXX does not support it; the coroutines that wait for them are cancelled
    instead. Two of the ranks poll all others while they wait, and abort the group when all wait and
    no message is in flight: then a wake-up was lost, as when memory runs out.

    All methods but `run`, `phase` and `call` are for the worker's event loop. `told`: whether the
    group was aborted by a rank whose own phase failed. `layout`: the hosts of the ranks where their
    exchanges have two levels, else None.

    Parameters
    ----------
    worker : distributed.Worker
    name : str
        Of the group.
    addresses : sequence of str
        The workers, in the order of ranks.
    """

    def __init__(self, worker: Any, name: str, addresses: Sequence[str]) -> None:
        self.name: str = name
        self.addresses: tuple[str, ...] = tuple(addresses)
        self.rank: int = self.addresses.index(worker.address)
        self.size: int = len(self.addresses)
        self.loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop
        self.broken: DgpuhashError | None = None
        self.told: bool = False
        self.layout: HostLayout | None = None
        self.pace: Progress = Progress()
        self._cause: Exception | None = None
        self.receiver: MessageHandler | None = None
        self._worker = worker
        self._tasks: set[asyncio.Task[Any]] = set()
        self._farewell: asyncio.Task[None] | None = None
        self._posts: dict[tuple[str, int, int], asyncio.Future[Post]] = {}

    def run(self, work: Coroutine[Any, Any, Any]) -> LoopFuture:
        """Start `work` on the event loop, from another thread.

        It is cancelled when the group ends.
        """
        begun_work = LoopFuture()
        begun_work.told = asyncio.run_coroutine_threadsafe(
            self._until_broken(work, begun_work), self.loop
        )
        return begun_work

    @contextmanager
    def phase(self) -> Iterator[None]:
        """Mark a block in which all ranks make the same calls."""
        self.pace.begun += 1
        try:
            yield
        finally:
            self.pace.ended += 1

    @contextmanager
    def call(self) -> Iterator[None]:
        """Mark a block that waits for other ranks."""
        self.pace.calls += 1
        self.pace.waiting = True
        try:
            yield
        finally:
            self.pace.waiting = False

    async def _until_broken(
        self, work: Coroutine[Any, Any, Any], waited_for: LoopFuture | None = None
    ) -> Any:
        if self.broken is not None:
            work.close()
            raise self.broken
        task = asyncio.ensure_future(work)
        if waited_for is not None:
            waited_for.task = task
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise self._cause or aborted_error("the worker ended") from None
        except Exception as error:
            self.abort(f"rank {self.rank}: {error}", error)
            raise
        finally:
            self._tasks.discard(task)

    async def send(self, rank: int, kind: str, payload: Any = None, **message: Any) -> list[Any]:
        """Send a message to `rank`, and return its answer."""
        if self.broken is not None and kind != "abort":
            raise self.broken
        moves = kind not in QUIET
        self.pace.asked += moves
        try:
            return await call_handler(
                self._worker,
                self.addresses[rank],
                OPERATION,
                {} if payload is None else {"payload": payload},
                group=self.name,
                source=self.rank,
                kind=kind,
                **message,
            )
        finally:
            self.pace.asked -= moves

    async def swap(
        self, topic: str, number: int, posts: Mapping[int, Post], sources: Collection[int]
    ) -> dict[int, Post]:
        """Send each rank its post, and return the posts that `sources` send to this rank.

        Parameters
        ----------
        topic : str
        number : int
            Which swap of this topic it is, the same on all ranks.
        posts : mapping
            By rank, without this one.
        sources : collection of int
            Ranks that have a post for this one.
        """
        places = {source: self._place(topic, number, source) for source in sources}
        which = {"topic": topic, "number": number}
        sends = [
            self.send(rank, "post", post.columns or None, value=post.packed, **which)
            for rank, post in posts.items()
        ]
        await all_of(sends, *places.values())
        for source in sources:
            del self._posts[topic, number, source]
        return {source: place.result() for source, place in places.items()}

    async def gather(self, topic: str, number: int, value: Any) -> list[Any]:
        """Return the values that all ranks gave for this topic and number."""
        others = self.others()
        found = await self.swap(topic, number, dict.fromkeys(others, Post.of(value)), others)
        values = {self.rank: value, **{rank: post.value for rank, post in found.items()}}
        return [values[rank] for rank in range(self.size)]

    def others(self) -> list[int]:
        """Return the other ranks, starting with the next one.

        So the ranks do not all send to the same rank first.
        """
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    async def receive(
        self, kind: str, source: int, payload: Any = None, **message: Any
    ) -> list[Any]:
        """Answer a message of rank `source`."""
        if kind == "abort":
            self.told = self.told or (self.broken is None and message["failed"])
            self._end(aborted_error(message["reason"], carrier=message["carrier"]))
            return []
        if self.broken is not None:
            left = isinstance(self.broken, ClosedError)
            raise aborted_error(f"rank {self.rank} closed its end") if left else self.broken
        if kind == "watch":
            return [astuple(self.pace)]
        self.pace.progress += 1
        if kind == "post":
            place = self._place(message["topic"], message["number"], source)
            place.set_result(Post(message["value"], payload or ()))
            return []
        assert self.receiver is not None
        self.pace.taken += 1
        try:
            answer = await self._until_broken(self.receiver.take(kind, source, payload, **message))
        finally:
            self.pace.taken -= 1
        self.pace.progress += 1
        return answer

    def watch(self) -> None:
        """Start to monitor the other ranks."""
        if self.size > 1:
            self._tasks.add(asyncio.ensure_future(self._watch_next()))
        if self.size > 1 and self.rank < WATCHERS:
            self._tasks.add(asyncio.ensure_future(self._watch_all()))

    def abort(
        self,
        reason: str,
        error: Exception | None = None,
        *,
        carrier: bool = False,
        failed: bool = True,
    ) -> None:
        """End the group, and notify the other ranks.

        Calls in progress here raise `error` if given. With `carrier`, the transport failed; without
        `failed`, this rank's own phase has not failed, and may continue.
        """
        if self.broken is None:
            self._end(aborted_error(reason, carrier=carrier), error)
            if self.size > 1:
                told = self._tell(reason=reason, carrier=carrier, failed=failed)
                self._farewell = asyncio.ensure_future(told)

    def leave(self) -> None:
        """End this rank's membership; ranks that wait for it get an error."""
        self._end(closed_error())

    async def _watch_next(self) -> None:
        rank = (self.rank + 1) % self.size
        while self.broken is None:
            try:
                await asyncio.shield(fire_and_forget(self.send(rank, "watch")))
            except DgpuhashError as error:
                self.abort(f"rank {rank} is lost ({error})", failed=False)
            await asyncio.sleep(WATCH)

    async def _watch_all(self) -> None:
        attendance = Watchdog()
        while self.broken is None:
            await asyncio.sleep(ALL_RANKS_SECONDS)
            stuck = await self._stuck()
            if attendance.stuck_work({self.name: stuck}, self.loop.time()):
                reason = "all ranks wait, and nothing is on its way; did memory run out?"
                self.abort(reason, failed=False)

    async def _stuck(self) -> list[str]:
        """Return the progress of all ranks if they are deadlocked, or [].

        They are when all wait and no message is in flight.
        """
        phase, paces = self.pace.begun, [replace(self.pace)]
        if self.pace.waiting and self.pace.stands(phase):
            for rank in self.others():
                try:
                    (theirs,) = await asyncio.shield(fire_and_forget(self.send(rank, "watch")))
                except DgpuhashError:
                    break
                paces.append(Progress(*theirs))
                if not paces[-1].stands(phase):
                    break
        all_stand = len(paces) == self.size and paces[-1].stands(phase)
        under_way = sum(pace.asked - pace.taken for pace in paces)
        return [repr(paces)] if all_stand and not under_way else []

    async def _tell(self, **message: Any) -> None:
        messages = [self.send(rank, "abort", **message) for rank in self.others()]
        await asyncio.wait([fire_and_forget(each) for each in messages], timeout=ABORT_SECONDS)

    def _place(self, topic: str, number: int, source: int) -> asyncio.Future[Post]:
        found = self._posts.get((topic, number, source))
        if found is None:
            found = self._posts[topic, number, source] = self.loop.create_future()
        return found

    def _end(self, error: DgpuhashError, cause: Exception | None = None) -> None:
        if self.broken is None:
            self.broken, self._cause = error, cause or error
        for task in list(self._tasks):
            task.cancel()


async def all_of(messages: Sequence[Coroutine[Any, Any, Any]], *others: Awaitable[Any]) -> None:
    """Wait for all messages and all `others`, or raise the first error.

    Messages in flight are not cancelled by an error, but `others` are.
    """
    waits = [asyncio.ensure_future(each) for each in others]
    try:
        await asyncio.gather(*(asyncio.shield(fire_and_forget(each)) for each in messages), *waits)
    finally:
        for wait in waits:
            wait.cancel()
