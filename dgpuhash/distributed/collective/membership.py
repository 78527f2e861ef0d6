"""A worker's place in a group: messages to and from the other ranks, and the watch over them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from typing import Any, Protocol

from dgpuhash.distributed.cluster.liveness import Attendance
from dgpuhash.distributed.cluster.rpc import begun, request
from dgpuhash.distributed.collective.base import closed, given_up
from dgpuhash.errors import ClosedError, DgpuhashError

__all__ = ["Membership", "Pace", "Receiver", "Work", "all_of"]


@dataclass(slots=True)
class Pace:
    """How far a rank has come; all ranks of a group make the same phases and calls.

    Attributes
    ----------
    begun, ended : int
        Phases.
    calls : int
        Calls that waited for others.
    waiting : bool
        Whether it is in one.
    asked, taken : int
        Messages to others that are not answered; those of others that it has, and has not answered.
    progress : int
        Messages that came, or were answered.
    """

    begun: int = 0
    ended: int = 0
    calls: int = 0
    waiting: bool = False
    asked: int = 0
    taken: int = 0
    progress: int = 0

    def stands(self, phase: int) -> bool:
        """Whether it waits for others in this phase, or is done with it.

        Examples
        --------
        >>> Pace(begun=2, ended=1).stands(2), Pace(begun=2, ended=1, waiting=True).stands(2)
        (False, True)
        >>> Pace(begun=2, ended=2).stands(2), Pace(begun=1, ended=1).stands(2)
        (True, False)
        """
        return self.ended >= phase or (self.begun >= phase and self.waiting)


# Seconds between two looks whether it has ended and nobody told.
LOOK = 1.0


class Work:
    """Work of an event loop; its end is found, also where the loop could not tell.

    A process whose memory ran out may have none left to wake who waits.

    Attributes
    ----------
    told : Future
        What comes of it.
    task : Task, optional
        That does it, once it was begun.
    """

    told: Future[Any]
    task: asyncio.Task[Any] | None = None
    _ended = False

    def over(self, given_up: bool) -> bool:
        """Wait for a moment; whether there is an outcome.

        Parameters
        ----------
        given_up : bool
            Whether it is to end in any case.
        """
        with suppress(TimeoutError, CancelledError):
            self.told.exception(LOOK)
        # One that is about to tell is waited for until the next look.
        before, self._ended = self._ended, given_up or (self.task is not None and self.task.done())
        return self.told.done() or (before and self._ended)

    def outcome(self, error: BaseException) -> Any:
        """The result, or its error raised; `error` where there is neither."""
        if self.told.done():
            return self.told.result()
        if self.task is not None and self.task.done() and not self.task.cancelled():
            return self.task.result()
        raise error


OPERATION = "dgpuhash_collective"
# Seconds for the others to take note that this rank gave up.
FAREWELL = 2.0
# Seconds between two looks at the next rank, and at all ranks while this one waits.
WATCH = 0.5
PATIENCE = 2.0
# What is said while nothing moves.
QUIET = {"abort", "watch"}


class Receiver(Protocol):
    """What a transport does with messages that are its own."""

    async def take(self, kind: str, source: int, payload: Any, **message: Any) -> list[Any]:
        """Answer a message of another rank."""


class Membership:
    """Messages between the ranks of a group over Dask's comm, and the end of all when one is lost.

    Each rank watches the next one: so a rank that dies has a living one that notices, unless all
    died. It tells all others. Messages on their way are never cancelled, which UCXX does not bear;
    whoever waits for them is told. Ranks that wait look at all others, and end the group when all
    wait for nothing that is on its way: a wake-up was lost, as when memory runs out.

    All methods but `run`, `phase` and `call` are for the worker's event loop. `told`: whether the
    group was ended by a rank whose own phase failed.

    Parameters
    ----------
    worker : distributed.Worker
    name : str
        Of the group.
    addresses : sequence of str
        The workers, in the order of ranks.
    """

    def __init__(self, worker: Any, name: str, addresses: Sequence[str]) -> None:
        self.name, self.addresses = name, tuple(addresses)
        self.rank, self.size = self.addresses.index(worker.address), len(self.addresses)
        self.loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop
        self.broken: DgpuhashError | None = None
        self.told = False
        self.pace = Pace()
        self._cause: Exception | None = None
        self.receiver: Receiver | None = None
        self._worker = worker
        self._tasks: set[asyncio.Task[Any]] = set()
        self._farewell: asyncio.Task[None] | None = None
        self._values: dict[tuple[str, int], list[asyncio.Future[Any]]] = {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Work:
        """Begin `work` on the event loop, from another thread; it ends when the group does."""
        begun_work = Work()
        begun_work.told = asyncio.run_coroutine_threadsafe(
            self._until_broken(work, begun_work), self.loop
        )
        return begun_work

    @contextmanager
    def phase(self) -> Iterator[None]:
        """A block in which all ranks make the same calls."""
        self.pace.begun += 1
        try:
            yield
        finally:
            self.pace.ended += 1

    @contextmanager
    def call(self) -> Iterator[None]:
        """A block that waits for others."""
        self.pace.calls += 1
        self.pace.waiting = True
        try:
            yield
        finally:
            self.pace.waiting = False

    async def _until_broken(
        self, work: Coroutine[Any, Any, Any], waited_for: Work | None = None
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
            raise self._cause or given_up("the worker ended") from None
        except Exception as error:
            self.abort(f"rank {self.rank}: {error}", error)
            raise
        finally:
            self._tasks.discard(task)

    async def send(self, rank: int, kind: str, payload: Any = None, **message: Any) -> list[Any]:
        """What `rank` answers."""
        if self.broken is not None and kind != "abort":
            raise self.broken
        moves = kind not in QUIET
        self.pace.asked += moves
        try:
            return await request(
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

    async def gather(self, topic: str, number: int, value: Any) -> list[Any]:
        """The values that all ranks gave under this topic and number."""
        post = pickle.dumps(value)
        places = self._places(topic, number)
        places[self.rank].set_result(value)
        messages = {"topic": topic, "number": number, "value": post}
        await all_of([self.send(rank, "post", **messages) for rank in self.others()], *places)
        del self._values[topic, number]
        return [place.result() for place in places]

    def others(self) -> list[int]:
        """The other ranks, the next one first, so that not all send to the same one first."""
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    async def receive(
        self, kind: str, source: int, payload: Any = None, **message: Any
    ) -> list[Any]:
        """Answer a message of rank `source`."""
        if kind == "abort":
            self.told = self.told or (self.broken is None and message["failed"])
            self._end(given_up(message["reason"], carrier=message["carrier"]))
            return []
        if self.broken is not None:
            left = isinstance(self.broken, ClosedError)
            raise given_up(f"rank {self.rank} closed its end") if left else self.broken
        if kind == "watch":
            return [astuple(self.pace)]
        self.pace.progress += 1
        if kind == "post":
            place = self._places(message["topic"], message["number"])[source]
            place.set_result(pickle.loads(message["value"]))
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
        """Begin to watch the others."""
        if self.size > 1:
            self._tasks |= {
                asyncio.ensure_future(self._watch_next()),
                asyncio.ensure_future(self._watch_all()),
            }

    def abort(
        self,
        reason: str,
        error: Exception | None = None,
        *,
        carrier: bool = False,
        failed: bool = True,
    ) -> None:
        """End the group, and tell the others; calls under way here raise `error` if given.

        With `carrier` it was what carries the columns that failed; without `failed` this rank's
        phase did not, and may go on.
        """
        if self.broken is None:
            self._end(given_up(reason, carrier=carrier), error)
            if self.size > 1:
                told = self._tell(reason=reason, carrier=carrier, failed=failed)
                self._farewell = asyncio.ensure_future(told)

    def leave(self) -> None:
        """End this rank's part; whoever still waits for it is told that it left."""
        self._end(closed())

    async def _watch_next(self) -> None:
        rank = (self.rank + 1) % self.size
        while self.broken is None:
            try:
                await asyncio.shield(begun(self.send(rank, "watch")))
            except DgpuhashError as error:
                self.abort(f"rank {rank} is lost ({error})", failed=False)
            await asyncio.sleep(WATCH)

    async def _watch_all(self) -> None:
        attendance = Attendance()
        while self.broken is None:
            await asyncio.sleep(PATIENCE)
            stuck = await self._stuck()
            if attendance.missed({self.name: stuck}, self.loop.time()):
                reason = "all ranks wait, and nothing is on its way; did memory run out?"
                self.abort(reason, failed=False)

    async def _stuck(self) -> list[str]:
        """How far the ranks have come, where all wait for nothing that is on its way."""
        phase, paces = self.pace.begun, [replace(self.pace)]
        if self.pace.waiting and self.pace.stands(phase):
            for rank in self.others():
                try:
                    (theirs,) = await asyncio.shield(begun(self.send(rank, "watch")))
                except DgpuhashError:
                    break
                paces.append(Pace(*theirs))
                if not paces[-1].stands(phase):
                    break
        all_stand = len(paces) == self.size and paces[-1].stands(phase)
        under_way = sum(pace.asked - pace.taken for pace in paces)
        return [repr(paces)] if all_stand and not under_way else []

    async def _tell(self, **message: Any) -> None:
        messages = [self.send(rank, "abort", **message) for rank in self.others()]
        await asyncio.wait([begun(each) for each in messages], timeout=FAREWELL)

    def _places(self, topic: str, number: int) -> list[asyncio.Future[Any]]:
        found = self._values.get((topic, number))
        if found is None:
            found = [self.loop.create_future() for _ in range(self.size)]
            self._values[topic, number] = found
        return found

    def _end(self, error: DgpuhashError, cause: Exception | None = None) -> None:
        if self.broken is None:
            self.broken, self._cause = error, cause or error
        for task in list(self._tasks):
            task.cancel()


async def all_of(messages: Sequence[Coroutine[Any, Any, Any]], *others: Awaitable[Any]) -> None:
    """Wait for all of it, or the first error; messages go on even so."""
    await asyncio.gather(*(asyncio.shield(begun(each)) for each in messages), *others)
