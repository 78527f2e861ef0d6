"""Scheduler side of broadcasts: dispatch, and a queue of collectives.

A lock held by the client would cost three more messages.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client
from distributed.comm import CommClosedError
from distributed.protocol import pickle

from dgpuhash.distributed.cluster.client import connected
from dgpuhash.distributed.cluster.locality import (
    Elsewhere,
    Given,
    Made,
    Needed,
    claim,
    claimed,
    free,
)
from dgpuhash.distributed.cluster.rpc import begun, call_worker, on_scheduler, posted

__all__ = ["Failed", "end_turn", "relayed"]

# Seconds between two checks that the client of the collective that runs is alive.
PATIENCE = 2.0
# Seconds that the other workers of a collective have to answer when one has failed.
FAREWELL = 2.0


class Failed:
    """Error of a worker, as a result that is sent to the client.

    Attributes
    ----------
    error : Exception
    told : bool
        Whether it is secondary: the consequence of another worker's error, which that worker is
        about to send.
    """

    def __init__(self, error: Exception, *, told: bool = False) -> None:
        self.error, self.told = error, told


@dataclass(eq=False)
class Turn:
    """Collective in the scheduler's queue, where one runs at a time.

    `begun`: it reached the head of the queue, and workers may have been called. `over`: it ended,
    or its client no longer waits for it.
    """

    name: str
    client: str
    begun: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


# The queue of each scheduler in this process; its head runs.
_turns: WeakKeyDictionary[Any, deque[Turn]] = WeakKeyDictionary()


async def relayed(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    turn: str | None = None,
    needed: Needed | None = None,
) -> dict[str, Any]:
    """Run ``function(*args, dask_worker=…)`` on all workers' event loops.

    All start at the same time. Returns the result of each worker, or the exception of its call, by
    address. Data of a `Made` stays on its worker, and the result here has futures for it; the data
    is freed when another worker fails, or no client waits.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses.
    function : callable
        Defined in a module: it is pickled by name. May be a coroutine function.
    args : tuple
    turn : str, optional
        The name of a collective, which begins when no other one runs; `end_turn` lets the next one
        begin. Its workers wait for each other: when one fails, the others are waited for no longer
        than `FAREWELL` seconds.
    needed : Needed, optional
        Input data; each function then gets its `Given` as the keyword argument ``given``.

    Raises
    ------
    Elsewhere
        When the needed data is not on the workers that need it.
    """
    post = posted(packed, function, args)
    answers = await on_scheduler(client, relay, list(workers), post, turn, client.id, needed)
    if isinstance(answers, str):
        raise Elsewhere(answers)
    return {worker: _opened(answer, client) for worker, answer in answers.items()}


def _opened(answer: Packed | Exception, client: Client) -> Any:
    if isinstance(answer, Exception):
        return answer
    result = pickle.loads(answer.post)
    return result if answer.left is None else Made(result, claimed(client, answer.left))


async def end_turn(client: Client, turn: str) -> bool:
    """Remove a collective from the queue, so that the next one can begin.

    Returns whether it was still waiting, so that it never begins.
    """
    found: bool = await on_scheduler(client, free_turn, turn)
    return found


@dataclass(frozen=True, slots=True)
class Packed:
    """Pickled result or error of a worker, which the scheduler does not read.

    Attributes
    ----------
    post : bytes
    failed, told : bool
        Whether it is an error, and a secondary one (`Failed.told`).
    left : mapping of label to int, or None
        The bytes of each output that stays on the worker; None where the result is no `Made`.
    """

    post: bytes
    failed: bool
    left: Mapping[Hashable, int] | None = None
    told: bool = False


async def packed(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *dealt: Any,
    dask_worker: Any,
) -> Packed:
    """Run `function` on this worker and return its pickled outcome.

    `dealt`: further arguments of `Given.to`, where the broadcast has input data.
    """
    left = None
    try:
        given = {"given": Given.to(dask_worker, *dealt)} if dealt else {}
        result = function(*args, **given, dask_worker=dask_worker)
        if asyncio.iscoroutine(result):
            result = await result
        if isinstance(result, Made):
            left = dask_worker.update_data(dict(result.data))["nbytes"]
            result = result.result
    except Exception as error:
        result = error
    told = isinstance(result, Failed) and result.told
    return Packed(pickle.dumps(result), isinstance(result, Exception | Failed), left, told)


async def relay(
    workers: list[str],
    post: bytes,
    turn: str | None,
    client: str,
    needed: Needed | None,
    dask_scheduler: Any,
) -> dict[str, Packed | Exception] | str:
    """Dispatch a call to `workers` when its turn comes; return the answers.

    Runs on the scheduler. Returns a text instead when the input data is not local: the reason.
    """
    mine, more = Turn(turn or "", client), None
    try:
        if turn is not None:
            waiting = _turns.setdefault(dask_scheduler, deque())
            waiting.append(mine)
            await _head(waiting, mine, dask_scheduler)
            mine.begun = True
        if needed is not None:
            dealt = needed.dealt(workers, dask_scheduler)
            if isinstance(dealt, str):
                return dealt
            more = pickle.dumps((workers, dealt, needed.token or uuid.uuid4().hex))
        ask = partial(_answer, post, more, dask_scheduler)
        answers = await _asked(workers, ask, together=turn is not None)
        return _settled(answers, mine, dask_scheduler)
    finally:
        mine.over.set()


def free_turn(turn: str, dask_scheduler: Any) -> bool:
    """Mark the collective of this name as over; see `end_turn`.

    Runs on the scheduler.
    """
    found = [each for each in _turns.get(dask_scheduler, ()) if each.name == turn]
    for each in found:
        each.over.set()
    return bool(found) and not any(each.begun for each in found)


async def _head(waiting: deque[Turn], mine: Turn, scheduler: Any) -> None:
    """Wait until `mine` is at the head of the queue."""
    while waiting[0] is not mine:
        first = waiting[0]
        try:
            await asyncio.wait_for(first.over.wait(), PATIENCE)
        except TimeoutError:
            if not connected(scheduler, first.client):
                first.over.set()
        if first.over.is_set() and waiting[0] is first:
            waiting.popleft()
    if mine.over.is_set():
        raise TimeoutError(f"phase {mine.name} was given up before it began")


async def _asked(
    workers: Sequence[str], ask: Callable[[str], Awaitable[Packed | Exception]], together: bool
) -> dict[str, asyncio.Future[Packed | Exception]]:
    """Call all `workers` at once by `ask` and return their answers' futures.

    Ranks of a collective (`together`) may wait for one that has failed, so after a primary failure
    they have `FAREWELL` seconds to answer. A secondary failure does not start that timeout: the
    error it stems from says more.
    """
    left, enough = len(workers), asyncio.get_running_loop().create_future()

    async def noted(worker: str) -> Packed | Exception:
        # Setting `enough` here wakes the waiter one turn of the event loop earlier.
        nonlocal left
        over = True
        try:
            found = await ask(worker)
            over = together and _failed_first(found)
            return found
        finally:
            left -= 1
            if (over or left == 0) and not enough.done():
                enough.set_result(None)

    answers = {worker: begun(noted(worker)) for worker in workers}
    if workers:
        await enough
    waiting = [answer for answer in answers.values() if not answer.done()]
    if waiting:
        await asyncio.wait(waiting, timeout=FAREWELL)
    return answers


def _settled(
    answers: Mapping[str, asyncio.Future[Packed | Exception]], phase: Turn, scheduler: Any
) -> dict[str, Packed | Exception]:
    """Return the answers; claim their outputs for the client, or free them.

    Outputs are claimed when all workers succeeded and the client still waits.
    """
    found = {worker: _found(worker, answer, scheduler) for worker, answer in answers.items()}
    awaited = connected(scheduler, phase.client) and not phase.over.is_set()
    if awaited and not any(map(_failed, found.values())):
        packets = {worker: each for worker, each in found.items() if isinstance(each, Packed)}
        left = {worker: each.left for worker, each in packets.items() if each.left}
        claim(scheduler, phase.client, left)
        return found
    for worker, answer in answers.items():
        answer.add_done_callback(partial(_let_drop, scheduler, worker))
    return {
        worker: replace(each, left=each.left and {}) if isinstance(each, Packed) else each
        for worker, each in found.items()
    }


def _found(
    worker: str, answer: asyncio.Future[Packed | Exception], scheduler: Any
) -> Packed | Exception:
    if not answer.done():
        return TimeoutError(f"{worker} waits for another")
    found = answer.result()
    if isinstance(found, Packed) and found.left and worker not in scheduler.workers:
        return CommClosedError(f"{worker} left the cluster with what it made")
    return found


def _let_drop(scheduler: Any, worker: str, answer: asyncio.Future[Packed | Exception]) -> None:
    found = None if answer.cancelled() else answer.result()
    if isinstance(found, Packed) and found.left:
        free(scheduler, worker, found.left)


def _failed(answer: Packed | Exception) -> bool:
    return isinstance(answer, Exception) or answer.failed


def _failed_first(answer: Packed | Exception) -> bool:
    return isinstance(answer, Exception) or (answer.failed and not answer.told)


async def _answer(
    post: bytes, more: bytes | None, scheduler: Any, worker: str
) -> Packed | Exception:
    try:
        found: Packed = await call_worker(scheduler, worker, post, more)
    except Exception as error:
        return error
    return found
