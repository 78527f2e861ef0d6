"""Phases that the scheduler passes on to workers, over comms that it keeps, in turns if asked.

``Client.run`` makes the scheduler connect to each worker anew, and a lock would be three more
messages of the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client
from distributed.comm import CommClosedError
from distributed.core import send_recv
from distributed.protocol import Serialize, Serialized, deserialize, pickle

from dgpuhash.distributed.request import begun

__all__ = ["Failed", "end_turn", "relayed"]

# Seconds between two looks whether the client whose turn it is is alive.
PATIENCE = 2.0
# Seconds that the others of a phase in turns have to say what they know when one has failed.
FAREWELL = 2.0


class Failed:
    """An error on its way to the client."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@dataclass(eq=False)
class Turn:
    """A phase that takes turns with others; `over` when it ended, or nobody waits for it."""

    name: str
    client: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


# Of each scheduler in this process, the phase whose turn it is first.
_turns: WeakKeyDictionary[Any, deque[Turn]] = WeakKeyDictionary()


async def relayed(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    turn: str | None = None,
) -> dict[str, Any]:
    """``function(*args, dask_worker=…)`` on the event loops of `workers`, at the same time.

    Returns what each gave, or the exception that came of it.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses.
    function : callable
        Of a module, so that it travels by name; perhaps a coroutine function.
    args : tuple
    turn : str, optional
        Names a phase that begins when no other named one is under way; `end_turn` lets the next
        one begin. Its workers wait for each other: when one fails, the others are waited for no
        longer than `FAREWELL`.
    """
    message = {
        "op": "run",
        "function": pickle.dumps(packed),
        "args": pickle.dumps((function, args)),
        "kwargs": pickle.dumps({}),
        "wait": True,
    }
    answers = await client.run_on_scheduler(
        relay, list(workers), message, turn, client.id, asynchronous=True
    )
    return {
        worker: answer if isinstance(answer, Exception) else pickle.loads(answer.post)
        for worker, answer in answers.items()
    }


async def end_turn(client: Client, turn: str) -> None:
    """Let others begin, whether the phase of this name ended or not."""
    await client.run_on_scheduler(free_turn, turn, asynchronous=True)


@dataclass(frozen=True, slots=True)
class Packed:
    """A result, or error, as bytes, which the scheduler need not understand."""

    post: bytes
    failed: bool


async def packed(function: Callable[..., Any], args: tuple[Any, ...], dask_worker: Any) -> Packed:
    """Runs on a worker."""
    try:
        result = function(*args, dask_worker=dask_worker)
        if asyncio.iscoroutine(result):
            result = await result
    except Exception as error:
        result = error
    return Packed(pickle.dumps(result), isinstance(result, Exception | Failed))


async def relay(
    workers: list[str],
    message: dict[str, Any],
    turn: str | None,
    client: str,
    dask_scheduler: Any,
) -> dict[str, Any]:
    """Runs on the scheduler."""
    if turn is None:
        return await _broadcast(workers, message, dask_scheduler)
    mine = Turn(turn, client)
    waiting = _turns.setdefault(dask_scheduler, deque())
    waiting.append(mine)
    try:
        await _head(waiting, mine, dask_scheduler)
        return await _together(workers, message, dask_scheduler)
    finally:
        mine.over.set()


def free_turn(turn: str, dask_scheduler: Any) -> None:
    """Runs on the scheduler."""
    for each in _turns.get(dask_scheduler, ()):
        if each.name == turn:
            each.over.set()


async def _head(waiting: deque[Turn], mine: Turn, scheduler: Any) -> None:
    """Wait until all turns before this one are over."""
    while waiting[0] is not mine:
        first = waiting[0]
        try:
            await asyncio.wait_for(first.over.wait(), PATIENCE)
        except TimeoutError:
            if first.client not in scheduler.clients:
                first.over.set()
        if first.over.is_set() and waiting[0] is first:
            waiting.popleft()
    if mine.over.is_set():
        raise TimeoutError(f"phase {mine.name} was given up before it began")


async def _broadcast(workers: list[str], message: dict[str, Any], scheduler: Any) -> dict[str, Any]:
    answers = [_answer(worker, message, scheduler) for worker in workers]
    return dict(zip(workers, await asyncio.gather(*answers), strict=True))


async def _together(workers: list[str], message: dict[str, Any], scheduler: Any) -> dict[str, Any]:
    """As `_broadcast`, to workers that may wait for one that has failed already."""
    answers = {worker: begun(_answer(worker, message, scheduler)) for worker in workers}
    waiting, done = set(answers.values()), set[asyncio.Future[Packed | Exception]]()
    while waiting and not any(_failed(each.result()) for each in done):
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting, timeout=FAREWELL)
    return {
        worker: answer.result() if answer.done() else TimeoutError(f"{worker} waits for another")
        for worker, answer in answers.items()
    }


def _failed(answer: Packed | Exception) -> bool:
    return isinstance(answer, Exception) or answer.failed


async def _answer(worker: str, message: dict[str, Any], scheduler: Any) -> Packed | Exception:
    if worker not in scheduler.workers:
        # Over the comm that the scheduler keeps, one that was retired answers until it has ended.
        return CommClosedError(f"{worker} is not in the cluster")
    try:
        comm = await scheduler.rpc.connect(worker)
        comm.name = "dgpuhash phase"
        try:
            response = await send_recv(comm, **message)
        finally:
            scheduler.rpc.reuse(worker, comm)
    except Exception as error:
        return error
    if response["status"] != "OK":
        return RuntimeError(f"worker {worker}: {response.get('exception_text')}")
    result = response["result"]
    if isinstance(result, Serialized):
        result = deserialize(result.header, result.frames)
    found: Packed = result.data if isinstance(result, Serialize) else result
    return found
